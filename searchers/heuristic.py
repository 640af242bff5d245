"""Occam's razor after ColabNAS: cells and width grow while accuracy gains and the budget allows."""

from collections import deque
from math import inf
from typing import ClassVar

from pydantic import NonNegativeInt

from automcu_ray.protocol import Positive
from automcu_ray.record import Candidate, Record, best
from automcu_ray.task import Form, Task
from searchers.base import BaseSearcher
from searchers.growth import CellGrowth, NetworkGrowth

_GAIN = 2.0  # guesses: more than any accuracy, and less than any
_NO_GAIN = -1.0


class _Unknown(Exception):
    """The accuracy of this candidate decides how growth goes on."""

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate.hash)
        self.candidate = candidate


class HeuristicSearch(BaseSearcher):
    """Growth (`searchers.growth`) walked anew for each proposal with all accuracies known, up to one that is not.

    Where that one is on its way already, its outcome is guessed: after a gain growth would go on from it, after none
    it would turn elsewhere. Both continuations are proposed before the result is there, or one has to wait for it.
    What the analytic bound refuses, or an earlier refusal covers, counts as refused and is not proposed. After growth
    has ended, a random walk from the best network goes on.

    Args:
        task: what is searched for.
        seed: decides what is guessed first, and what is changed after growth.
        first_width: channels of the first network; 4 in the paper.
        guesses: how many outcomes at once are guessed; 0 trains nothing in vain, and nothing in parallel.
    """

    proposes: ClassVar[tuple[Form, ...]] = ("network", "cell")

    def __init__(self, task: Task, *, seed: int = 0, first_width: Positive = 4, guesses: NonNegativeInt = 1) -> None:
        super().__init__(task, seed=seed)
        self.guesses = guesses
        self.growth = CellGrowth(task.cells) if task.form == "cell" else NetworkGrowth(task.space, first_width)
        self.scores: dict[str, float] = {}  # by hash; -inf where it was refused or failed

    def propose(self) -> Candidate | None:
        futures: deque[dict[str, float]] = deque([{}])
        waits = False  # for something that really is on its way
        while futures:
            guessed = futures.popleft()
            wanted = self._wanted(guessed)
            if wanted is None:
                continue
            if wanted.hash not in self.seen:
                return wanted
            waits = self.in_flight > 0
            if len(guessed) < self.guesses:
                both = [{**guessed, wanted.hash: outcome} for outcome in (_GAIN + len(guessed), _NO_GAIN)]
                self.rng.shuffle(both)
                futures.extend(both)
        return None if waits else self._changed()

    def observe(self, record: Record) -> None:
        if record.status == "duplicate":
            return
        score = record.score if record.scored else -inf
        self.scores[record.candidate.hash] = score
        if record.feasibility is not None and record.feasibility.network_hash:  # code, known by its network as well
            self.scores[record.feasibility.network_hash] = score

    def _wanted(self, guessed: dict[str, float]) -> Candidate | None:
        """Return the candidate whose accuracy growth needs next; None where it ends without."""
        known = {**self.scores, **guessed}

        def ask(candidate: Candidate) -> float:
            if candidate.hash in known:
                return known[candidate.hash]
            if self._sure_to_be_refused(candidate, foresee=True):
                return -inf
            raise _Unknown(candidate)

        try:
            self.growth.walk(ask)
        except _Unknown as unknown:
            return unknown.candidate
        return None

    def _changed(self) -> Candidate:
        """Return the first new network on a random walk from the best one; while there is none, a random one."""
        space, cells = self.task.choices, self.task.form == "cell"
        records = self.repository.records
        found = best([one for one in records if (one.candidate.cell if cells else one.candidate.spec) is not None])
        if found is None:
            return self.promising(lambda: space.sample(self.rng))
        parent = at = found.candidate

        def step() -> Candidate:
            nonlocal at
            at = space.mutate(at, self.rng)
            return at

        return self.promising(step).model_copy(update={"parent": parent.hash})
