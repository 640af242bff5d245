"""STM32N6: ST Edge AI Core turns a network into firmware for the NPU, loads it (n6_loader) and runs it on the board.

Not tried: none of ST's tools was at hand, nor a board. Command lines are those of ST's getting-started page for the
Neural-ART NPU (stedgeai-dc.st.com/assets/embedded-docs/stneuralart_getting_started.html) and of public scripts that
follow it; the file with the board's answers is that of ST's page on evaluation metrics.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from automcu_ray.core.errors import BoardError, ConfigError, ToolchainError, ToolMissingError
from automcu_ray.deploy.export import DeployedNetwork
from backends.arena.build import Built
from backends.arena.rigs import ArenaRig, programs_lacking, sdk_of
from backends.boards.pool import BoardEntry
from backends.c_qemu.gnu_tools import GCC
from backends.programs import Runner, run_program
from backends.stedgeai.backend import OUTPUT, WHERE, StEdgeAiBackend, find_tool

CORE = f"ST Edge AI Core ({WHERE}) where STEDGEAI_CORE_DIR or rig.sdk points"
BOARD = "N6-Nucleo-USART1"
LOAD_TIMEOUT_S = 600.0
LOADER, LOADER_PYTHON = Path("scripts", "N6_scripts", "n6_loader.py"), Path("Utilities", "linux", "python")
NEURAL_ART = "default"  # ST's own profile of the NPU's compiler
ANSWERS, INPUTS = "*val_io.npz", "inputs.npy"


class Stm32N6Rig(ArenaRig):
    """A network on the NPU: its artifact is no C, there is nothing to `build`, and ST's firmware talks to ST's tool."""

    name = "stm32n6"
    delay_ticks = 0
    talks = False

    def lacking(self) -> list[str]:
        absent = programs_lacking(GCC, "make", "STM32_Programmer_CLI")
        found = sdk_of(self.task.rig.sdk, "STEDGEAI_CORE_DIR")
        return absent if found and find_tool() and (found / LOADER).is_file() else [*absent, CORE]

    def build(self, artifact: Path, workdir: Path, input_bytes: int, output_bytes: int) -> Built:
        raise ConfigError("rig stm32n6 takes a network, not C.")

    def generate(self, deployed: DeployedNetwork, workdir: Path, run: Runner = run_program) -> StEdgeAiBackend:
        """Let ST's tool judge a network and write its C into the new folder `workdir`; return the tool.

        Raises:
            ToolchainError: it does not fit, or the tool refuses it.
        """
        workdir.mkdir(parents=True)
        tool = StEdgeAiBackend(neural_art=NEURAL_ART, run=run)
        report = tool.build(deployed, self.task.target, self.task.constraints, workdir).report
        if not report.feasible:
            raise ToolchainError("; ".join(violation.message for violation in report.violations))
        return tool

    def answers(
        self,
        tool: StEdgeAiBackend,
        entry: BoardEntry,
        deployed: DeployedNetwork,
        encoded: npt.NDArray[Any],
        workdir: Path,
        run: Runner = run_program,
    ) -> npt.NDArray[Any]:
        """Load what `generate` left onto a board, and return the outputs (N, classes) that it gives to encoded inputs.

        Raises:
            BoardError: the loader failed, or the board's answers are not there.
            ToolMissingError: ST's loader is not there.
        """
        core = sdk_of(self.task.rig.sdk, "STEDGEAI_CORE_DIR")
        if core is None:
            raise ToolMissingError(f"rig {self.name!r} needs {'; '.join(self.lacking())}.")
        if not entry.serial:
            raise ConfigError(f"board {entry.id!r}: ST's tool needs its serial device in the map, and baud: 921600.")
        loader = [str(core / LOADER_PYTHON), str(core / LOADER), "--build-config", self.task.rig.board or BOARD]
        try:
            loaded = run(loader, timeout_s=LOAD_TIMEOUT_S, cwd=workdir)
            if loaded.returncode != 0:
                said = (loaded.stderr.strip() or loaded.stdout.strip() or "it said nothing").splitlines()[-1][:200]
                raise BoardError(f"board {entry.id!r}: n6_loader failed ({loaded.returncode}): {said}")
            np.save(workdir / INPUTS, encoded)
            tool.validate_on_target(deployed, self.task.target, workdir, f"serial:{entry.serial}:{entry.baud}", INPUTS)
            return read_answers(workdir / OUTPUT, len(encoded), deployed.num_classes)
        except ToolchainError as error:
            raise BoardError(f"board {entry.id!r}: {error}") from error


def read_answers(folder: Path, inputs: int, classes: int) -> npt.NDArray[Any]:
    """Return what the C network on the board answered, as ST's tool saves it: the array c_outputs_1 of an .npz.

    Raises:
        ToolchainError: no such file or array, or one of another shape.
    """
    found = sorted(path for path in folder.glob(ANSWERS) if path.is_file() and not path.is_symlink())
    try:
        with np.load(found[0], allow_pickle=False) as arrays:
            outputs = np.asarray(arrays["c_outputs_1"])
    except (IndexError, OSError, ValueError, KeyError) as error:
        raise ToolchainError(f"validate should leave {ANSWERS} with c_outputs_1 in {folder.name}: {error}.") from error
    if outputs.size != inputs * classes:
        raise ToolchainError(f"the board should answer {inputs} times {classes} values, found {outputs.shape}.")
    return outputs.reshape(inputs, classes)
