"""All finalists of a run, in parallel, as Ray tasks."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from automcu_ray.cluster import ray
from automcu_ray.record import Candidate, Finalist
from trainables.finalist import EPOCH, FinalistJob, run_finalist
from trainables.parallel import in_parallel


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

    A worker that dies is tried again twice; then the finalist's `reason` says so. So it does of an error that is ours:
    it must not cost the hours of the others. An interrupt cancels them all.
    """

    def wait(left: Collection[Candidate]) -> None:
        on_wait(", ".join(_describe(candidate, job) for candidate in left))

    broken = ray.exceptions.RayError
    finished = in_parallel(run_finalist, candidates, job, cpus=cpus, gpus=gpus, breaks=broken, on_wait=wait)
    for candidate, found in finished:
        if isinstance(found, str):
            found = Finalist(number=candidate.number, hash=candidate.hash, reason=found)
        on_result(found)


def _describe(candidate: Candidate, job: FinalistJob) -> str:
    epoch = Path(job.folder / candidate.hash / EPOCH)
    done = epoch.read_text() if epoch.exists() else "0"
    return f"#{candidate.number} epoch {done}/{job.protocol.epochs + job.qat_epochs(candidate)}"
