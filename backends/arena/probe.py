"""The health check of a board: a firmware whose answers are known; who fails it is at fault, not an attempt."""

import secrets
import tempfile
from pathlib import Path

from automcu_ray.core.errors import BoardError, ToolchainError, ToolMissingError
from automcu_ray.problem.target import McuTarget
from backends.arena.protocol import FirmwareFault, Session
from backends.arena.rigs import ArenaRig
from backends.boards.base import Board

BYTES = 16
MASK = 0x5A
_NET = f"void net(const char *in, char *out) {{ for (int i = 0; i < {BYTES}; i++) out[i] = in[i] ^ {MASK}; }}\n"


def trouble_of(board: Board, target: McuTarget, rig: ArenaRig) -> str:
    """Return what is wrong with a board; "" where it boots the probe and answers as it should."""
    with tempfile.TemporaryDirectory(prefix="automcu-probe-") as folder:
        artifact = Path(folder, "artifact")
        artifact.mkdir()
        (artifact / "net.c").write_text(_NET)
        try:
            built = rig.build(artifact, Path(folder, "build"), BYTES, BYTES)
            assert built.elf is not None
            with board.connect(built.elf, target) as port:
                session = Session(port, BYTES, BYTES, rig.delay_ticks, [], preamble_lines=rig.preamble_lines)
                session.greet()
                asked = secrets.token_bytes(BYTES)
                if session.ask(asked).output != bytes(one ^ MASK for one in asked):
                    return "the probe's answer is wrong"
        except (BoardError, FirmwareFault, ToolchainError, ToolMissingError, OSError) as error:
            return f"the probe fails: {error}"[:300]
    return ""
