"""Feedback-memory search (paper 002): an improver reads the outcomes, a generator writes the next network."""

from dataclasses import dataclass
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt

from automcu_ray.protocol import Positive
from automcu_ray.record import Candidate, Diagnosis, Record
from automcu_ray.task import Task
from searchers.engine_search import EngineSearch
from searchers.engines.base import Engine
from searchers.memory import Memory
from searchers.prompting import Form, Prompter
from searchers.replies import read_advice, read_candidate, read_code
from searchers.schemas import Advice, advice_schema, spec_schema
from searchers.talk import Sampling, Talk, TalkId, TopP


class LLMMemorySearch(EngineSearch):
    """Two roles, one engine: what limits the last network, and the next network (paper 002, algorithm 1).

    Args:
        task: what is searched for.
        seed: with the number of a conversation, the seed of each of its requests.
        engine: what answers; None is the rule-based `offline`.
        form: candidates are structured specs, or PyTorch code in which anything can be written.
        memory: how many diagnostic triples are shown (K); ablations: 0 is no history, `all` is unbounded.
        improver: False leaves the improver out: the generator reads the history itself (an ablation).
        reference: False shows no architecture to start from (an ablation).
        shared_context: True puts all records in full before every question (an ablation).
        top_n: how many of the best networks the generator sees beside the last K whole attempts, for models with a
            long context; 0 is the standard prompt.
        temperature: of every request.
        top_p: of every request.
        max_tokens: of every reply.
        parallel: conversations at a time.
        patience: engine failures in a row after which the search stops proposing.
        backoff_s: the first wait after an engine failure; it doubles.
    """

    def __init__(
        self,
        task: Task,
        *,
        seed: int = 0,
        engine: Engine | None = None,
        form: Form = "spec",
        memory: NonNegativeInt | Literal["all"] = 5,
        improver: bool = True,
        reference: bool = True,
        shared_context: bool = False,
        top_n: NonNegativeInt = 0,
        temperature: NonNegativeFloat = 0.7,
        top_p: TopP = 0.9,
        max_tokens: Positive = 2048,
        parallel: Positive = 2,
        patience: Positive = 5,
        backoff_s: NonNegativeFloat = 1.0,
    ) -> None:
        super().__init__(
            task, seed=seed, engine=engine, per_talk=1, parallel=parallel, patience=patience, backoff_s=backoff_s
        )
        self.sampling = Sampling(temperature=temperature, top_p=top_p, max_tokens=max_tokens)
        self.prompter = Prompter(task, form, reference, shared_context)
        self.improver, self.extended = improver, top_n > 0
        size = None if memory == "all" or shared_context else memory
        self.memory = Memory(size=size, top_size=max(1, top_n))

    def learn(self, record: Record) -> None:
        self.memory = self.memory.after(record)

    def talk(self, identity: TalkId) -> Talk:
        view = _View(self.prompter, self.memory, self.improver, self.extended)
        return _MemoryTalk(self.engine, identity, self.sampling, self.proposer, view)


@dataclass(frozen=True)
class _View:
    """What a conversation may know, as things stood when it began."""

    prompter: Prompter
    memory: Memory
    improver: bool
    extended: bool


class _MemoryTalk(Talk):
    """Improver, then generator, each with one repair."""

    def __init__(self, engine: Engine, identity: TalkId, sampling: Sampling, proposer: str, view: _View) -> None:
        super().__init__(engine, identity, sampling, proposer)
        self.view = view
        parent, _ = view.memory.reference if view.prompter.reference else (None, None)
        self.about["parent"] = parent.hash if parent else ""

    def candidates(self) -> list[Candidate]:
        advice = self._improve()
        if advice is not None:
            self.about["diagnosis"] = Diagnosis(problem=advice.problem, suggestion=advice.suggestion)
        return [self._generate(advice)]

    def _improve(self) -> Advice | None:
        """Return what to change; None where nothing has been tried yet."""
        view = self.view
        if not view.improver or view.memory.current is None:
            return None
        return self.ask("improver", 0, view.prompter.improver(view.memory), advice_schema(), read_advice)

    def _generate(self, advice: Advice | None) -> Candidate:
        """Return a candidate. The advice is hostile text too: it goes into the prompt and nowhere else."""
        prompter = self.view.prompter
        messages = prompter.generator(self.view.memory, advice, extended=self.view.extended)
        if prompter.form == "code":
            return self.ask("generator", 1, messages, None, read_code)
        space = prompter.task.space
        schema = spec_schema(space.operators)
        return self.ask("generator", 1, messages, schema, lambda reply: read_candidate(reply, space))
