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
from automcu_ray.sizing.instruction_features import features

SHIPPED = Path(__file__).with_name("instructions.json")  # costs by core: benchmarks/bench_instructions.py --write
_NEAREST: dict[Core, Core] = {"cortex-m0": "cortex-m0plus", "cortex-m7f": "cortex-m7d"}  # the same kernels
_BASELINE: Core = "cortex-m4f"
_NOISE, _DOUBT = 0.03, 0.1  # of a count, since compilers know some shapes; of a cost that ships


class InstructionModel(FrozenModel):
    """Instructions of int8 networks by c_qemu's kernels: `costs` are those of one run of each part of a kernel.

    `factor` corrects all of them at once, by what a run has measured. The estimate refuses nothing: it orders
    candidates and shapes fixes; the rung `emulate` refuses.
    """

    core: Core
    costs: dict[str, float]
    factor: float = 1.0

    def estimate(self, graph: Graph) -> int:
        """Return the instructions of one inference."""
        return round(sum(self.by_operator(graph)))

    def by_operator(self, graph: Graph) -> list[float]:
        """Return the instructions of each operator of a graph."""
        return [
            self.factor * sum(self.costs.get(name, 0.0) * times for name, times in counts.items())
            for counts in features(graph, self.core)
        ]

    def scaled_to(self, graph: Graph, instructions: int) -> "InstructionModel":
        """Return the model that is exact for one network that was measured."""
        return self.replace(factor=self.factor * instructions / max(1, self.estimate(graph)))

    def taught(self, graphs: Sequence[Graph], instructions: Sequence[int]) -> "InstructionModel":
        """Return the model after networks whose whole counts were measured, each cost taken to be off by 10 % or so."""
        from scipy.optimize import nnls

        names = [name for name, cost in self.costs.items() if cost]
        totals = [sum(features(graph, self.core), Counter()) for graph in graphs]
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


def fit(graphs: Sequence[Graph], instructions: Sequence[Sequence[int]], core: Core) -> InstructionModel:
    """Return the model that fits the instructions of each operator of these graphs; no cost is negative.

    An error counts as a share of its whole network's instructions. What a function costs where it is specialised, and
    no such network is among these, is taken to be its usual cost, and the other way round.
    """
    from scipy.optimize import nnls

    counts, wanted, weights = [], [], []
    for graph, counted in zip(graphs, instructions, strict=True):
        total = sum(counted)
        for row, found in zip(features(graph, core), counted, strict=True):
            counts.append(row)
            wanted.append(float(found))
            weights.append(1 / total)
    names = sorted({name for row in counts for name in row})
    matrix: npt.NDArray[np.float64] = np.array([[row[name] for name in names] for row in counts], float)
    scale = np.maximum(matrix.max(axis=0), 1.0)
    share = np.array(weights)
    solved, _ = nnls(matrix / scale * share[:, None], np.array(wanted) * share)
    costs = dict(zip(names, (solved / scale).tolist(), strict=True))
    costs = {_twin(name): cost for name, cost in costs.items()} | costs
    return InstructionModel(core=core, costs={name: float(f"{cost:.5g}") for name, cost in costs.items() if cost})


def _twin(name: str) -> str:
    return name.removesuffix(" alone") if name.endswith(" alone") else f"{name} alone"
