"""Occam's razor after ColabNAS: cells and width grow while accuracy gains and the budget allows."""

from collections import deque
from math import inf
from typing import ClassVar

from pydantic import NonNegativeInt

from automcu_ray.core.training_recipe import Positive
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Form, Task
from automcu_ray.records.record import Record, best
from searchers.heuristics.colabnas_growth import CellGrowth, NetworkGrowth
from searchers.proposer import Proposer, SearchState

_GAIN = 2.0  # guessed outcomes: above any accuracy, and below any
_NO_GAIN = -1.0


class _Unknown(Exception):
    """The accuracy of this candidate decides how growth goes on."""

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate.hash)
        self.candidate = candidate


class Heuristic(Proposer):
    """Growth as in ColabNAS (`colabnas_growth`), repeated for each proposal with all accuracies known so far.

    The first network whose accuracy is not known is proposed. Where it has been proposed already, growth continues
    twice, as if it had gained and as if it had not, and what follows is proposed before its result is there. What the
    analytic bound refuses, or an earlier refusal covers, counts as refused and is not proposed. When growth has ended,
    a random walk from the best network follows.

    Args:
        task: what is searched for.
        seed: decides what is guessed first, and what is changed after growth.
        first_width: channels of the first network; 4 in the paper.
        guesses: how many outcomes at once are guessed; 0 trains nothing in vain, and nothing in parallel.
    """

    proposes: ClassVar[tuple[Form, ...]] = ("network", "cell")
    name = "HeuristicSearch"

    def __init__(self, task: Task, *, seed: int = 0, first_width: Positive = 4, guesses: NonNegativeInt = 1) -> None:
        super().__init__(task, seed=seed)
        self.guesses = guesses
        self.growth = CellGrowth(task.cells) if task.form == "cell" else NetworkGrowth(task.space, first_width)
        self.scores: dict[str, float] = {}  # by hash; -inf where it was refused or failed
        self.best: Record | None = None  # of those that can be changed

    def propose(self, state: SearchState) -> Candidate | None:
        futures: deque[dict[str, float]] = deque([{}])
        waits = False  # for results of networks in flight
        while futures:
            guessed = futures.popleft()
            wanted = self._wanted(guessed, state)
            if wanted is None:
                continue
            if wanted.hash not in state.known:
                return wanted
            waits = state.in_flight > 0
            if len(guessed) < self.guesses:
                both = [{**guessed, wanted.hash: outcome} for outcome in (_GAIN + len(guessed), _NO_GAIN)]
                state.rng.shuffle(both)
                futures.extend(both)
        return None if waits else self._changed(state)

    def observe(self, record: Record) -> None:
        if record.status == "duplicate":
            return
        score = record.score if record.scored else -inf
        self.scores[record.candidate.hash] = score
        if self.task.choices.holds(record.candidate):
            self.best = best([known for known in (self.best, record) if known is not None])
        if record.feasibility is not None and record.feasibility.network_hash:  # code, known by its network as well
            self.scores[record.feasibility.network_hash] = score

    def _wanted(self, guessed: dict[str, float], state: SearchState) -> Candidate | None:
        """Return the candidate whose accuracy growth needs next; None where it ends without."""
        known = {**self.scores, **guessed}

        def ask(candidate: Candidate) -> float:
            if candidate.hash in known:
                return known[candidate.hash]
            if state.prefilter.refuses(candidate):
                return -inf
            raise _Unknown(candidate)

        try:
            self.growth.walk(ask)
        except _Unknown as unknown:
            return unknown.candidate
        return None

    def _changed(self, state: SearchState) -> Candidate:
        """Return the first new network on a random walk from the best one; while there is none, a random one."""
        space = self.task.choices
        if self.best is None:
            return state.promising(lambda: space.sample(state.rng))
        parent = at = self.best.candidate

        def step() -> Candidate:
            nonlocal at
            at = space.mutate(at, state.rng)
            return at

        return state.promising(step).replace(parent=parent.hash)
