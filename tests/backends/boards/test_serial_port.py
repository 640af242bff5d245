"""Boards on a serial port: real firmware behind pyserial, and the command lines that would write it."""

import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from automcu_ray.core.errors import BoardError, ConfigError, ToolchainError
from automcu_ray.problem.target import Constraints, McuTarget
from backends.arena.build import BOOT_DELAY_TICKS, build
from backends.arena.protocol import Session
from backends.boards import make_board
from backends.boards.flashers import FLASHERS, command
from backends.boards.pool import BoardEntry
from backends.boards.qemu import QemuBoard
from backends.boards.qemu import command as command_of_qemu
from backends.boards.serial_port import SerialBoard
from backends.programs import Completed, running

FULL = {"probe_id": "0669FF", "part": "stm32f405rg", "config": "board/st_nucleo_f4.cfg", "serial": "/dev/ttyACM0"}


@pytest.mark.thorough
def test_the_arenas_firmware_talks_through_a_url_of_pyserial(stm32f405: McuTarget, tmp_path: Path, qemu: None) -> None:
    (tmp_path / "artifact").mkdir()
    (tmp_path / "artifact" / "net.c").write_text("void net(const char *in, char *out) { out[0] = in[0] + in[1]; }")
    built = build(
        tmp_path / "artifact",
        tmp_path / "build",
        target=stm32f405,
        constraints=Constraints(),
        input_bytes=2,
        output_bytes=1,
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    argv = command_of_qemu("netduinoplus2", built.elf or tmp_path, 0)[:-4]  # less its own serial port
    argv += ["-serial", f"tcp:127.0.0.1:{port},server=on,wait=on"]
    with running(argv, cwd=tmp_path):
        entry = BoardEntry(id="far", runner="none", serial=f"socket://127.0.0.1:{port}")
        session = None
        for _ in range(100):  # until QEMU listens
            try:
                with make_board(entry, 10).connect(tmp_path, stm32f405) as line:
                    session = Session(line, 2, 1, BOOT_DELAY_TICKS, [])
                    session.greet()
                    assert [session.ask(bytes([one, 7])).output for one in (1, 2)] == [b"\x08", b"\x09"]
                break
            except BoardError as error:
                if "cannot be opened" not in str(error):
                    raise
                time.sleep(0.1)
    assert session is not None and session.runs == 2


@pytest.mark.parametrize("runner", FLASHERS)
def test_a_command_line_has_no_gap_and_names_what_is_missing(runner: str) -> None:
    argv = command(BoardEntry(id="one", runner=runner, **FULL), Path("firmware.elf"))
    assert argv[0] == FLASHERS[runner].program and not any("{" in word for word in argv)
    assert any("firmware.elf" in word for word in argv)
    with pytest.raises(ConfigError, match="in the map"):
        command(BoardEntry(id="one", runner=runner), Path("firmware.elf"))


@pytest.mark.parametrize("trouble", ["fails", "hangs"])
def test_a_flasher_that_fails_or_hangs_is_the_boards_fault(trouble: str, stm32f405: McuTarget, tmp_path: Path) -> None:
    def run(argv: Sequence[str], *, timeout_s: float, cwd: Path) -> Completed:
        if trouble == "hangs":
            raise ToolchainError(f"pyocd should end within {timeout_s:g} s; killed")
        return subprocess.CompletedProcess(argv, 1, "", "0001:CRITICAL no probe with that id\n")

    entry = BoardEntry(id="one", runner="pyocd", serial="loop://", probe_id="1", part="stm32f405rg", flash_timeout_s=5)
    board = SerialBoard(entry=entry, run=run)
    with pytest.raises(BoardError, match=r"no probe|within 5 s"), board.connect(tmp_path / "f.elf", stm32f405):
        pass


def test_a_board_needs_a_port_and_a_known_runner(stm32f405: McuTarget, tmp_path: Path) -> None:
    assert isinstance(make_board(BoardEntry(id="a"), 1), QemuBoard)
    with pytest.raises(ConfigError, match="serial"), SerialBoard().connect(tmp_path, stm32f405):
        pass
    with (
        pytest.raises(BoardError, match="cannot be opened"),
        make_board(BoardEntry(id="a", runner="none", serial="/dev/no-such-port"), 1).connect(tmp_path, stm32f405),
    ):
        pass
    with pytest.raises(ConfigError, match="unknown runner"):
        command(BoardEntry(id="a", runner="jlink"), tmp_path)
