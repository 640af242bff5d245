"""The one conversation of agents that share their context: its transcript grows with every call."""

import threading
from typing import Any, ClassVar

from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Form, Task
from automcu_ray.records.record import Record
from searchers.dialogue import rows
from searchers.dialogue.notations import Notation, notation_of
from searchers.dialogue.prompts import render
from searchers.dialogue.rows import Known
from searchers.engines.base import Engine, Message, Reply, Request
from searchers.proposer import Proposer, SearchState
from searchers.shared.tools import schema

_SEEDS_PER_RUN = 1_000_000
_MAX_TOKENS = 4096


class SharedConversation(Proposer):
    """Asks an engine for the next call, with all that was said before; `SharedAgents` carries the calls out.

    It asks at temperature 0 as published. An engine that is not instant answers in a thread, so that Tune's loop turns.
    """

    proposes: ClassVar[tuple[Form, ...]] = ("network", "cell")
    name = "shared"

    def __init__(self, task: Task, engine: Engine, *, seed: int = 0, trained: int, calls: int) -> None:
        super().__init__(task, seed=seed)
        self.engine: Engine = engine
        found = notation_of(task)
        assert found is not None, "the compact form is always there"
        self.notation: Notation = found
        view = {"known": Known(task, self.notation), "blind": False, "trained": trained, "calls": calls}
        self.messages = [
            Message(role="system", content=render("shared_system", **view)),
            Message(role="user", content=render("shared", **view)),
        ]
        self.asked = 0
        self._thread: threading.Thread | None = None
        self._reply: Reply | None = None

    def propose(self, state: SearchState) -> Candidate | None:
        return None  # its proposals are calls among others

    def ask(self) -> Reply | None:
        """Return the next reply; None while the engine writes it."""
        if self.engine.instant:
            return self._complete()
        if self._thread is None:
            self._thread = threading.Thread(target=self._complete, name="shared agents", daemon=True)
            self._thread.start()
        if self._thread.is_alive():
            return None
        self._thread = None
        return self._reply

    def tell(self, reply: str, said: str) -> None:
        """Continue the transcript by a call and what it came to."""
        self.asked += 1
        answer = Message(role="assistant", content=reply or "(nothing)")
        self.messages += [answer, Message(role="user", content=said)]

    def row(self, record: Record, records: list[Record]) -> str:
        """Return what became of a candidate, as proposal agents that are isolated see it."""
        return rows.row(record, Known(self.task, self.notation, tuple(records)))

    def close(self) -> None:
        self.engine.close()

    def _complete(self) -> Reply:
        request = Request(
            role="shared",
            talk=1,
            messages=tuple(self.messages),
            json_schema=schema(),
            seed=self.seed * _SEEDS_PER_RUN + self.asked,
            temperature=0.0,
            top_p=1.0,
            max_tokens=_MAX_TOKENS,
        )
        try:
            self._reply = self.engine.complete([request])[0]
        except Exception as error:  # engines should not raise; a new one might
            self._reply = Reply.failed(error)
        return self._reply

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_thread": None, "_reply": None}
