"""The public runner of MLPerf Tiny, as it is, in a process of its own against the emulated board."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from automcu_ray.core.errors import ConfigError, ToolchainError
from automcu_ray.problem.target import McuTarget
from backends.boards.base import Board
from backends.mlperf.pty_port import pty_of
from backends.programs import Runner, run_program

Mode = Literal["accuracy", "performance"]
PORTS = Path(__file__).parent / "ports"
TIMEOUT_S = 3600.0
NEEDS = "numpy, PyYAML, pyserial, scikit-learn and matplotlib"


@dataclass(frozen=True)
class Answer:
    """One inference window as the runner wrote it down: the file, its label, probabilities, and the window's time."""

    file: str
    label: int
    scores: tuple[float, ...]
    elapsed_us: int
    throughput: float | None

    @property
    def right(self) -> bool:
        """Whether the largest probability is the label's; the first of equals wins, as in the runner."""
        return max(range(len(self.scores)), key=self.scores.__getitem__) == self.label


@dataclass(frozen=True)
class Session:
    """What the runner printed as its result, and every window behind it."""

    said: tuple[str, ...]
    answers: tuple[Answer, ...]


def run_runner(
    runner: Path,
    kit: Path,
    mode: Mode,
    board: Board,
    elf: Path,
    target: McuTarget,
    workdir: Path,
    run: Runner = run_program,
) -> Session:
    """Run `main.py` of the folder `runner` in a mode; `kit` is the folder of `write_scripts`.

    Raises:
        ConfigError: there is no runner.
        BoardError: the firmware does not start.
        ToolchainError: the runner failed; its last line says why.
    """
    if not (runner / "main.py").is_file():
        raise ConfigError(
            f"{runner} should be the folder benchmark/runner of https://github.com/mlcommons/tiny, found no main.py."
        )
    workdir.mkdir(parents=True)
    script, data = kit / f"tests_{mode}.yaml", kit / "datasets"
    files = ["-d", str((kit / "devices.yaml").resolve()), "-t", str(script.resolve()), "-s", str(data.resolve())]
    with pty_of(board, elf, target) as port:
        settings = [f"PYTHONPATH={PORTS}", f"AUTOMCU_MLPERF_PORT={port}", "MPLBACKEND=Agg", "PYTHONDONTWRITEBYTECODE=1"]
        argv = ["env", *settings, sys.executable, str((runner / "main.py").resolve()), *files, "-m", mode[0]]
        done = run(argv, timeout_s=TIMEOUT_S, cwd=workdir)
    found = sorted(workdir.glob("sessions/*/results.json"))
    if done.returncode or not found:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()] or ["nothing"]
        raise ToolchainError(f"MLPerf's runner failed: {said[-1][:200]}. It needs {NEEDS}. Log: {workdir}.")
    lines = (found[-1].parent / "results.txt").read_text(errors="replace").splitlines()
    return Session(tuple(line[:200] for line in lines), tuple(_answers(found[-1])))


def _answers(path: Path) -> list[Answer]:
    try:
        windows = [one for one in json.loads(path.read_text()) if "infer" in one]
        return [
            Answer(
                str(one["file"]),
                int(one["class"]),
                tuple(float(score) for score in one["infer"]["results"]),
                int(one["infer"]["elapsed_time"]),
                one["infer"].get("throughput"),
            )
            for one in windows
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolchainError(f"{path} should hold the runner's results: {type(error).__name__}: {error}.") from error
