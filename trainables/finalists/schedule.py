"""All finalists of a run, in parallel, as Ray tasks, and which of them teaches the others."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

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
    on_result: Callable[[Finalist], None],
    on_wait: Callable[[str], None],
    on_teacher: Callable[[Candidate], None],
) -> None:
    """Run every finalist to its end; `on_result` gets each one as it finishes, `on_wait` a line for the screen.

    Where the protocol distils and the pipeline has no teacher yet, all that will be rounded are trained in float first;
    `on_teacher` gets the one of them that validates best.
    A worker that dies is tried again twice; then the finalist's `reason` says so. So it does of an error that is ours:
    it must not cost the hours of the others. An interrupt cancels them all.
    """

    def wait(left: Collection[Candidate]) -> None:
        lines = []
        for candidate in left:
            epoch = pipeline.folder / candidate.hash / EPOCH
            done = epoch.read_text() if epoch.exists() else "0"
            epochs = pipeline.protocol.epochs + pipeline.qat_epochs(candidate)
            lines.append(f"#{candidate.number} epoch {done}/{epochs}")
        on_wait(", ".join(lines))

    def each(step: Step[Result], some: Sequence[Candidate]) -> Iterator[tuple[Candidate, Result | str]]:
        return in_parallel(step, some, pipeline, cpus=cpus, gpus=gpus, breaks=ray.exceptions.RayError, on_wait=wait)

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
