"""Print how small the planned arena is on random specs: against its lower bound, greedy-by-size and no planning at all.

    python benchmarks/bench_planner.py             # 500 specs at int8, 100 at float32, about ten minutes
    python benchmarks/bench_planner.py 50 10

Every spec goes the real way: torch, ONNX, generated C. The analytic rung's bound is compared with that C as well, and
timed on specs it has not seen. All shares are of the specs; sizes are medians relative to the arena's lower bound.
"""

import dataclasses
import gc
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import NamedTuple
from unittest import mock

import numpy as np
import torch

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import deploy
from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.graph import Graph
from automcu_ray.networks.lowering import lower
from automcu_ray.networks.search_space import Space
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.precision import Precision
from automcu_ray.sizing.footprint import check, footprint
from backends.c_qemu import planner, schedule
from backends.c_qemu.cgen import generate

SPACE = Space(input_shape=(3, 32, 32), num_classes=10)
MAX_MACS = 20_000_000  # calibration runs the network; some random specs would take minutes


class Row(NamedTuple):
    """One spec, in bytes; `plan_ms` is CPU time, `foreseen` the analytic bound of the arena."""

    arena: int
    bound: int
    foreseen: int
    greedy: int
    emx: int
    constants: int
    foreseen_flash: int
    plan_ms: float


def graphs(rng: Random) -> Iterator[Graph]:
    """Yield the graphs of random specs, without those that only a larger machine would calibrate in time."""
    while True:
        spec = SPACE.sample(rng).spec
        assert spec is not None, "the space has specs only"
        graph = SPACE.graph(spec)
        if sum(op.macs for op in graph.ops) <= MAX_MACS:
            yield graph


def measure(graph: Graph, precision: Precision) -> Row:
    """Return the figures of one spec."""
    network = Network(graph)
    for values in network.parameters():
        if values.ndim == 1:
            torch.nn.init.normal_(values)  # equal biases, as of untrained networks, would be stored once
    images = np.random.default_rng(0).integers(0, 256, (4, *SPACE.input_shape), dtype=np.uint8)
    deployed = deploy(network.eval(), SPACE.input_shape, precision=precision, calibration=images)
    with mock.patch.object(schedule, "best_order", lambda steps: list(range(len(steps)))):
        given = generate(deployed)
    made = generate(deployed)
    start = time.process_time()
    planner.plan(made.buffers)
    plan_ms = 1000 * (time.process_time() - start)
    apart = [dataclasses.replace(buffer, over=()) for buffer in given.buffers]
    greedy = planner._place(sorted(apart, key=lambda b: (-b.size_bytes, b.first)))
    found = footprint(graph, precision)
    ends = (np.prod(SPACE.input_shape) + SPACE.num_classes) * deployed.output_dtype.itemsize
    return Row(
        made.arena_bytes,
        planner.lower_bound_bytes(made.buffers),
        found.ram_lower_bound_bytes - int(ends),
        greedy.arena_bytes,
        sum(buffer.size_bytes for buffer in made.buffers),
        sum(made.weights.values()),
        found.flash_lower_bound_bytes,
        plan_ms,
    )


def print_table(precision: Precision, rows: list[Row]) -> None:
    """Print the figures of all specs at one precision."""

    def share(*hits: bool) -> str:
        return f"{sum(hits)} of {len(hits)}"

    def ratio(name: str) -> str:
        values = sorted(getattr(row, name) / row.bound for row in rows)
        return f"median {values[len(values) // 2]:.2f}, largest {values[-1]:.2f}"

    times = sorted(row.plan_ms for row in rows)
    print(f"\n{precision}, {len(rows)} specs")
    print("arena equal to the lower bound of the best order:", share(*(row.arena == row.bound for row in rows)))
    for name, what in (("arena", "arena"), ("greedy", "greedy by size"), ("emx", "emx-onnx-cgen, no buffer reused")):
        print(f"{what} / lower bound: {ratio(name)}")
    print("greedy by size at that bound:", share(*(row.greedy == row.bound for row in rows)))
    print("analytic bound equal to the arena:", share(*(row.foreseen == row.arena for row in rows)))
    print("analytic bound above the arena:", share(*(row.foreseen > row.arena for row in rows)))
    print("analytic Flash above the constants:", share(*(row.foreseen_flash > row.constants for row in rows)))
    print(f"CPU ms to plan: median {times[len(times) // 2]:.2f}, largest {times[-1]:.1f}")


def print_speed(batches: int = 5, count: int = 1000) -> None:
    """Print how many specs the analytic rung answers in a CPU second, from JSON on, none of them seen before.

    Python's garbage collector walks over all that torch has imported now and then; `gc.freeze` spares it that.
    """
    gc.freeze()
    lower.cache_clear()
    rates = []
    for batch in range(batches):
        specs = [SPACE.sample(Random(batch * count + number)).spec for number in range(count)]
        texts = [spec.model_dump_json() for spec in specs if spec is not None]
        lower.cache_clear()
        start = time.process_time()
        for text in texts:
            graph = SPACE.graph(ArchitectureSpec.model_validate_json(text))
            check(footprint(graph, "int8"), 65536, 262144)
        rates.append(count / (time.process_time() - start))
    print(f"analytic rung, specs per CPU second, {batches} batches: {min(rates):.0f} to {max(rates):.0f}")


def main() -> None:
    torch.set_num_threads(1)
    print_speed()
    counts = [int(text) for text in sys.argv[1:]] or [500, 100]
    precisions: tuple[Precision, ...] = ("int8", "float32")
    for precision, count in zip(precisions, counts, strict=False):
        rows: list[Row] = []
        refused = 0
        for graph in graphs(Random(0)):
            if len(rows) == count:
                break
            try:
                rows.append(measure(graph, precision))
            except ToolchainError:  # nothing but pools: onnxruntime leaves them in float
                refused += 1
        if rows:
            print_table(precision, rows)
        print(f"not convertible, left out: {refused}")


if __name__ == "__main__":
    main()
