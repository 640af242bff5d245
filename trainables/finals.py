"""All finalists of a run, in parallel, as Ray tasks."""

from collections.abc import Callable, Sequence
from pathlib import Path

import ray

from automcu_ray.record import Candidate, Finalist
from trainables.finalist import EPOCH, FinalistJob, run_finalist

POLL_S = 0.5


def run_finalists(
    candidates: Sequence[Candidate],
    job: FinalistJob,
    *,
    cpus: float,
    gpus: float,
    on_result: Callable[[Finalist], None],
    on_wait: Callable[[str], None],
) -> None:
    """Run every finalist to its end; `on_result` gets each one as it finishes, `on_wait` a line for the screen.

    A worker that dies is tried again twice; then the finalist's `reason` says so. An interrupt cancels them all.
    """
    shared = ray.put(job)
    remote = ray.remote(run_finalist).options(num_cpus=cpus, num_gpus=gpus, max_retries=2)
    running = {remote.remote(candidate, shared): candidate for candidate in candidates}
    try:
        while running:
            finished, _ = ray.wait(list(running), timeout=POLL_S)
            for ref in finished:
                candidate = running.pop(ref)
                on_result(_result(ref, candidate))
            on_wait(", ".join(_describe(candidate, job) for candidate in running.values()))
    finally:
        for ref in running:
            ray.cancel(ref, force=True)


def _result(ref: object, candidate: Candidate) -> Finalist:
    try:
        result: Finalist = ray.get(ref)
    except ray.exceptions.RayError as error:
        reason = f"the worker broke: {str(error).strip().splitlines()[-1][:300]}"
        return Finalist(number=candidate.number, hash=candidate.hash, reason=reason)
    return result


def _describe(candidate: Candidate, job: FinalistJob) -> str:
    epoch = Path(job.folder / candidate.hash / EPOCH)
    done = epoch.read_text() if epoch.exists() else "0"
    return f"#{candidate.number} epoch {done}/{job.protocol.epochs + job.qat_epochs(candidate)}"
