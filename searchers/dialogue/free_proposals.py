"""What is proposed without asking an engine: fixes of near misses, morphs of repeats, others while a slot is idle."""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from random import Random

from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from automcu_ray.sizing.mending import mended
from automcu_ray.sizing.near_misses import excess
from automcu_ray.sizing.size_model import SizeModel
from searchers.proposer import NoMoreProposals, Proposer, SearchState

_DRAWS = 50
SIZED = 100  # latest records that teach sizes: to build their graphs takes some ten milliseconds
FIX, MORPH = "fix", "morph"


def sizes_of(records: Iterable[Record], task: Task) -> SizeModel:
    """Return the size model that records teach."""
    sizes = SizeModel(task)
    for record in records:
        report, structure = record.feasibility, record.candidate.structure
        if report is not None and structure is not None and not task.on_table:
            sizes.learn(report, task.graph(structure))
    return sizes


class FreeProposals:
    """Proposals that cost no call, each with its origin: they say who proposed them, and from which candidate.

    Args:
        task: what is searched for.
        mend: up to which excess, as a share of the limit, refusals are fixed where an engine had proposed them; then
            repeats are morphed, too. 0: neither.
        filler: proposes while a slot would be idle; it learns from every record.
        name: of the filler, who gets the credit.
    """

    def __init__(self, task: Task, *, mend: float, filler: Proposer | None, name: str = "") -> None:
        self.task, self.mend, self.filler, self.name = task, mend, filler, name
        self.sized: deque[Record] = deque(maxlen=SIZED)
        self.refused: deque[Record] = deque()  # to be mended, oldest first
        self.mended: set[int] = set()  # numbers of refused candidates in whose place something else is tried

    def observe(self, record: Record) -> None:
        """Learn from a record, whoever proposed it; keep it where it can be mended."""
        if self.filler is not None:
            self.filler.observe(record)
        candidate, report = record.candidate, record.feasibility
        if not self.mend or candidate.structure is None:
            return
        if report is not None and report.ram_bytes:
            self.sized.append(record)
        if not candidate.talk and candidate.proposer != FIX:  # a fix that was refused has taught how large it is
            return
        near = record.status == "infeasible" and 0 < (excess(record) or 0) <= self.mend
        if near or record.status == "duplicate":
            self.refused.append(record)
            self.mended.add(record.candidate.number)

    def resume(self, proposed: Collection[Candidate], pending: Collection[Candidate]) -> None:
        """Leave alone what was mended before the run was cut short."""
        if self.filler is not None:
            self.filler.resume(proposed, pending)
        done = {candidate.origin for candidate in proposed}
        self.refused = deque(one for one in self.refused if one.candidate.number not in done)

    def next_mended(self, state: SearchState) -> Candidate | None:
        """Return a refused candidate in a form that should pass, None where none waits."""
        while self.refused:
            record = self.refused.popleft()
            found = self._fixed(record, state) if record.status == "infeasible" else self._morphed(record, state)
            if found is not None:
                return found
            self.mended.discard(record.candidate.number)
        return None

    def next_filling(self, state: SearchState) -> Candidate | None:
        """Return a proposal of the filler, None where it has none."""
        if self.filler is None:
            return None
        try:
            found = self.filler.propose(state)
        except NoMoreProposals:
            return None
        if isinstance(found, Sequence):
            found = found[0] if found else None
        return None if found is None else found.replace(proposer=self.name)

    def _fixed(self, record: Record, state: SearchState) -> Candidate | None:
        sizes, estimator = sizes_of(self.sized, self.task), state.prefilter.estimator
        check_bounds = state.prefilter.check_bounds
        found = mended(record, self.task, check_bounds, lambda graph: sizes.estimate(graph, estimator), state.known)
        return found and self._signed(found, record, FIX)

    def _morphed(self, record: Record, state: SearchState) -> Candidate | None:
        """Return the nearest new neighbour of a repeat: one morphism away, more where all neighbours are known."""
        found, rng = record.candidate, Random(state.rng.random())
        for draw in range(_DRAWS):
            parent = record.candidate if draw % 5 else found
            found = self.task.choices.mutate(parent, rng)
            if found.hash not in state.known and not state.prefilter.refuses(found):
                return self._signed(found, record, MORPH)
        return None

    def _signed(self, found: Candidate, record: Record, how: str) -> Candidate:
        origin = record.candidate
        return found.replace(proposer=how, origin=origin.number, parent=origin.hash, diagnosis=origin.diagnosis)
