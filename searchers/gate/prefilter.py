"""What is refused for certain, asked before anything is proposed: no toolchain is needed to know it."""

from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from automcu_ray.sizing import footprint
from automcu_ray.sizing.repair import BoundCheck
from automcu_ray.sizing.size_model import Estimator
from searchers.gate.dominance_pruning import DominancePruning


class Prefilter:
    """The analytic bound, and what earlier refusals settle.

    Args:
        task: what is searched for.
        check_bounds: the analytic rung.
        estimator: sizes that earlier verdicts of the toolchain let expect; it refuses nothing.
        active: False where a refused candidate trains all the same, so that nothing is worth being left out.
    """

    def __init__(
        self,
        task: Task,
        check_bounds: BoundCheck = footprint.check_bounds,
        estimator: Estimator | None = None,
        *,
        active: bool = True,
    ) -> None:
        self.task, self.check_bounds, self.estimator = task, check_bounds, estimator
        self.active = active and not task.on_table
        self.pruning = DominancePruning(task)

    def learn(self, record: Record) -> None:
        """Learn from one record."""
        self.pruning.learn(record)

    def refuses(self, candidate: Candidate, *, check_bounds: bool = True) -> bool:
        """Return whether a candidate is sure to be refused; without `check_bounds`, by earlier refusals alone."""
        if candidate.structure is None or not self.active:
            return False
        graph = self.task.graph(candidate.structure)
        return self.pruning.cover(graph) or (check_bounds and bool(self.check_bounds(graph, self.task)))
