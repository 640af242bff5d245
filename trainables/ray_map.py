"""One function for many items, side by side, as Ray tasks: results as they come, and a worker that dies tried again."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

from automcu_ray.runtime.cluster import ray

POLL_S = 0.5
RETRIES = 2  # of an item whose worker died
WORKER_DIED = (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError)

Item = TypeVar("Item")
Shared = TypeVar("Shared")
Result = TypeVar("Result")


def in_parallel(
    function: Callable[[Item, Shared], Result],
    items: Sequence[Item],
    shared: Shared,
    *,
    cpus: float,
    gpus: float,
    where: Any = "DEFAULT",
    breaks: type[Exception] | tuple[type[Exception], ...] = WORKER_DIED,
    on_wait: Callable[[Collection[Item]], None] | None = None,
) -> Iterator[tuple[Item, Result | str]]:
    """Yield each item with its result, or with the reason (a string) why its worker broke, as they come.

    Tasks that are left when nobody asks for more, after an interrupt too, are cancelled.

    `function` is called with an item and `shared`, which each worker gets once; an item takes `cpus` and `gpus`.
    `where` is Ray's scheduling strategy.
    Of Ray's errors, `breaks` cost their item alone: any other is raised. One of `function` itself is a RayTaskError.
    `on_wait` gets the items that are left, twice a second and after every result.
    """
    put = ray.put(shared)
    # Given with the function, not as options: only so does Ray end the worker of each GPU task, and free its memory.
    remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES, scheduling_strategy=where)(function)
    running: dict[ray.ObjectRef[Result], Item] = {}
    try:
        for item in items:
            running[remote.remote(item, put)] = item
        while running:
            finished, _ = ray.wait(list(running), timeout=POLL_S)
            for ref in finished:
                item = running.pop(ref)  # before its error is raised: to cancel what has ended can abort this process
                found: Result | str
                try:
                    found = ray.get(ref)
                except breaks as error:
                    found = f"the worker broke: {str(error).strip().splitlines()[-1][:300]}"
                yield item, found
            if on_wait is not None:
                on_wait(running.values())
    finally:
        for ref in running:
            ray.cancel(ref, force=True)
