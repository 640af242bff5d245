"""All finalists of a run, in parallel, as Ray tasks, and which of them teaches the others."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from automcu_ray.cluster import ray
from automcu_ray.record import Candidate, Finalist
from trainables.finalist import EPOCH, FinalistJob, run_finalist, train_float
from trainables.parallel import in_parallel
from trainables.teacher import Teacher

Result = TypeVar("Result")
Step = Callable[[Candidate, FinalistJob], Result]


def run_finalists(
    candidates: Sequence[Candidate],
    job: FinalistJob,
    *,
    cpus: float,
    gpus: float,
    on_result: Callable[[Finalist], None],
    on_wait: Callable[[str], None],
    on_teacher: Callable[[Candidate], None],
) -> None:
    """Run every finalist to its end; `on_result` gets each one as it finishes, `on_wait` a line for the screen.

    Where the protocol distils and the job has no teacher yet, all that will be rounded are trained in float first;
    `on_teacher` gets the one of them that validates best.
    A worker that dies is tried again twice; then the finalist's `reason` says so. So it does of an error that is ours:
    it must not cost the hours of the others. An interrupt cancels them all.
    """

    def wait(left: Collection[Candidate]) -> None:
        on_wait(", ".join(_describe(candidate, job) for candidate in left))

    def each(step: Step[Result], some: Sequence[Candidate]) -> Iterator[tuple[Candidate, Result | str]]:
        return in_parallel(step, some, job, cpus=cpus, gpus=gpus, breaks=ray.exceptions.RayError, on_wait=wait)

    if job.protocol.distill and job.teacher is None:
        students = [candidate for candidate in candidates if job.qat_epochs(candidate)]
        accuracy = {student.number: found for student, found in each(train_float, students) if isinstance(found, float)}
        if accuracy:
            teacher = max(candidates, key=lambda candidate: accuracy.get(candidate.number, -1.0))
            job = dataclasses.replace(job, teacher=Teacher.finalist(teacher, job.folder))
            on_teacher(teacher)
    for candidate, found in each(run_finalist, candidates):
        if isinstance(found, str):
            found = Finalist(number=candidate.number, hash=candidate.hash, reason=found)
        on_result(found)


def _describe(candidate: Candidate, job: FinalistJob) -> str:
    epoch = Path(job.folder / candidate.hash / EPOCH)
    done = epoch.read_text() if epoch.exists() else "0"
    return f"#{candidate.number} epoch {done}/{job.protocol.epochs + job.qat_epochs(candidate)}"
