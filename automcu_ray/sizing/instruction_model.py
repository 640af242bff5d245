"""How many instructions an inference is expected to take on a core, before anything is built."""

import json
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from automcu_ray.core.models import FrozenModel
from automcu_ray.networks.graph import Graph
from automcu_ray.problem.target import Core
from automcu_ray.problem.task import Task
from automcu_ray.sizing.instruction_features import ENDINGS, features

Matrix = npt.NDArray[np.float64]
SHIPPED = Path(__file__).with_name("instructions.json")  # costs by core: benchmarks/bench_instructions.py --write
_NEAREST: dict[Core, Core] = {"cortex-m0": "cortex-m0plus", "cortex-m7f": "cortex-m7d"}  # the same kernels
_BASELINE: Core = "cortex-m4f"
_USUAL, _ROUNDS = 0.02, 5  # of a network's instructions: an operator's error; fits, each weighed by the one before
_TIE = 0.3  # chosen by cross-validation on 370 networks, as are these two
_NOISE, _DOUBT = 0.03, 0.1  # of a count, since compilers know some shapes; of a cost that ships


class InstructionModel(FrozenModel):
    """Instructions of int8 networks by c_qemu's kernels: `costs` are those of one run of each part of a kernel.

    `factor` corrects all of them at once, by what a run has measured. The estimate refuses nothing: it orders
    candidates and shapes fixes; the rung `emulate` refuses.
    """

    core: Core
    costs: dict[str, float]
    factor: float = 1.0
    ram_bytes: int = 0  # that a firmware may take for faster kernels

    def estimate(self, graph: Graph) -> int:
        """Return the instructions of one inference."""
        return round(sum(self.by_operator(graph)))

    def by_operator(self, graph: Graph) -> list[float]:
        """Return the instructions of each operator of a graph."""
        return [
            self.factor * sum(self.costs.get(name, 0.0) * times for name, times in counts.items())
            for counts in features(graph, self.core, self.ram_bytes)
        ]

    def scaled_to(self, graph: Graph, instructions: int) -> "InstructionModel":
        """Return the model that is exact for one network that was measured."""
        return self.replace(factor=self.factor * instructions / max(1, self.estimate(graph)))

    def taught(self, graphs: Sequence[Graph], instructions: Sequence[int]) -> "InstructionModel":
        """Return the model after networks whose whole counts were measured, each cost taken to be off by 10 % or so."""
        from scipy.optimize import nnls

        names = [name for name, cost in self.costs.items() if cost]
        totals = [sum(features(graph, self.core, self.ram_bytes), Counter()) for graph in graphs]
        rows = np.array([[self.costs[name] * total[name] for name in names] for total in totals], float)
        measured = np.array(instructions, float)[:, None]
        wanted = np.concatenate([np.full(len(rows), 1 / _NOISE), np.full(len(names), 1 / _DOUBT)])
        changes, _ = nnls(np.concatenate([rows / measured / _NOISE, np.eye(len(names)) / _DOUBT]), wanted)
        return self.replace(costs={name: self.costs[name] * float(by) for name, by in zip(names, changes, strict=True)})


@lru_cache
def shipped(core: Core) -> InstructionModel:
    """Return the model that ships for a core; one without measurements counts as a Cortex-M4F."""
    known: dict[Core, dict[str, float]] = json.loads(SHIPPED.read_text())
    found = _NEAREST.get(core, core)
    return InstructionModel(core=core, costs=known.get(found, known[_BASELINE]))


def model_for(task: Task) -> InstructionModel:
    """Return what ships for a task: its firmware may take the task's RAM (`backend.arena` of c_qemu)."""
    return shipped(task.target.core).replace(ram_bytes=task.ram_limit_bytes)


def fit(
    graphs: Sequence[Graph], instructions: Sequence[Sequence[int]], core: Core, ram_bytes: int = 0
) -> InstructionModel:
    """Return the model that fits the instructions of each operator of these graphs; no cost is negative.

    Their firmware might take `ram_bytes`, 0: as little as can be.

    An error counts as a share of its whole network's instructions, and beyond `_USUAL` no longer by its square (Huber's
    loss), since what a few layers cost is not told by shapes: which scales they got, which way the compiler went. What
    a part costs where a function is specialised is drawn to what it costs elsewhere, and taken to be that where no
    such network is among these.
    """
    from scipy.optimize import nnls

    rows = [row for graph in graphs for row in features(graph, core, ram_bytes)]
    names = sorted({name for row in rows for name in row})
    totals = np.repeat([float(sum(counted)) for counted in instructions], [len(graph.ops) for graph in graphs])
    shares: Matrix = np.array([[row[name] for name in names] for row in rows], float) / totals[:, None]
    wanted = np.array([count for counted in instructions for count in counted], float) / totals
    ties = _ties(names, shares.max(axis=0))
    weights, costs = np.ones(len(wanted)), np.zeros(len(names))
    for _ in range(_ROUNDS):
        matrix = np.concatenate([shares * weights[:, None], ties])
        scale = np.abs(matrix).max(axis=0)
        solved, _ = nnls(
            matrix / scale, np.concatenate([wanted * weights, np.zeros(len(ties))]), maxiter=20 * len(names)
        )
        costs = solved / scale
        weights = np.sqrt(np.minimum(1, _USUAL / np.maximum(np.abs(shares @ costs - wanted), 1e-9)))
    found = {name: float(f"{cost:.5g}") for name, cost in zip(names, costs, strict=True)}
    for plain in {_plain(name) for name in names}:
        usual = next(found[plain + ending] for ending in ENDINGS if plain + ending in found)
        found = {plain + ending: usual for ending in ENDINGS} | found
    costs_by_name = {name: cost for name, cost in sorted(found.items()) if cost}
    return InstructionModel(core=core, costs=costs_by_name, ram_bytes=ram_bytes)


def _ties(names: Sequence[str], sizes: Matrix) -> Matrix:
    """Return rows that say that a part costs the same with either ending, weighed by its largest shares."""
    groups: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        groups.setdefault(_plain(name), []).append(at)
    pairs = [(group[0], other) for group in groups.values() for other in group[1:]]
    made = np.zeros((len(pairs), len(names)))
    for row, (one, other) in zip(made, pairs, strict=True):
        row[one], row[other] = np.array([1, -1]) * _TIE * min(sizes[one], sizes[other])
    return made


def _plain(name: str) -> str:
    return name.removesuffix(" alone").removesuffix(" alike")
