"""What happens in a run: one typed event a line of its journal, told apart by `event`."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from automcu_ray.core.cost import Cost
from automcu_ray.core.models import FrozenModel, Int64
from automcu_ray.networks.candidate import Candidate
from automcu_ray.records.attempt import Attempt, Observation
from automcu_ray.records.manifest import Manifest
from automcu_ray.records.record import Finalist, Measured, Record
from automcu_ray.records.search_dynamics import Trend


class Event(FrozenModel):
    """Something that happened. What has a default was not told by all versions.

    A key that only a later version knows is passed over, for what an event says beside changes nothing that is read
    here. What it holds (a candidate, a record, a verdict) has to be understood whole, and so has its kind.
    """

    model_config = ConfigDict(extra="ignore")


Decision = Literal["search", "reassign", "end_search", "train_fully", "ship", "end", "fail"]
Agent = Literal["", "proposal", "training", "evaluation"]
CallFailure = Literal["", "invalid call", "wrong role", "wrong task", "engine failed"]


class EngineUsed(FrozenModel):
    """The engine that a searcher asks."""

    name: str
    model: str = ""
    is_language_model: bool = False


class Started(Event):
    """A run began, or went on; `data` is what the data set says of itself."""

    event: Literal["started"] = "started"
    at_s: float = 0.0
    resumed: bool = False
    versions: dict[str, str] = Field(default_factory=dict)
    engine: EngineUsed | None = None
    host: dict[str, str] = Field(default_factory=dict)
    data: dict[str, str | Int64] | None = None


class Proposed(Event):
    """A searcher proposed a candidate, which may have been paid for."""

    event: Literal["proposed"] = "proposed"
    candidate: Candidate


class RecordAdded(Event):
    """A candidate has its final outcome."""

    event: Literal["record"] = "record"
    record: Record


class Decided(Event):
    """The supervisor decided something, on disk before it is carried out: what, whose work, which candidates, and why.

    `reassign` hands an agent's lost work out once more, `fail` ends a run that shared agents brought to a dead end.
    """

    event: Literal["decided"] = "decided"
    decision: Decision
    agent: Agent = ""
    numbers: tuple[Int64, ...] = ()
    reason: str
    at_s: float = 0.0


class ToolCalled(Event):
    """Agents that share one conversation called a tool, or failed to; the transcript is all of these.

    `reply` is what the engine wrote, `said` what the conversation was told then; `failure` is empty for a call that
    was carried out. `cost` is the call's, which no candidate carries.
    """

    event: Literal["tool_called"] = "tool_called"
    role: str = ""
    tool: str = ""
    number: Int64 | None = None
    reply: str
    said: str
    failure: CallFailure = ""
    cost: Cost = Cost()


class SentenceRead(Event):
    """Before the run began an engine was asked what a sentence wants; `said` is what came of it.

    `cost` is that of all questions about it, which no candidate carries.
    """

    event: Literal["sentence_read"] = "sentence_read"
    sentence: str
    said: str
    cost: Cost = Cost()


class Searched(Event):
    """The search ended, or was interrupted; `gave_up` says why it ended early, if it did."""

    event: Literal["searched"] = "searched"
    seconds: float | None = None
    slot_busy_share: float | None = None
    interrupted: bool = False
    trend: Trend | None = None
    gave_up: str = ""


class Brought(Event):
    """A user's own network came in, and nothing is searched: its file, the command for it, what was changed in it."""

    event: Literal["brought"] = "brought"
    file: str
    command: str = ""
    changes: tuple[str, ...] = ()


class TeacherChosen(Event):
    """The finalist that is best in float teaches the others."""

    event: Literal["teacher"] = "teacher"
    number: Int64
    hash: str


class FinalistEvaluated(Finalist, Event):
    """A finalist went the whole way but the test set: its fields stand beside `event`."""

    event: Literal["finalist"] = "finalist"


class TestRead(Event):
    """The test set was opened; `images` is 0 where one accuracy was looked up."""

    event: Literal["test_read"] = "test_read"
    reader: str = ""
    images: Int64


class Finished(Event):
    """The run came to its end; no manifest: no finalists were asked for. `others` ship beside the winner, by name."""

    event: Literal["finished"] = "finished"
    manifest: Manifest | None
    others: dict[str, Manifest] = Field(default_factory=dict)
    seconds: float | None = None


class NetworkMeasured(Event):
    """A training of a fidelity study ended."""

    event: Literal["measured"] = "measured"
    measured: Measured


class AttemptMade(Event):
    """An agent of the arena ended an attempt; its artifact is kept."""

    event: Literal["attempt_made"] = "attempt_made"
    attempt: Attempt


class AttemptObserved(Event):
    """An artifact of the arena was judged."""

    event: Literal["attempt_observed"] = "attempt_observed"
    observation: Observation


AnyEvent = Annotated[
    Started
    | Proposed
    | RecordAdded
    | Decided
    | ToolCalled
    | SentenceRead
    | Searched
    | Brought
    | TeacherChosen
    | FinalistEvaluated
    | TestRead
    | Finished
    | NetworkMeasured
    | AttemptMade
    | AttemptObserved,
    Field(discriminator="event"),
]
