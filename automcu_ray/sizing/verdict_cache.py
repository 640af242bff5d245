"""Verdicts on disk, shared by runs: the same candidate is never compiled twice, and sizes are learned from."""

import contextlib
import hashlib
import json
import os
from pathlib import Path

from pydantic import Field, ValidationError

from automcu_ray.core.atomic_write import write_whole
from automcu_ray.core.feasibility import FeasibilityReport
from automcu_ray.core.models import FrozenModel, Int64
from automcu_ray.networks.graph import ConstructibilityError
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task

MAX_LESSONS = 1000
_TAIL_BYTES = 1 << 20  # of a file of lessons: more of them than are wanted
_MAX_BYTES = 2 * _TAIL_BYTES  # then a file of lessons is cut to its tail


class Lesson(FrozenModel):
    """What a toolchain measured of a spec; the limits that it was held against do not matter here."""

    spec: ArchitectureSpec
    ram_bytes: Int64 = Field(gt=0)
    flash_bytes: Int64 = Field(gt=0)
    instructions: Int64 | None = None


class VerdictCache:
    """Feasibility reports by (hash, shapes, target, limits, precision, backend version); one small file each.

    `counted_by` names what counts instructions, with its version; reports without them answer no one who wants them.

    Beside them lie lessons, one file for each input shape, core, serial port, precision and backend version: the sizes
    that specs turned out to have. Limits do not matter there; the input shape does, for what is learned from 32x32
    images is off by 6 % (one network in twenty) for 8x8 ones.
    """

    def __init__(self, folder: Path, task: Task, backend_version: str, counted_by: str = "") -> None:
        self.folder = folder
        limits = [task.target.model_dump(mode="json"), task.ram_limit_bytes, task.flash_limit_bytes, task.precision]
        if counted_by:
            limits += [counted_by, task.instructions_limit]
        if task.front_end is not None:  # it is linked too
            backend_version += f" {task.front_end.model_dump_json()}"
        self.scope = json.dumps([task.input_shape, task.num_classes, *limits, backend_version])
        self.space = task.space
        target = [task.target.core, task.target.uart.kind]
        about = [task.input_shape, task.num_classes, *target, task.precision, backend_version]
        self._lessons = folder / "lessons" / f"{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]}.jsonl"

    def get(self, candidate_hash: str) -> FeasibilityReport | None:
        """Return the report, marked as cached, or None. An unreadable file counts as none."""
        try:
            report = FeasibilityReport.model_validate_json(self._path(candidate_hash).read_bytes())
        except (OSError, ValidationError):
            return None
        return report.replace(cached=True, seconds_by_rung={})

    def put(self, candidate_hash: str, report: FeasibilityReport, spec: ArchitectureSpec | None = None) -> None:
        """Keep a report, and what it says about the size of a spec; another run may be writing the same one.

        A folder that cannot be written costs the next run a compilation, and this one nothing.
        """
        with contextlib.suppress(OSError):
            write_whole(self._path(candidate_hash), report.model_dump_json(exclude_defaults=True).encode())
            if spec is None or not report.least_ram_bytes or not report.flash_bytes:
                return
            sizes = {"ram_bytes": report.least_ram_bytes, "flash_bytes": report.flash_bytes}
            lesson = Lesson(spec=spec, instructions=report.instructions, **sizes)
            row = lesson.model_dump_json(exclude_defaults=True)
            self._lessons.parent.mkdir(parents=True, exist_ok=True)
            with self._lessons.open("ab", buffering=0) as file:
                file.write(f"\n{row}\n".encode())  # one write; the first line end sets it apart from a cut line
            if self._lessons.stat().st_size > _MAX_BYTES:
                write_whole(self._lessons, self._tail())  # what another run adds meanwhile is lost: no verdict is

    def lessons(self) -> list[Lesson]:
        """Return the latest sizes that were measured, oldest first; lines that are cut or damaged are passed over."""
        found = []
        with contextlib.suppress(OSError):
            for line in dict.fromkeys(self._tail().splitlines()):  # two runs may have measured the same spec
                with contextlib.suppress(ValidationError, ConstructibilityError):
                    lesson = Lesson.model_validate_json(line)
                    self.space.graph(lesson.spec)
                    found.append(lesson)
        return found[-MAX_LESSONS:]

    def _tail(self) -> bytes:
        with self._lessons.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read()

    def _path(self, candidate_hash: str) -> Path:
        key = hashlib.sha256(f"{candidate_hash}{self.scope}".encode()).hexdigest()
        return self.folder / key[:2] / f"{key[:32]}.json"


def verdict_folder() -> Path:
    """Return where verdicts are kept for all runs."""
    return cache_root() / "verdicts"


def cache_root() -> Path:
    """Return where all runs keep what would only be worked out again: $AUTOMCU_CACHE, or ~/.cache/automcu_ray."""
    return Path(os.environ.get("AUTOMCU_CACHE") or Path.home() / ".cache" / "automcu_ray")
