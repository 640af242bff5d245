"""The interface of search algorithms. A proposer knows no Ray, gate, journal or budget; `TuneSearcher` drives it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Form, Task
from automcu_ray.records.record import Record
from searchers.engines.base import Engine
from searchers.gate.prefilter import Prefilter

_DRAWS = 50


class NoMoreProposals(Exception):
    """A proposer has nothing left to propose and awaits nothing; the message says why."""


@dataclass(frozen=True)
class SearchState:
    """The state of the search at the moment a proposer is asked; everything else it has learned from records.

    Attributes:
        rng: for this proposal alone, seeded by the run's seed and the proposal's number, so that a resumed run
            proposes what an uninterrupted one would have.
        prefilter: tells which candidates are sure to be refused, without any toolchain.
        known: the number of every network proposed so far, whoever proposed it, by hash.
        active: candidates proposed that have no record yet.
        number: the number that the next proposal will get.
        stock: candidates that wait for a verdict or for a slot; with none, the next free slot stays empty.
        in_flight: how many candidates wait for a verdict, for a slot or for the end of training; while there are any,
            further records will come.
        room: how many further candidates the budgets allow; None: no limit.
        overspent: which budget of tokens or money is used up, or ""; proposals that cost neither may go on.
        closed: why nothing new may be begun, or ""; candidates asked for before are still accepted.
    """

    rng: Random
    prefilter: Prefilter
    known: Mapping[str, int] = field(default_factory=dict)
    active: Collection[Candidate] = ()
    number: int = 0
    stock: int = 0
    in_flight: int = 0
    room: int | None = None
    overspent: str = ""
    closed: str = ""

    def promising(self, draw: Callable[[], Candidate], *, check_bounds: bool = True) -> Candidate:
        """Return the first of 50 drawn candidates that is new and not sure to be refused, else the last new one.

        Where none is new, as in a small space that is used up, return the last one drawn. Without `check_bounds`, what
        the analytic bound refuses may be returned.
        """
        new = None
        for _ in range(_DRAWS):
            if (candidate := draw()).hash not in self.known:
                new = candidate
                if not self.prefilter.refuses(candidate, check_bounds=check_bounds):
                    break
        return new or candidate


class Proposer(ABC):
    """Proposes candidates and learns from records; only `propose` must be written.

    `propose` must not block: it returns within tens of milliseconds (the first call of `capacity`, which fills every
    usual layout, takes up to a second). Randomness comes from `state.rng`, or from generators seeded by `seed`, never
    from a module.

    Attributes:
        proposes: networks (specs or code), cells of NAS-Bench-201, or either, as the task wants.
        name: the proposer named in records, where a candidate names none itself; "" is the name of the class.
        batch: how many candidates come at once.
        engine: the engine that it asks, if any.
        ordered: how many candidates an engine has been asked for, and perhaps paid for, that have not come yet.
    """

    proposes: ClassVar[tuple[Form, ...]] = ("network",)
    name: ClassVar[str] = ""
    batch: int = 1
    engine: Engine | None = None

    def __init__(self, task: Task, *, seed: int = 0) -> None:
        self.task = task
        self.seed = seed

    @abstractmethod
    def propose(self, state: SearchState) -> Candidate | Sequence[Candidate] | None:
        """Return the next candidate, or several that came at once, or None for "not ready yet".

        Raises:
            NoMoreProposals: there will be none, unless further records come from elsewhere.
        """

    def observe(self, record: Record) -> None:  # noqa: B027 - some learn nothing
        """Learn from one record, whoever proposed it; its status says whether it trained."""

    def resume(self, proposed: Collection[Candidate], pending: Collection[Candidate]) -> None:  # noqa: B027
        """Continue a search that proposed these; called after `observe` has had its records. `pending` have none."""

    def prepare(self, state: SearchState) -> None:  # noqa: B027 - most take no time
        """Begin slow work, such as a question to an engine; called repeatedly while few candidates are in stock."""

    @property
    def ordered(self) -> int:
        return 0

    def close(self) -> None:  # noqa: B027 - most hold nothing open
        """End whatever goes on in other threads or processes; nothing more will be proposed."""
