"""How busy leased boards are: attempts at the arena's qemu_speed on emulated boards, each attempt in a thread.

    python benchmarks/bench_boards.py --boards 2 --attempts 6

A board is busy while it is leased: an attempt is built, flashed, run and judged in that time.
"""

import argparse
import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from automcu_ray.run.run_arena import compose
from backends.boards.pool import BoardEntry, Pool, emulated
from trainables.arena.workload import prepare, write_seed
from trainables.firmware import examine


class TimedPool(Pool):
    """Notes when each board was leased, in seconds: (board, from, to)."""

    leases: list[tuple[str, float, float]]

    @contextlib.contextmanager
    def lease(self, timeout_s: float) -> Iterator[BoardEntry]:
        with super().lease(timeout_s) as board:
            since = time.monotonic()
            try:
                yield board
            finally:
                self.leases.append((board.id, since, time.monotonic()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--boards", type=int, default=2)
    parser.add_argument("--attempts", type=int, default=6)
    asked = parser.parse_args()
    task = compose("qemu_speed", ("hil",), "agent", "openai", 0, [], None).task
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        workload = prepare(task, folder / "workload")
        write_seed(task, workload, folder / "artifact", folder / "tools")
        pool = TimedPool(emulated(asked.boards), folder / "boards")
        pool.leases = []
        attempts = [
            threading.Thread(target=examine, args=(task, workload, pool, at, folder / "artifact", folder / f"{at}"))
            for at in range(asked.attempts)
        ]
        begun = time.monotonic()
        for one in attempts:
            one.start()
        for one in attempts:
            one.join()
        took = time.monotonic() - begun
    leases = sorted(pool.leases)
    shared = [board for (board, _, end), (other, start, _) in pairwise(leases) if board == other and start < end]
    print(f"{len(leases)} leases of {asked.boards} boards in {took:.1f} s; leased twice at once: {len(shared)}")
    for board in sorted({board for board, _, _ in leases}):
        busy = sum(end - start for one, start, end in leases if one == board)
        print(f"{board}: busy {busy / took:.1%}")


if __name__ == "__main__":
    main()
