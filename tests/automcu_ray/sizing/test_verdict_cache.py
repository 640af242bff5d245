"""Verdicts and lessons on disk: shared by runs, and tolerant of what others left there."""

import concurrent.futures
from pathlib import Path

import pytest

from automcu_ray.core.feasibility import FeasibilityReport, Rung
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.target import Uart
from automcu_ray.problem.task import Task
from automcu_ray.sizing.verdict_cache import MAX_LESSONS, VerdictCache

SIZED = FeasibilityReport(feasible=True, backend="fake", rung=Rung.LINK, ram_bytes=3_000, flash_bytes=20_000)
UNSIZED = FeasibilityReport(feasible=False, backend="fake", rung=Rung.CONVERT)


def spec(width: int) -> ArchitectureSpec:
    return ArchitectureSpec.model_validate({"backbone": [{"type": "conv", "out_channels": width}]})


def the_file(folder: Path) -> Path:
    (path,) = (folder / "lessons").iterdir()
    return path


def test_measured_sizes_are_lessons_for_every_limit(digits_task: Task, tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path, digits_task, "fake 1")
    assert cache.lessons() == []
    cache.put("a", SIZED, spec(8))
    cache.put("b", UNSIZED, spec(12))  # nothing was measured
    cache.put("c", SIZED)  # generated code has no spec
    tight = digits_task.replace(constraints=digits_task.constraints.replace(ram_kb=1.0))
    (lesson,) = VerdictCache(tmp_path, tight, "fake 1").lessons()
    assert (lesson.spec, lesson.ram_bytes, lesson.flash_bytes) == (spec(8), 3_000, 20_000)


@pytest.mark.parametrize(
    "other", [{"precision": "float32"}, {"input_shape": (3, 8, 8)}, {"num_classes": 2}, {"backend": "fake 2"}]
)
def test_another_scope_learns_nothing(digits_task: Task, tmp_path: Path, other: dict[str, object]) -> None:
    VerdictCache(tmp_path, digits_task, "fake 1").put("a", SIZED, spec(8))
    changed = digits_task.replace(**{key: value for key, value in other.items() if key != "backend"})
    assert VerdictCache(tmp_path, changed, str(other.get("backend", "fake 1"))).lessons() == []


def test_damaged_lines_cost_no_other_lesson(digits_task: Task, tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path, digits_task, "fake 1")
    cache.put("a", SIZED, spec(8))
    with the_file(tmp_path).open("ab") as file:
        file.write(b'\xff\xfe{}\n{"spec": 3}\n{"spec":{"backbone":[{"type":"conv","out_chan')  # a kill, in mid-line
    cache.put("b", SIZED, spec(16))
    cache.put("b", SIZED, spec(16))  # another run measured the same
    too_large = {"type": "conv", "out_channels": 4, "kernel_size": 3, "padding": 0}
    cache.put("c", SIZED, ArchitectureSpec.model_validate({"backbone": [too_large] * 9}))  # 8x8 images end before that
    assert [lesson.spec for lesson in cache.lessons()] == [spec(8), spec(16)]


def test_only_the_latest_lessons_are_read(digits_task: Task, tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path, digits_task, "fake 1")
    cache.put("a", SIZED, spec(1))
    row = the_file(tmp_path).read_text()
    rows = [row.replace("3000", str(5_000 + number)) for number in range(MAX_LESSONS + 50)]
    the_file(tmp_path).write_text(row + "".join(rows))
    found = cache.lessons()
    assert len(found) == MAX_LESSONS and found[-1].ram_bytes == 5_000 + MAX_LESSONS + 49


def test_runs_that_write_at_once_lose_nothing(digits_task: Task, tmp_path: Path) -> None:
    caches = [VerdictCache(tmp_path, digits_task, "fake 1") for _ in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda width: caches[width % 4].put(str(width), SIZED, spec(width)), range(1, 101)))
    assert sorted(len(lesson.spec.compact()["backbone"]) for lesson in caches[0].lessons()) == [1] * 100
    assert {lesson.spec for lesson in caches[0].lessons()} == {spec(width) for width in range(1, 101)}


def test_another_serial_port_learns_nothing(digits_task: Task, tmp_path: Path) -> None:
    VerdictCache(tmp_path, digits_task, "fake 1").put("a", SIZED, spec(8))
    without = digits_task.replace(target=digits_task.target.replace(uart=Uart()))
    assert digits_task.target.uart.kind != "none" and VerdictCache(tmp_path, without, "fake 1").lessons() == []


def test_a_folder_that_cannot_be_written_ends_no_run(digits_task: Task, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = VerdictCache(tmp_path / "file", digits_task, "fake 1")
    cache.put("a", SIZED, spec(8))
    assert cache.get("a") is None and cache.lessons() == []


def test_a_file_of_lessons_does_not_grow_for_ever(digits_task: Task, tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path, digits_task, "fake 1")
    cache.put("a", SIZED, spec(1))
    row = the_file(tmp_path).read_bytes()
    the_file(tmp_path).write_bytes(row * ((2 << 20) // len(row) + 1))
    cache.put("b", SIZED, spec(2))
    assert the_file(tmp_path).stat().st_size <= 1 << 20
    assert [lesson.spec for lesson in cache.lessons()] == [spec(1), spec(2)]


@pytest.mark.parametrize(
    "content", [b"\xff{}", b"[" * 100_000, b"{}", b""], ids=["no UTF-8", "brackets", "{}", "empty"]
)
def test_a_damaged_verdict_counts_as_none(digits_task: Task, tmp_path: Path, content: bytes) -> None:
    cache = VerdictCache(tmp_path, digits_task, "fake 1")
    cache.put("a", SIZED)
    cache._path("a").write_bytes(content)
    assert cache.get("a") is None
