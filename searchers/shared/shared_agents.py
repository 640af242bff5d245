"""The driver of agents that share a conversation: same gate, trials, journal and budgets, but they call the stages."""

from typing import Any

from automcu_ray.core.feasibility import FeasibilityReport
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.graph import ConstructibilityError
from automcu_ray.problem.target import BYTES_PER_KB
from automcu_ray.records.events import CallFailure, ToolCalled
from automcu_ray.records.journal import Repository
from automcu_ray.records.record import Record
from searchers.dialogue.notations import why
from searchers.dialogue.reply_parsing import UnusableReply
from searchers.engines.base import Reply
from searchers.gate.gate import Gate
from searchers.gate.trial_outcome import reason_of, status_of
from searchers.shared.conversation import SharedConversation
from searchers.shared.tools import ROLES, ToolCall, read_call
from searchers.stopping import Budget
from searchers.tune_searcher import TuneSearcher

_REPLY_CHARS = 4000


class SharedAgents(TuneSearcher):
    """Carries out one call after the other, and tells the conversation what it came to.

    A call that cannot be read or names no network that can be built is an `invalid call`, one by an agent whose tool it
    is not a `wrong role`, one about a candidate for which it is not due a `wrong task`. The search ends when the agents
    deploy a network, or in a dead end.

    A resumed conversation is told what the journal holds; a call that was not answered is asked for again, which the
    log of the engine's replies makes free, and what it had begun is not begun twice.

    Args:
        conversation: whose calls are carried out.
        repository: the journal.
        gate: what judges candidates.
        budget: trained candidates, tokens and money; proposals are calls.
        calls: how many there may be; then the conversation is a dead end.
        tolerance: as many failed calls in a row are a dead end, too.
    """

    def __init__(
        self,
        conversation: SharedConversation,
        *,
        repository: Repository,
        gate: Gate,
        budget: Budget,
        calls: int,
        tolerance: int,
    ) -> None:
        self.conversation, self.calls, self.tolerance = conversation, calls, tolerance
        self.chosen: int | None = None
        self.failed_in_a_row = 0
        self.held: dict[int, Candidate] = {}  # proposed, without an outcome yet
        self.passed: set[int] = set()  # of these: found to fit
        self._told: set[int] = set()  # numbers that the agents know
        self._settled: set[int] = set()  # numbers whose outcome they know
        self._open: tuple[Reply, ToolCall] | None = None  # a call under way
        super().__init__(conversation, repository=repository, gate=gate, budget=budget)

    def replay(self, repository: Repository) -> None:
        super().replay(repository)
        self.held = {candidate.number: candidate for candidate in self.waiting}
        self.waiting.clear()
        for called in repository.all(ToolCalled):
            self._remember(called, again=True)

    @property
    def exhausted(self) -> bool:
        """Whether the agents have deployed a network, or came to a dead end."""
        return bool(self.early_end.reason)

    def pump(self) -> None:
        for candidate, report in self.gate.poll():
            self._judge(candidate, report)
        while self._open is None and not self.exhausted and (reply := self.conversation.ask()) is not None:
            self._carry_out(reply)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        super().on_trial_complete(trial_id, result, error)
        self._answer(self._outcome(self.repository.records[-1]))

    # The way of a call --------------------------------------------------------------------------------------

    def _carry_out(self, reply: Reply) -> None:
        try:
            call = read_call(reply)
        except UnusableReply as error:
            failure: CallFailure = "engine failed" if reply.finish_reason == "error" else "invalid call"
            self._answer(f"no tool call: {error}", failure, reply=reply)
            return
        self._open = reply, call
        if ROLES[call.tool] != call.role:
            self._answer(f"{call.tool} is no tool of the {call.role} agent", "wrong role")
        elif call.tool == "propose":
            self._propose(call)
        elif call.tool == "deploy":
            self._deploy(call)
        elif (record := self._untold(call)) is not None:
            self._answer(self._outcome(record))
        elif (candidate := self.held.get(call.number or 0)) is None or candidate.number not in self._told:
            self._answer(f"no candidate #{call.number} waits for an outcome", "wrong task")
        elif call.tool == "train" and candidate.number not in self.passed:
            self._answer(f"#{candidate.number} was not evaluated", "wrong task")
        elif report := self.gate.submit(candidate):
            self._judge(candidate, report)

    def _propose(self, call: ToolCall) -> None:
        if self.left == 0:
            self._answer("no training is left: deploy a candidate", "wrong task")
            return
        try:
            candidate = self.conversation.notation.read(call.network)
        except (ConstructibilityError, ValueError) as error:
            self._answer(f"no network: {why(error) if isinstance(error, ValueError) else error}", "invalid call")
            return
        own = [one for one in self.held.values() if one.hash == candidate.hash and one.number not in self._told]
        twins = {one.hash: one.number for one in self.repository.proposed.values()}
        if not own and candidate.hash in twins:
            self._answer(f"equals candidate #{twins[candidate.hash]}: propose another one")
            return
        mine = own[0] if own else self._journal([candidate])[0]
        self.held[mine.number] = mine
        self._answer(f"#{mine.number} is proposed", number=mine.number)

    def _deploy(self, call: ToolCall) -> None:
        scored = {record.candidate.number for record in self.repository.records if record.scored}
        if call.number not in scored:
            self._answer(f"no candidate #{call.number} was trained", "wrong task")
            return
        self._answer(f"#{call.number} is deployed")

    def _judge(self, candidate: Candidate, report: FeasibilityReport) -> None:
        """Take a verdict: it answers `evaluate`; where the call is `train` the trial may begin."""
        assert self._open is not None, "verdicts are asked for by calls"
        if status_of(report) != "ok":
            self._finish(candidate, status_of(report), reason_of(report), report)
            self._answer(self._outcome(self.repository.records[-1]))
        elif self._open[1].tool == "train":
            self.ready.append((candidate, report))
        else:
            self._answer(f"#{candidate.number} fits{_sizes(report)}")

    def _answer(self, said: str, failure: CallFailure = "", *, reply: Reply | None = None, number: int = 0) -> None:
        """Write a call down with what it came to, then tell it."""
        call = None
        if reply is None:
            assert self._open is not None, "a call is under way"
            reply, call = self._open
        self._open = None
        cost = reply.cost
        self.spent += cost
        called = ToolCalled(
            role=call.role if call else "",
            tool=call.tool if call else "",
            number=number or (call.number if call else None),
            reply=reply.text[:_REPLY_CHARS],
            said=said,
            failure=failure,
            cost=cost,
        )
        self.repository.append(called)
        self._remember(called)

    def _remember(self, called: ToolCalled, *, again: bool = False) -> None:
        number, good = called.number or 0, not called.failure
        mine = next((r for r in self.repository.records if r.candidate.number == number), None)
        refused = mine is not None and (mine.feasibility is None or not mine.feasibility.feasible)
        self.failed_in_a_row = 0 if good else self.failed_in_a_row + 1
        if good and called.tool == "propose":
            self._told.add(number)
        elif good and called.tool == "evaluate" and not refused:
            self.passed.add(number)
        if good and (called.tool == "train" or (called.tool == "evaluate" and refused)):
            self._settled.add(number)
        if good and called.tool == "deploy":
            self.chosen = number
            self.early_end.reason = f"the agents deploy #{number}"
        left = self.calls - self.conversation.asked - 1
        self.conversation.tell(called.reply, f"{called.said}\n[{left} calls left]")
        if not self.exhausted:
            self.early_end.reason = self._dead_end(called, left)

    def _dead_end(self, last: ToolCalled, left: int) -> str:
        if self.failed_in_a_row >= self.tolerance:
            return f"a dead end: {self.failed_in_a_row} failed calls in a row, the last one: {last.said[:120]}"
        if left <= 0:
            return f"a dead end: all {self.calls} calls are used, and nothing is deployed"
        return f"a dead end: {self.overspent}" if self.overspent else ""

    # What is known ------------------------------------------------------------------------------------------

    @property
    def left(self) -> int | None:
        """How many candidates may still be trained; None: no limit."""
        return None if self.budget.trained is None else max(0, self.budget.trained - self.trained)

    def _untold(self, call: ToolCall) -> Record | None:
        """Return the outcome that a call had before an interruption, where the agents were not told."""
        if call.number in self._settled:
            return None
        return next((r for r in self.repository.records if r.candidate.number == call.number), None)

    def _outcome(self, record: Record) -> str:
        row = self.conversation.row(record, self.repository.records)
        return row if self.left is None else f"{row}\n{self.left} trainings left"

    def _learn(self, record: Record) -> None:
        super()._learn(record)
        self.held.pop(record.candidate.number, None)


def _sizes(report: FeasibilityReport) -> str:
    if report.least_ram_bytes is None or report.flash_bytes is None:
        return ""
    return f": RAM {report.least_ram_bytes / BYTES_PER_KB:.1f} KB, Flash {report.flash_bytes / BYTES_PER_KB:.1f} KB"
