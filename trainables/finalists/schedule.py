"""All finalists of a run, in parallel, as Ray tasks, and which of them teaches the others."""

import dataclasses
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

from automcu_ray.networks.candidate import Candidate
from automcu_ray.records.record import Finalist
from automcu_ray.runtime.cluster import ray
from trainables.finalists.distillation import Teacher
from trainables.finalists.finalist import EPOCH, FinalistPipeline, run_finalist, train_float
from trainables.ray_map import in_parallel

Result = TypeVar("Result")
Step = Callable[[Candidate, FinalistPipeline], Result]


def run_finalists(
    candidates: Sequence[Candidate],
    pipeline: FinalistPipeline,
    *,
    cpus: float,
    gpus: float,
    where: Any = "DEFAULT",
    on_result: Callable[[Finalist], None],
    on_wait: Callable[[str], None],
    on_teacher: Callable[[Candidate], None],
) -> None:
    """Run every finalist to its end; `on_result` gets each one as it finishes, `on_wait` a line for the screen.

    Where the protocol distils and the pipeline has no teacher yet, all that will be rounded are trained in float first;
    `on_teacher` gets the one of them that validates best.
    A worker that dies is tried again twice; then the finalist's `reason` says so. So it does of an error that is ours:
    it must not cost the hours of the others. An interrupt cancels them all. `where` is Ray's scheduling strategy.
    """
    epochs = {one.number: pipeline.protocol.epochs + pipeline.qat_epochs(one) for one in candidates}
    before = {one.number: _epoch(pipeline, one) for one in candidates}  # of a run that was interrupted
    started_s = time.monotonic()

    def wait(left: Collection[Candidate]) -> None:
        done = {**epochs, **{one.number: _epoch(pipeline, one) for one in left}}
        lines = [f"#{one.number} epoch {done[one.number]}/{epochs[one.number]}" for one in left]
        share = _share(sum(done.values()) - sum(before.values()), sum(epochs.values()) - sum(before.values()))
        if share and left:
            lines.append(f"about {(time.monotonic() - started_s) * (1 - share) / share:.0f} s of training left")
        on_wait(", ".join(lines))

    def each(step: Step[Result], some: Sequence[Candidate]) -> Iterator[tuple[Candidate, Result | str]]:
        breaks = ray.exceptions.RayError
        return in_parallel(step, some, pipeline, cpus=cpus, gpus=gpus, where=where, breaks=breaks, on_wait=wait)

    if pipeline.protocol.distill and pipeline.teacher is None:
        students = [candidate for candidate in candidates if pipeline.qat_epochs(candidate)]
        accuracy = {student.number: found for student, found in each(train_float, students) if isinstance(found, float)}
        if accuracy:
            teacher = max(candidates, key=lambda candidate: accuracy.get(candidate.number, -1.0))
            pipeline = dataclasses.replace(pipeline, teacher=Teacher.finalist(teacher, pipeline.folder))
            on_teacher(teacher)
    for candidate, found in each(run_finalist, candidates):
        if isinstance(found, str):
            found = Finalist(number=candidate.number, hash=candidate.hash, reason=found)
        on_result(found)


def _epoch(pipeline: FinalistPipeline, candidate: Candidate) -> int:
    """Return the last epoch that a finalist has left in its folder; 0 before the first."""
    path = pipeline.folder / candidate.hash / EPOCH
    found = path.read_text() if path.exists() else ""
    return int(found) if found.isdecimal() else 0


def _share(done: int, of: int) -> float:
    """Return which part of the epochs is done; 0 where nothing can be foreseen from that."""
    return done / of if 0 < done <= of else 0.0
