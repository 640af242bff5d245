"""The base of every searcher: speaks Ray Tune's protocol once, so that a searcher fills two methods."""

import json
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from ray.tune.search import Searcher

from automcu_ray.feasibility import FeasibilityReport
from automcu_ray.ledger import Cost, total
from automcu_ray.record import Candidate, Record, Status, TrainingSummary
from automcu_ray.repository import Repository
from automcu_ray.task import Form, Task
from searchers.floor import Floor
from searchers.gate import Gate
from searchers.refusals import Refusals
from searchers.results import METRIC, ending, reason_of, status_of

Draw = Callable[[], Candidate]
_DRAWS = 50
_PROPOSALS_PER_STEP = 16  # where all are refused at once, Tune's loop still turns


class BaseSearcher(Searcher):  # type: ignore[misc]
    """A Ray Tune Searcher whose proposals pass the gate before they become trials.

    `propose` returns the next candidate, or None for "not ready yet"; it runs in Tune's main loop and returns at
    once, that is within tens of milliseconds (the first one of `capacity`, which fills every usual layout, takes up to
    a second). `observe` (optional) learns from one record, good or bad. Randomness comes from `self.rng`, which depends
    on the seed and the number of the proposal alone: a resumed run proposes what the whole run would have.

    `proposes` says what: networks (specs or code), cells of NAS-Bench-201, or either, as the task wants.

    Works in anyone's own script: `tune.Tuner(trainable, tune_config=TuneConfig(search_alg=RandomSearch(task)))`.
    The trial's config is {"number": int, "spec": dict}, or "code" in place of "spec"; the trainable reports
    `val_accuracy` or, better, the fields of TrainingSummary under "training".

    Attributes set by whoever wires a run (the supervisor), all optional: `repository` (journal), `gate` (toolchain),
    `trained_budget`, `proposal_budget`, `token_budget`, `usd_budget` (None: no limit), `lookahead` (verdicts kept in
    stock), `trains_refused` (a verdict about sizes counts only after training).
    """

    proposes: ClassVar[tuple[Form, ...]] = ("network",)

    def __init__(self, task: Task, *, seed: int = 0) -> None:
        super().__init__(metric=METRIC, mode="max")
        self.task = task
        self.seed = seed
        self.rng = Random(seed)
        self.repository = Repository()
        self.gate = Gate(task)
        self.trained_budget: int | None = None
        self.proposal_budget: int | None = None
        self.token_budget: int | None = None
        self.usd_budget: float | None = None
        self.lookahead = 2
        self.gave_up = ""  # why nothing more will be proposed, where a searcher cannot go on
        self.trained = 0
        self.spent = Cost()  # on proposals
        self.waiting: deque[Candidate] = deque()  # to be evaluated before anything new is proposed
        self.ready: deque[tuple[Candidate, FeasibilityReport]] = deque()
        self.live: dict[str, tuple[Candidate, FeasibilityReport]] = {}
        self.seen: dict[str, int] = {}
        self.refusals = Refusals(task)
        self.floor = Floor(task)
        self.trains_refused = False

    @abstractmethod
    def propose(self) -> Candidate | Sequence[Candidate] | None:
        """Return the next candidate, or several that came at once, or None for "not ready yet"."""

    def observe(self, record: Record) -> None:
        """Learn from one record; status says whether it trained."""

    def promising(self, draw: Draw, *, foresee: bool = True) -> Candidate:
        """Return the first of 50 drawn candidates that is new and not sure to be refused, else the last new one.

        Sure is what earlier refusals cover, and, with `foresee`, what the analytic bound refuses: cheap to know, and
        not worth a proposal. Where none is new, it is the last one drawn: a small space may have none left.
        """
        new = None
        for _ in range(_DRAWS):
            if (candidate := draw()).hash not in self.seen:
                new = candidate
                if not self._sure_to_be_refused(candidate, foresee):
                    break
        return new or candidate

    def _sure_to_be_refused(self, candidate: Candidate, foresee: bool) -> bool:
        if candidate.structure is None or self.task.on_table or self.trains_refused:
            return False
        graph = self.task.graph(candidate.structure)
        return self.refusals.cover(graph) or (foresee and bool(self.gate.foresee(graph, self.task)))

    def close(self) -> None:
        """Give up whatever goes on outside Tune's loop; nothing more will be proposed."""

    # What the supervisor uses -------------------------------------------------------------------------------

    def points_to_evaluate(self, candidates: Iterable[Candidate]) -> None:
        """Evaluate these before anything is proposed."""
        self.waiting.extend(self._journal(list(candidates)))

    def replay(self, repository: Repository) -> None:
        """Continue a journal: learn what is known, evaluate again what was proposed and never finished."""
        self.repository = repository
        self.spent = total(candidate.cost for candidate in repository.proposed.values())
        for record in repository.records:
            self._learn(record)
        pending = repository.pending()
        self.waiting.extendleft(reversed(pending))

    @property
    def next_number(self) -> int:
        """The number that the next proposal will get."""
        return len(self.repository.proposed) + 1

    @property
    def in_flight(self) -> int:
        """Candidates that wait for a verdict, for a slot, or for the end of training."""
        return self.gate.waiting + len(self.ready) + len(self.live)

    @property
    def overspent(self) -> str:
        """Which budget of tokens or money is used up; empty while there is some left."""
        if self.token_budget is not None and self.spent.tokens >= self.token_budget:
            return f"{self.spent.tokens} tokens are used, the budget is {self.token_budget}"
        if self.usd_budget is not None and self.spent.usd >= self.usd_budget:
            return f"{self.spent.usd:.4f} US dollars are spent, the budget is {self.usd_budget}"
        return ""

    @property
    def ordered(self) -> int:
        """Candidates that have been asked for elsewhere, and perhaps paid for, but have not come yet."""
        return 0

    @property
    def exhausted(self) -> bool:
        """Whether the budget of trained candidates, or of proposals with nothing left in flight, is used up."""
        if self.trained_budget is not None and self.trained >= self.trained_budget:
            return True
        return self._no_more_proposals() and not self.in_flight and not self.waiting

    def pump(self) -> None:
        """Collect verdicts and ask for proposals; called at every step of Tune's loop, never blocks."""
        for candidate, report in self.gate.poll():
            if not self.floor.hear(candidate, report):
                self._judge(candidate, report)
        self.gave_up = self.gave_up or self.floor.ask(self.gate)
        for _ in range(_PROPOSALS_PER_STEP):
            proposal = self._next() if self._wants_more() else None
            if proposal is None:
                return
            self._admit(proposal)

    # Ray's protocol -----------------------------------------------------------------------------------------

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        return mode in (None, "max")

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        self.pump()
        if self.exhausted:
            return str(Searcher.FINISHED)
        if not self.ready:
            return None
        candidate, report = self.ready.popleft()
        self.live[trial_id] = (candidate, report)
        return candidate.trial_config()

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if trial_id not in self.live:  # normal after a restore
            return
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
        repository = Repository(self.repository.path)  # the journal, where there is one, knows more
        if repository.path is None:
            repository.records = [Record.model_validate(row) for row in state["records"]]
            repository.proposed = {row["number"]: Candidate.model_validate(row) for row in state["proposed"]}
        self.replay(repository)
        waiting = {candidate.number: candidate for candidate in self.waiting}
        for trial, (number, report) in state["live"].items():
            if number in waiting:  # Tune goes on with this trial itself
                candidate = waiting.pop(number)
                self.live[trial] = (candidate, FeasibilityReport.model_validate(report))
                self.seen[candidate.hash] = number
        self.waiting = deque(waiting.values())

    # The way of a candidate ---------------------------------------------------------------------------------

    def _no_more_proposals(self) -> bool:
        if self.gave_up or self.overspent:
            return not self.ordered
        return self.proposal_budget is not None and len(self.repository.proposed) >= self.proposal_budget

    def _wants_more(self) -> bool:
        if self._no_more_proposals() and not self.waiting:
            return False
        if self.trained_budget is not None and self.trained + self.in_flight >= self.trained_budget:
            return False
        return self.gate.waiting + len(self.ready) < self.lookahead

    def _next(self) -> Candidate | None:
        if not self.waiting:
            self.rng = Random(f"{self.seed}:{self.next_number}")
            proposal = self.propose()
            if proposal is None:
                return None
            self.waiting.extend(self._journal([proposal] if isinstance(proposal, Candidate) else proposal))
        return self.waiting.popleft()

    def _journal(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Give new candidates their numbers and write them down at once, before anything else is done with them."""
        numbered = [
            candidate.model_copy(update={"number": number, "proposer": candidate.proposer or type(self).__name__})
            for number, candidate in enumerate(candidates, start=self.next_number)
        ]
        self.repository.propose(*numbered)
        self.spent += total(candidate.cost for candidate in numbered)
        return numbered

    def _admit(self, candidate: Candidate) -> None:
        if candidate.hash in self.seen:
            self._finish(candidate, "duplicate", f"equals candidate {self.seen[candidate.hash]}")
            return
        if candidate.hash:
            self.seen[candidate.hash] = candidate.number
        report = self.gate.submit(candidate)
        if report is not None:
            self._judge(candidate, report)

    def _judge(self, candidate: Candidate, report: FeasibilityReport) -> None:
        known_as = report.network_hash or candidate.hash
        twin = self.seen.setdefault(known_as, candidate.number) if known_as else candidate.number
        if report.feasible and twin != candidate.number:  # other code, the same network
            self._finish(candidate, "duplicate", f"equals candidate {twin}", report)
            return
        status = status_of(report)
        if status == "ok" or (status == "infeasible" and self.trains_refused):
            self.ready.append((candidate, report))
            return
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
        spent = Cost(
            toolchain_cpu_seconds=sum(report.seconds_by_rung.values()) if report else 0.0,
            train_seconds=(training.seconds or 0.0) if training else lost_seconds,
        )
        record = Record(
            candidate=candidate,
            status=status,
            reason=reason,
            feasibility=report,
            training=training,
            cost=candidate.cost + spent,
            finished_at_s=time.time(),
        )
        self.repository.add(record)
        self._learn(record)

    def _learn(self, record: Record) -> None:
        self.trained += record.training is not None
        if record.candidate.hash:
            self.seen.setdefault(record.candidate.hash, record.candidate.number)
        if record.feasibility is not None and record.feasibility.network_hash:
            self.seen.setdefault(record.feasibility.network_hash, record.candidate.number)
        self.refusals.learn(record)
        self.floor.learn(record)
        self.observe(record)
