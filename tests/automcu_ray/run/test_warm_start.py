"""Points of earlier runs: what is taken, how it is made to fit, and what a bad journal gets."""

from pathlib import Path
from typing import Any

import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.feasibility import FeasibilityReport, FlashUsage, RamUsage, Rung
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.cell import OPERATIONS, CellSpec
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from automcu_ray.records.journal import Repository
from automcu_ray.records.record import Record, TrainingSummary
from automcu_ray.run.warm_start import WARM_START, points_of_runs
from automcu_ray.sizing import footprint
from tests.searchers.conftest import make_task

CODE_BYTES, STACK_BYTES = 8_000, 1_000


@pytest.fixture
def task() -> Task:
    return make_task()


def spec(*widths: int) -> ArchitectureSpec:
    layers: list[dict[str, Any]] = [{"type": "conv", "out_channels": width} for width in widths]
    return ArchitectureSpec.model_validate({"backbone": layers})


def record(number: int, accuracy: float, ram: int, flash: int, **candidate: Any) -> Record:
    """A linked and trained candidate; its code and stack take what the constants say."""
    report = FeasibilityReport(
        feasible=True,
        backend="c_qemu",
        rung=Rung.LINK,
        ram_bytes=ram,
        flash_bytes=flash,
        ram=RamUsage(arena_bytes=ram, io_bytes=0, stack_bytes=STACK_BYTES, data_bss_bytes=0, total_bytes=ram),
        flash=FlashUsage(code_bytes=CODE_BYTES, weights_bytes=flash, runtime_bytes=0, total_bytes=flash),
    )
    return Record(
        candidate=Candidate(number=number, hash=f"h{number}", **candidate),
        status="ok",
        feasibility=report,
        training=TrainingSummary(val_accuracy=accuracy),
    )


def run(folder: Path, *records: Record) -> Path:
    folder.mkdir()
    repository = Repository(folder / "journal.jsonl")
    for one in records:
        repository.propose(one.candidate)
        repository.add(one)
    return folder


def points(task: Task, *runs: Path, count: int = 5) -> list[Candidate]:
    return points_of_runs(runs, task, footprint.check_bounds, count)


def widths(found: list[Candidate]) -> list[list[int | None]]:
    return [[layer.out_channels for layer in one.spec.backbone] for one in found if one.spec]  # type: ignore[union-attr]


def test_front_comes_before_the_rest_and_each_by_accuracy(task: Task, tmp_path: Path) -> None:
    journal = run(
        tmp_path / "a",
        record(1, 0.80, 900, 900, spec=spec(4)),
        record(2, 0.85, 950, 950, spec=spec(5)),  # beaten by 3 in everything
        record(3, 0.90, 900, 900, spec=spec(6)),
        record(4, 0.70, 500, 500, spec=spec(7)),
    )
    found = points(task, journal)
    assert widths(found) == [[6], [7], [5], [4]]
    assert {one.proposer for one in found} == {WARM_START}
    assert found[0].hash == task.space.candidate(spec(6)).hash  # worked out here, not taken from the file
    assert widths(points(task, journal, count=2)) == [[6], [7]]


def test_runs_take_turns_and_nothing_comes_twice(task: Task, tmp_path: Path) -> None:
    a = run(tmp_path / "a", record(1, 0.9, 1, 1, spec=spec(4)), record(2, 0.8, 1, 1, spec=spec(5)))
    b = run(tmp_path / "b", record(1, 0.6, 1, 1, spec=spec(4)), record(2, 0.5, 1, 1, spec=spec(6)))
    assert widths(points(task, a, b)) == [[4], [5], [6]]


def test_too_large_is_narrowed_evenly_until_code_and_stack_fit_too(tmp_path: Path) -> None:
    task = make_task(ram_kb=24, flash_kb=48)
    journal = run(tmp_path / "big", record(1, 0.9, 60_000, 400_000, spec=spec(64, 128)))
    ((first, second),) = widths(points(task, journal))
    assert first and second and second // first in (1, 2) and 1 < first < 64
    (point,) = points(task, journal)
    assert point.spec is not None
    least = footprint.footprint(task.space.graph(point.spec), "int8")
    assert least.flash_lower_bound_bytes + CODE_BYTES <= 48 * 1024
    assert least.ram_lower_bound_bytes + STACK_BYTES <= 24 * 1024
    wider = footprint.footprint(task.space.graph(spec(first + 2, second + 4)), "int8")
    assert (  # it is no narrower than it has to be: a step more of both would be too much
        wider.flash_lower_bound_bytes + CODE_BYTES > 48 * 1024 or wider.ram_lower_bound_bytes + STACK_BYTES > 24 * 1024
    )


def test_classes_of_another_task_are_left_behind(task: Task, tmp_path: Path) -> None:
    other = ArchitectureSpec.model_validate(
        {"backbone": [{"type": "conv", "out_channels": 4}], "head": {"num_classes": 100}}
    )
    (found,) = points(task, run(tmp_path / "a", record(1, 0.9, 1, 1, spec=other)))
    assert found.hash == task.space.candidate(spec(4)).hash


def test_cells_go_to_tasks_that_want_cells(task: Task, tmp_path: Path) -> None:
    cell = CellSpec(operations=(OPERATIONS[1],) * 6)
    journal = run(tmp_path / "a", record(1, 0.9, 1, 1, cell=cell))
    cells = task.replace(form="cell")
    assert [one.cell for one in points(cells, journal)] == [cell]
    with pytest.raises(ConfigError, match="no trained network that could be built for this task"):
        points(task, journal)


def test_what_was_refused_or_diverged_is_no_point(task: Task, tmp_path: Path) -> None:
    diverged = record(1, float("nan"), 1, 1, spec=spec(4))
    refused = record(2, 0.9, 1, 1, spec=spec(4)).replace(status="infeasible")
    with pytest.raises(ConfigError, match="no trained network"):
        points(task, run(tmp_path / "a", diverged, refused))


BAD = {
    "no run": (None, "no run in"),
    "not JSON": ("?\n", "line 1 is not a journal event"),
    "a list": ("[1]\n", "line 1 is not a journal event"),
    "an impossible record": ('{"event":"record","record":{"candidate":{},"status":"great"}}\n', "line 1 is not"),
    "too deep": ("[" * 100_000 + "\n", "journal"),
    "too wide": (
        '{"event":"record","record":{"candidate":{"spec":{"backbone":[{"type":"conv","out_channels":99999}]}},'
        '"status":"ok"}}\n',
        "line 1 is not",
    ),
    "empty": ("", "no trained network"),
    "bytes": ("\x00\x1b[31m\n", "line 1 is not"),
}


@pytest.mark.parametrize(("text", "words"), BAD.values(), ids=BAD.keys())
def test_a_bad_journal_is_one_line(task: Task, tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "journal.jsonl").write_text(text)
    with pytest.raises(ConfigError) as caught:
        points(task, tmp_path)
    message = str(caught.value)
    assert words in message and "\n" not in message and "\x1b" not in message and len(message) < 400


def test_a_giant_file_is_not_read(task: Task, tmp_path: Path) -> None:
    with (tmp_path / "journal.jsonl").open("wb") as file:
        file.truncate(1 << 29)  # a hole: no disk is used
    with pytest.raises(ConfigError, match="more than 256 MB"):
        points(task, tmp_path)
