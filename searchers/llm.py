"""The proposal agent of paper 000, section III-B: reads selected records, proposes several specs at a time."""

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt

from automcu_ray.protocol import Positive
from automcu_ray.record import Candidate, Record
from automcu_ray.task import Task
from searchers import history, prompting
from searchers.engine_search import EngineSearch
from searchers.engines.base import Engine, Message
from searchers.history import Shown
from searchers.prompting import Prompter
from searchers.replies import UnusableReply, read_candidates
from searchers.schemas import batch_schema
from searchers.talk import Sampling, Talk, TalkId, TopP

Context = Literal["selected", "none", "all", "shared"]
_SHOWN: dict[Context, Callable[[Sequence[Record], int], Shown]] = {
    "selected": history.select,
    "all": lambda records, tokens: history.everything(records),
    "none": lambda records, tokens: {},
    "shared": lambda records, tokens: {},
}


class LLMSearch(EngineSearch):
    """One role, one engine: constraints, target, vocabulary and selected summaries of `R(k)` in; specs out.

    Args:
        task: what is searched for.
        seed: with the number of a conversation, the seed of each of its requests.
        engine: what answers; None is the rule-based `offline`.
        specs_per_call: how many candidates one answer holds.
        context: which records are shown: `selected` ones within `history_tokens`; the ablations `none`, `all` of
            them, or all in full as a conversation (`shared`).
        history_tokens: about how many tokens the selected summaries take, whatever the length of the run.
        temperature: of every request; 0 as published.
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
        specs_per_call: Positive = 4,
        context: Context = "selected",
        history_tokens: NonNegativeInt = 1200,
        temperature: NonNegativeFloat = 0.0,
        top_p: TopP = 1.0,
        max_tokens: Positive = 4096,
        parallel: Positive = 1,
        patience: Positive = 5,
        backoff_s: NonNegativeFloat = 1.0,
    ) -> None:
        super().__init__(
            task,
            seed=seed,
            engine=engine,
            per_talk=specs_per_call,
            parallel=parallel,
            patience=patience,
            backoff_s=backoff_s,
        )
        self.sampling = Sampling(temperature=temperature, top_p=top_p, max_tokens=max_tokens)
        self.context, self.history_tokens = context, history_tokens
        self.prompter = Prompter(task, shared=context == "shared")

    def talk(self, identity: TalkId) -> Talk:
        shown = _SHOWN[self.context](self.records, self.history_tokens)
        messages = self.prompter.proposer(shown, self.records, identity.begun.size)
        return _ProposalTalk(self.engine, identity, self.sampling, self.proposer, messages, self.task)


class _ProposalTalk(Talk):
    """One question for several specs, and one repair of those that cannot be used."""

    def __init__(
        self,
        engine: Engine,
        identity: TalkId,
        sampling: Sampling,
        proposer: str,
        messages: tuple[Message, ...],
        task: Task,
    ) -> None:
        super().__init__(engine, identity, sampling, proposer)
        self.messages, self.task, self.size = messages, task, identity.begun.size

    def candidates(self) -> list[Candidate]:
        space = self.task.space
        schema = batch_schema(self.size, space.operators)
        good, bad = self.ask(
            "proposer", 0, self.messages, schema, lambda reply: read_candidates(reply, space, self.size)
        )
        if not bad or self.asked > 1:  # one repair, of the whole or of parts
            return [*good, *bad]
        problems = [candidate.violations[0].message for candidate in bad]
        messages = prompting.replace_messages(self.messages, self.last.text, problems, kept=len(good))
        reply = self.complete("repair", 3, messages, batch_schema(len(bad), space.operators))
        try:
            replaced, still_bad = read_candidates(reply, space, len(bad))
        except UnusableReply:
            return [*good, *bad]
        return [*good, *replaced, *still_bad]
