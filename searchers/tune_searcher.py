"""The driver of every proposer: a Ray Tune Searcher with a journal, a gate and budgets."""

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from ray.tune.search import Searcher

from automcu_ray.core.cost import Cost, total
from automcu_ray.core.feasibility import FeasibilityReport
from automcu_ray.networks.candidate import Candidate
from automcu_ray.records.journal import Repository
from automcu_ray.records.record import Record, Status, TrainingSummary
from searchers.gate.gate import Gate
from searchers.gate.infeasibility_check import InfeasibilityCheck
from searchers.gate.prefilter import Prefilter
from searchers.gate.trial_outcome import METRIC, ending, reason_of, status_of
from searchers.proposer import NoMoreProposals, Proposer, SearchState
from searchers.stopping import Budget, EarlyEnd

_PROPOSALS_PER_STEP = 16  # where all are refused at once, Tune's loop still turns


class TuneSearcher(Searcher):  # type: ignore[misc]
    """Drives a proposer in Ray Tune: its proposals pass the gate before they become trials.

    Works in a script of your own: `tune.Tuner(trainable, tune_config=TuneConfig(search_alg=RandomSearch(task)))`.
    The trial's config is {"number": int, "spec": dict}, or "code" or "cell" in place of "spec"; the trainable reports
    `val_accuracy` or, better, the fields of TrainingSummary under "training".

    Args:
        proposer: the algorithm; its task is the search's.
        repository: the journal; without one, records are kept in memory.
        gate: what judges candidates; without one, the ladder ends at the analytic rung.
        budget: when the search ends.
        lookahead: how many candidates are kept checked and ready to train, so that no slot waits.
        trains_refused: True trains networks that the gate refused for their size; their records say "infeasible".
        known: networks, by hash, that need not be proposed again.
    """

    def __init__(
        self,
        proposer: Proposer,
        *,
        repository: Repository | None = None,
        gate: Gate | None = None,
        budget: Budget | None = None,
        lookahead: int = 2,
        trains_refused: bool = False,
        known: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(metric=METRIC, mode="max")
        self.proposer, self.task = proposer, proposer.task
        self.gate, self.budget = gate or Gate(self.task), budget or Budget()
        self.lookahead, self.trains_refused = lookahead, trains_refused
        self.prefilter = Prefilter(self.task, self.gate.check_bounds, self.gate.estimator, active=not trains_refused)
        self.infeasibility_check = InfeasibilityCheck(self.task)
        self.early_end = EarlyEnd(self.budget)
        self.gave_up = ""  # why nothing more will be proposed, where the search cannot go on
        self.stopped: Callable[[], bool] = bool  # whether a signal or the end of the time has come; never
        self.trained, self.spent = 0, Cost()  # on what engines were asked
        self.known = dict(known or {})
        self.waiting: deque[Candidate] = deque()  # to be evaluated before anything new is proposed
        self.ready: deque[tuple[Candidate, FeasibilityReport]] = deque()
        self.live: dict[str, tuple[Candidate, FeasibilityReport]] = {}
        self.active: dict[int, Candidate] = {}  # proposed, without a record yet
        self.replay(repository or Repository())

    # What whoever wires a run uses ----------------------------------------------------------------------------

    def points_to_evaluate(self, candidates: Iterable[Candidate]) -> None:
        """Evaluate these before anything is proposed."""
        self.waiting.extend(self._journal(list(candidates)))

    def replay(self, repository: Repository) -> None:
        """Continue a journal: learn from its records, and evaluate what was proposed but has no record."""
        self.repository = repository
        self.spent = repository.talked + total(candidate.cost for candidate in repository.proposed.values())
        for record in repository.records:
            self._learn(record)
        pending = repository.pending()
        self.active.update((candidate.number, candidate) for candidate in pending)
        self.waiting.extendleft(reversed(pending))
        if repository.proposed:
            self.proposer.resume(repository.proposed.values(), pending)

    @property
    def next_number(self) -> int:
        """The number that the next proposal will get."""
        return self.repository.next_number

    @property
    def in_flight(self) -> int:
        """Candidates that wait for a verdict, for a slot, or for the end of training."""
        return self.gate.waiting + len(self.ready) + len(self.live)

    @property
    def overspent(self) -> str:
        """Which budget of tokens or money is used up; empty while there is some left."""
        if self.budget.tokens is not None and self.spent.tokens >= self.budget.tokens:
            return f"{self.spent.tokens} tokens are used, the budget is {self.budget.tokens}"
        if self.budget.usd is not None and self.spent.usd >= self.budget.usd:
            return f"{self.spent.usd:.4f} US dollars are spent, the budget is {self.budget.usd}"
        return ""

    @property
    def exhausted(self) -> bool:
        """Whether a budget is used up (of proposals: with nothing left in flight), or it ends early."""
        if self.early_end.reason or (self.budget.trained is not None and self.trained >= self.budget.trained):
            return True
        return self._no_more_proposals() and not self.in_flight and not self.waiting

    @property
    def state(self) -> SearchState:
        """What the proposer may know now."""
        budget, rooms = self.budget, []
        if budget.trained is not None:
            rooms.append(budget.trained - self.trained - self.in_flight - len(self.waiting))
        if budget.proposals is not None:
            rooms.append(budget.proposals - len(self.repository.proposed))
        return SearchState(
            rng=Random(f"{self.proposer.seed}:{self.next_number}"),
            prefilter=self.prefilter,
            known=self.known,
            active=self.active.values(),
            number=self.next_number,
            stock=self.in_flight - len(self.live) + len(self.waiting),
            in_flight=self.in_flight,
            room=min(rooms, default=None),
            overspent=self.overspent,
            closed=self.gave_up or self.early_end.reason,
        )

    def pump(self) -> None:
        """Collect verdicts and ask for proposals; called at every step of Tune's loop, never blocks."""
        for candidate, report in self.gate.poll():
            if not self.infeasibility_check.hear(candidate, report):
                self._judge(candidate, report)
        self.gave_up = self.gave_up or self.infeasibility_check.ask(self.gate)
        for _ in range(_PROPOSALS_PER_STEP):
            proposed = self._next() if self._wants_more() else None
            if proposed is None:
                break
            self._check(proposed)
        if len(self.waiting) + self.gate.waiting + len(self.ready) < self.lookahead + self.proposer.batch - 1:
            self.proposer.prepare(self.state)  # the next batch is made while this one is checked and trained

    def close(self) -> None:
        """End whatever goes on outside Tune's loop; nothing more will be proposed."""
        self.proposer.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "stopped": bool}  # it knows this process

    # Ray's protocol -----------------------------------------------------------------------------------------

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        return mode in (None, "max")

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        self.pump()
        if self.exhausted or (self.stopped() and not self.live):
            return str(Searcher.FINISHED)
        if self.ready:
            self.live[trial_id] = candidate, _ = self.ready.popleft()
            return candidate.trial_config()
        return None

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if trial_id in self.live:  # else it had ended before a restore
            candidate, report = self.live.pop(trial_id)
            self._finish(candidate, *ending(result, report, error=error))

    def save(self, checkpoint_path: str) -> None:
        kept = Repository() if self.repository.path else self.repository  # a journal is not written down a second time
        state = {
            "records": [record.model_dump(mode="json") for record in kept.records],
            "proposed": [candidate.model_dump(mode="json") for candidate in kept.proposed.values()],
            "live": {trial: (c.number, r.model_dump(mode="json")) for trial, (c, r) in self.live.items()},
        }
        Path(checkpoint_path).write_text(json.dumps(state))

    def restore(self, checkpoint_path: str) -> None:
        state = json.loads(Path(checkpoint_path).read_text())
        if self.repository.path is None:  # a journal, which knows more, has been replayed
            repository = Repository()
            repository.records = [Record.model_validate(row) for row in state["records"]]
            repository.proposed = {row["number"]: Candidate.model_validate(row) for row in state["proposed"]}
            self.replay(repository)
        waiting = {candidate.number: candidate for candidate in self.waiting}
        for trial, (number, report) in state["live"].items():
            if number in waiting:  # Tune goes on with this trial itself
                candidate = waiting.pop(number)
                self.live[trial] = (candidate, FeasibilityReport.model_validate(report))
                self.known[candidate.hash] = number
        self.waiting = deque(waiting.values())

    # The way of a candidate ---------------------------------------------------------------------------------

    def _no_more_proposals(self) -> bool:
        if self.early_end.reason:
            return True
        if self.gave_up:
            return not self.proposer.ordered
        return self.budget.proposals is not None and len(self.repository.proposed) >= self.budget.proposals

    def _wants_more(self) -> bool:
        if self.early_end.reason or (self._no_more_proposals() and not self.waiting):
            return False
        room = self.budget.trained is None or self.trained + self.in_flight < self.budget.trained
        return room and self.gate.waiting + len(self.ready) < self.lookahead

    def _next(self) -> Candidate | None:
        if not self.waiting:
            try:
                proposal = self.proposer.propose(self.state)
            except NoMoreProposals as error:
                self.gave_up = self.gave_up or str(error)
                return None
            if proposal is None:
                return None
            self.waiting.extend(self._journal([proposal] if isinstance(proposal, Candidate) else proposal))
        return self.waiting.popleft()

    def _journal(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Give new candidates their numbers and write them down at once, before anything else is done with them."""
        name = self.proposer.name or type(self.proposer).__name__
        given = enumerate(candidates, start=self.next_number)
        numbered = [one.replace(number=number, proposer=one.proposer or name) for number, one in given]
        self.repository.propose(*numbered)
        self.active.update((candidate.number, candidate) for candidate in numbered)
        self.spent += total(candidate.cost for candidate in numbered)
        return numbered

    def _check(self, candidate: Candidate) -> None:
        if candidate.hash in self.known:
            self._finish(candidate, "duplicate", f"equals candidate {self.known[candidate.hash]}")
            return
        if candidate.hash:
            self.known[candidate.hash] = candidate.number
        if report := self.gate.submit(candidate):
            self._judge(candidate, report)

    def _judge(self, candidate: Candidate, report: FeasibilityReport) -> None:
        known_as = report.network_hash or candidate.hash
        twin = self.known.setdefault(known_as, candidate.number) if known_as else candidate.number
        if report.feasible and twin != candidate.number:  # other code, the same network
            self._finish(candidate, "duplicate", f"equals candidate {twin}", report)
            return
        status = status_of(report)
        if status == "ok" or (status == "infeasible" and self.trains_refused):
            self.ready.append((candidate, report))
        else:
            self._finish(candidate, status, reason_of(report), report)

    def _finish(
        self,
        candidate: Candidate,
        status: Status,
        reason: str,
        report: FeasibilityReport | None = None,
        training: TrainingSummary | None = None,
        lost_seconds: float = 0.0,
    ) -> None:
        checked_s = sum(report.seconds_by_rung.values()) if report else 0.0
        trained_s = (training.seconds or 0.0) if training else lost_seconds
        record = Record(
            candidate=candidate,
            status=status,
            reason=reason,
            feasibility=report,
            training=training,
            cost=candidate.cost + Cost(toolchain_cpu_seconds=checked_s, train_seconds=trained_s),
            finished_at_s=time.time(),
            aim=self.task.aim,
        )
        self.repository.add(record)
        self._learn(record)

    def _learn(self, record: Record) -> None:
        self.active.pop(record.candidate.number, None)
        self.trained += record.training is not None
        for known_as in (record.candidate.hash, record.feasibility and record.feasibility.network_hash):
            if known_as:
                self.known.setdefault(known_as, record.candidate.number)
        self.prefilter.learn(record)
        self.infeasibility_check.learn(record)
        self.early_end.learn(record)
        self.proposer.observe(record)
