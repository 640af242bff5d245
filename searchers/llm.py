"""The proposal agent of paper 000, section III-B: reads selected records, proposes several specs at a time."""

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt

from automcu_ray.core.training_recipe import Positive
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from searchers.dialogue import prompts, record_selection
from searchers.dialogue.dialogue import Dialogue, Sampling, Script, TopP
from searchers.dialogue.llm_proposer import LLMProposer
from searchers.dialogue.prompts import Prompter
from searchers.dialogue.record_selection import Shown
from searchers.dialogue.reply_parsing import UnusableReply, read_candidates
from searchers.dialogue.reply_schemas import batch_schema
from searchers.engines.base import Engine

Context = Literal["selected", "none", "all", "shared"]
_SHOWN: dict[Context, Callable[[Sequence[Record], int], Shown]] = {
    "selected": record_selection.select,
    "all": lambda records, tokens: record_selection.everything(records),
    "none": lambda records, tokens: {},
    "shared": lambda records, tokens: {},
}


class LLM(LLMProposer):
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

    table_name = "llm"

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
            sampling=Sampling(temperature=temperature, top_p=top_p, max_tokens=max_tokens),
            batch=specs_per_call,
            parallel=parallel,
            patience=patience,
            backoff_s=backoff_s,
        )
        self.context, self.history_tokens = context, history_tokens
        self.prompter = Prompter(task, shared=context == "shared")

    def script(self, size: int) -> Script:
        """One question for several specs, and one repair: of an unreadable reply, or of specs that cannot be used."""
        space = self.task.space
        shown = _SHOWN[self.context](self.records, self.history_tokens)
        prompt = self.prompter.proposer(shown, self.records, size)

        def hold(dialogue: Dialogue) -> list[Candidate]:
            schema = batch_schema(size, space.operators)
            good, bad = dialogue.ask("proposer", 0, prompt, schema, lambda reply: read_candidates(reply, space, size))
            if not bad or dialogue.asked > 1:
                return [*good, *bad]
            problems = [candidate.violations[0].message for candidate in bad]
            again = prompts.replace(prompt, dialogue.last.text, problems, kept=len(good))
            reply = dialogue.complete("repair", 3, again, batch_schema(len(bad), space.operators))
            try:
                replaced, still_bad = read_candidates(reply, space, len(bad))
            except UnusableReply:
                return [*good, *bad]
            return [*good, *replaced, *still_bad]

        return hold
