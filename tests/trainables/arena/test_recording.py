"""An attempt that is measured by an instrument beside the board: a recorded trace, in a process of its own."""

from pathlib import Path

import numpy as np
import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.problem.arena import ArenaTask
from automcu_ray.records.attempt import Figures, Observation
from backends.boards.pool import BoardEntry, Pool, emulated
from backends.instruments.recording import Recording
from backends.instruments.replay import save
from backends.instruments.trace import PowerTrace, ThermalTrace
from trainables.arena.recording import check_instruments, objective, over_ceilings
from trainables.arena.workload import Workload
from trainables.firmware import examine

RATE_HZ, VOLTS, IDLE, SPIKE = 10_000, 3.0, 0.010, 0.250


def asking(task: ArenaTask, **changes: object) -> ArenaTask:
    return ArenaTask.model_validate({**dict(task), **changes})


def with_ceiling(task: ArenaTask, **ceilings: float) -> ArenaTask:
    return asking(task, feasibility=task.feasibility.replace(**ceilings))


@pytest.fixture
def board(tmp_path: Path) -> BoardEntry:
    """An emulated board beside which two minutes of current replay: 10 mA, and a sample of 250 mA every 20 ms."""
    amperes = np.full(120 * RATE_HZ, IDLE)
    amperes[:: RATE_HZ // 50] = SPIKE
    save(PowerTrace(amperes, RATE_HZ, VOLTS), tmp_path / "trace.npz")
    return BoardEntry(id="desk", instrument="replay", instrument_options={"path": str(tmp_path / "trace.npz")})


def attempt(
    task: ArenaTask, workload: Workload, board: BoardEntry, seed: dict[str, str], folder: Path
) -> tuple[Observation, list[str]]:
    artifact = folder / "artifact"
    artifact.mkdir(parents=True)
    for name, text in seed.items():
        (artifact / name).write_text(text)
    pool = Pool([board], folder / "locks")
    found = examine(task, workload, pool, 1, artifact, folder / "work")
    return found, pool.faults(board.id)


@pytest.mark.thorough
@pytest.mark.usefixtures("qemu")
def test_energy_and_peak_of_an_attempt_are_those_between_its_first_input_and_its_last_answer(
    arena_task: ArenaTask, workload: Workload, board: BoardEntry, seed: dict[str, str], tmp_path: Path
) -> None:
    found, faults = attempt(asking(arena_task, objective="joules"), workload, board, seed, tmp_path / "one")
    assert found.valid and not faults, found
    figures = found.figures
    mean_amperes = IDLE + (SPIKE - IDLE) / (RATE_HZ // 50)
    assert figures.seconds is not None and figures.runs is not None and figures.joules is not None
    assert figures.peak_amperes == SPIKE and 0 < figures.seconds < found.seconds
    assert figures.runs * figures.joules == pytest.approx(VOLTS * mean_amperes * figures.seconds, rel=0.05)
    assert found.objective == figures.joules and found.checks[-1].name == "ceiling"

    safe = with_ceiling(asking(arena_task, objective="peak_amperes"), max_peak_amperes=0.2)
    found, faults = attempt(safe, workload, board, seed, tmp_path / "two")
    assert not found.valid and not faults and found.figures.peak_amperes == SPIKE
    assert found.checks[-1].detail == "the peak current in ampere is 0.25, the ceiling 0.2"


@pytest.mark.thorough
@pytest.mark.usefixtures("qemu")
def test_an_instrument_that_breaks_is_the_boards_fault_and_not_the_attempts(
    arena_task: ArenaTask, workload: Workload, board: BoardEntry, seed: dict[str, str], tmp_path: Path
) -> None:
    task = asking(arena_task, objective="joules")
    save(PowerTrace(np.full(10, IDLE), RATE_HZ, VOLTS), tmp_path / "trace.npz")  # a millisecond: too short
    found, faults = attempt(task, workload, board, seed, tmp_path / "one")
    assert not found.valid and "no board is left" in found.infrastructure
    assert len(faults) == 3 and "should cover the whole talk" in faults[0]


def test_a_board_without_the_instrument_that_the_task_needs_is_told_before_the_start(
    arena_task: ArenaTask, board: BoardEntry
) -> None:
    check_instruments(arena_task, emulated(1))
    check_instruments(asking(arena_task, objective="joules"), [board])
    with pytest.raises(ConfigError, match=r"needs the current measured, and board 'qemu-0'.*ppk2"):
        check_instruments(asking(arena_task, objective="peak_amperes"), emulated(1))
    with pytest.raises(ConfigError, match=r"temperature measured, and board 'desk'.*`instrument: thermometer`"):
        check_instruments(with_ceiling(arena_task, max_rise_kelvin=40), [board])
    with pytest.raises(ConfigError, match="volt"):
        check_instruments(arena_task, [BoardEntry(id="desk", instrument="ppk2", instrument_options={"volt": 3})])


def test_heat_is_weighted_and_a_figure_that_is_missing_passes_no_ceiling(arena_task: ArenaTask) -> None:
    trace = ThermalTrace(np.array([300.0, 312.5, 305.0]), 298.0, 9.0)
    figures = Recording(trace, first_s=100.0, last_s=104.0).figures(Figures(), inputs=6)
    assert (figures.peak_rise_kelvin, figures.seconds, figures.joules) == (14.5, 4.0, None)
    task = asking(arena_task, objective="heat", rise_weight=2, seconds_weight=0.5)
    assert objective(task, figures) == 31.0 and objective(task, Figures()) is None
    assert over_ceilings(with_ceiling(task, max_rise_kelvin=14.5), figures) == ""
    assert "14.5, the ceiling 14" in over_ceilings(with_ceiling(task, max_rise_kelvin=14), figures)
    assert "nan, the ceiling 14" in over_ceilings(with_ceiling(task, max_rise_kelvin=14), Figures())
