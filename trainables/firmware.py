"""The firmware trial: one artifact, built, flashed, run and judged on a leased board; one Ray trial an attempt."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray import tune

from automcu_ray.core.errors import BoardError
from automcu_ray.problem.arena import ArenaTask
from automcu_ray.records.attempt import Check, Observation
from backends.arena.probe import trouble_of
from backends.boards import make_board, power
from backends.boards.base import Board
from backends.boards.pool import BoardEntry, Pool
from backends.instruments.base import InstrumentError
from backends.instruments.recording import recorder
from trainables.arena.checks import Examination
from trainables.arena.workload import Workload

TRIES = 8  # on boards that may be broken
SILENT_TWICE = 2  # on boards that work: then it is the artifact
LEASE_S = 3600


class FirmwareTrainable(tune.Trainable):  # type: ignore[misc]
    """Puts the artifact in config["artifact"] through the checks; the one result has its observation, as JSON.

    "objective" is J, and "score" what Tune maximises. Arguments beside the config come through `tune.with_parameters`.
    """

    def setup(
        self, config: dict[str, Any], task: ArenaTask, workload: Workload, boards: tuple[BoardEntry, ...], locks: Path
    ) -> None:
        self.task, self.workload, self.pool = task, workload, Pool(boards, locks)
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next artifact in this worker."""
        self.config = new_config
        return True

    def step(self) -> dict[str, Any]:
        number, artifact, workdir = self.config["attempt"], Path(self.config["artifact"]), Path(self.config["workdir"])
        found = examine(self.task, self.workload, self.pool, number, artifact, workdir)
        score = -math.inf if found.objective is None else -found.objective
        return {
            "observation": found.model_dump_json(),
            "objective": found.objective,
            "score": score,
            "done": True,
        }


def examine(
    task: ArenaTask,
    workload: Workload,
    pool: Pool,
    number: int,
    artifact: Path,
    workdir: Path,
    make: Callable[[BoardEntry, float], Board] = make_board,
) -> Observation:
    """Return the observation of an artifact; boards that break on the way are none of its business.

    Where a talk with the board breaks off, the probe decides: a board that fails it is noted and another one tried; on
    boards that pass it, the artifact is asked twice before it is to blame. Before a board goes to quarantine its power
    is cycled, where its hub can do that, and the probe asked once more. A fault of the instrument beside a board is one
    of the board's.
    """
    silent, trouble = 0, ""
    for tried in range(TRIES):
        try:
            with pool.lease(LEASE_S) as entry:
                board = make(entry, task.feasibility.run_seconds)
                record = recorder(entry, pool.folder / "instruments")
                examination = Examination(task, workload, board, record, entry)
                try:
                    found = examination.observe(number, artifact, workdir / f"build_{tried}")
                    pool.works(entry.id)
                    return found
                except InstrumentError as error:
                    pool.failed(entry.id, str(error))
                except (BoardError, OSError) as error:
                    trouble = _trouble(examination, error)
                    if trouble and pool.last_chance(entry.id):
                        trouble = power.cycle(entry) or _trouble(examination, error)
                    if trouble:
                        pool.failed(entry.id, f"{error} ({trouble})")
                        continue
                    silent += 1
                    if silent == SILENT_TWICE:
                        return blamed(examination, number, str(error))
        except BoardError as error:  # no board is left
            trouble = str(error)
            break
    return Observation(attempt=number, infrastructure=trouble or "the boards broke again and again")


def _trouble(examination: Examination, error: Exception) -> str:
    """Return what is wrong with a board; where its firmware is the vendor's, which no probe replaces, any error is."""
    if not examination.rig.talks:
        return str(error)
    return trouble_of(examination.board, examination.task.target, examination.rig)


def blamed(examination: Examination, number: int, error: str) -> Observation:
    """Return the observation of an artifact whose talk broke off on boards that work."""
    run = Check(name="run", passed=False, detail=error)
    return Observation(
        attempt=number,
        checks=(*examination.checks, run),
        figures=examination.figures,
        sha256=examination.built.sha256 if examination.built else "",
        input_seed=examination.input_seed,
        serial=examination.said,
    )
