"""The proposal agent of paper 000, section III-B: reads selected records, proposes several candidates at a time."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Literal

from pydantic import NonNegativeFloat, NonNegativeInt

from automcu_ray.core.training_recipe import Positive
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Form, Task
from automcu_ray.records.record import Record
from automcu_ray.runtime.config import Plugin
from searchers.dialogue import compact_prompts, record_selection
from searchers.dialogue.asking import ask_for_several
from searchers.dialogue.dialogue import Dialogue, Sampling, Script, TopP
from searchers.dialogue.llm_proposer import LLMProposer
from searchers.dialogue.notations import NotationName, notation_of
from searchers.dialogue.pacing import OnStall, Pacing, Share
from searchers.dialogue.prompts import Prompter
from searchers.dialogue.record_selection import Shown
from searchers.dialogue.reply_parsing import read_candidates, read_networks
from searchers.dialogue.reply_schemas import batch_schema
from searchers.engines.base import Engine

Context = Literal["selected", "none", "all", "shared"]
_ALL = 10**9  # tokens
_SHOWN: dict[Context, Callable[[Sequence[Record], int], Shown]] = {
    "selected": record_selection.select,
    "all": lambda records, tokens: record_selection.everything(records),
    "none": lambda records, tokens: {},
    "shared": lambda records, tokens: {},
}


class LLM(LLMProposer):
    """One role, one engine: constraints, notation and selected rows of `R(k)` in; specs, or cells, out.

    Args:
        task: what is searched for.
        seed: with the number of a conversation, the seed of each of its requests.
        engine: what answers; None is the rule-based `offline`.
        specs_per_call: how many candidates one answer holds.
        notation: how networks are written: `compact`, a line each, or `json`, as in the paper; cells are compact.
        context: which records are shown: `selected` ones within `history_tokens`; the ablations `none`, `all` of
            them, or (with `json`) all in full as a conversation, `shared`.
        history_tokens: about how many tokens the selected summaries take, whatever the length of the run.
        temperature: of every request; 0 as published.
        top_p: of every request.
        max_tokens: of every reply.
        parallel: conversations at a time.
        patience: engine failures in a row after which the search stops proposing.
        backoff_s: the first wait after an engine failure; it doubles.
        seeds: candidates that the first answer holds; None: as many as any.
        ask_after: outcomes that each further request has to hold which none before it did.
        stall: answers in a row without anything new after which the engine counts as stuck.
        on_stall: then the search ends, or `fill` goes on alone.
        fill: a searcher that proposes while a slot would be idle.
        mend: up to which excess, as a share of the limit, a refused network is made to fit without asking; repeats are
            morphed then, too. 0: neither.
        blind_names: hides what the letters of cells mean: a control against knowing the benchmark.
    """

    proposes: ClassVar[tuple[Form, ...]] = ("network", "cell")
    table_name = "llm"

    def __init__(
        self,
        task: Task,
        *,
        seed: int = 0,
        engine: Engine | None = None,
        specs_per_call: Positive = 4,
        notation: NotationName = "compact",
        context: Context = "selected",
        history_tokens: NonNegativeInt = 1200,
        temperature: NonNegativeFloat = 0.0,
        top_p: TopP = 1.0,
        max_tokens: Positive = 4096,
        parallel: Positive = 1,
        patience: Positive = 5,
        backoff_s: NonNegativeFloat = 1.0,
        seeds: Positive | None = None,
        ask_after: NonNegativeInt = 1,
        stall: Positive = 8,
        on_stall: OnStall = "end",
        fill: Plugin | None = None,
        mend: Share = 1.0,
        blind_names: bool = False,
    ) -> None:
        super().__init__(
            task,
            seed=seed,
            engine=engine,
            sampling=Sampling(temperature=temperature, top_p=top_p, max_tokens=max_tokens),
            batch=specs_per_call,
            pacing=Pacing(
                seeds=seeds or specs_per_call,
                ask_after=ask_after,
                stall=stall,
                on_stall=on_stall,
                fill=fill,
                mend=mend,
            ),
            parallel=parallel,
            patience=patience,
            backoff_s=backoff_s,
        )
        self.context, self.history_tokens, self.forgets = context, history_tokens, context == "none"
        self.prompter = Prompter(task, shared=context == "shared")
        self.notation = notation_of(task, notation, shared=context == "shared", blind=seed if blind_names else None)

    def script(self, size: int) -> Script:
        """One question for several candidates, and one repair: of an unreadable reply, or of what cannot be used."""
        if self.notation is None:
            return self._json_script(size)
        known = self.known(self.notation)
        if self.context == "none":
            known = known._replace(records=(), pending=(), left=None)
        prompt = compact_prompts.designer(known, size, _ALL if self.context == "all" else self.history_tokens)
        role = "cell" if self.task.form == "cell" else "proposer"

        def hold(dialogue: Dialogue) -> list[Candidate]:
            read = partial(read_networks, notation=known.notation)
            return ask_for_several(
                dialogue,
                role,
                0,
                prompt,
                size,
                partial(compact_prompts.schema, known),
                lambda reply, count: read(reply, count=count),
                patch=False,
            )

        return hold

    def _json_script(self, size: int) -> Script:
        space = self.task.space
        shown = _SHOWN[self.context](self.records, self.history_tokens)
        prompt = self.prompter.proposer(shown, self.records, size)

        def hold(dialogue: Dialogue) -> list[Candidate]:
            return ask_for_several(
                dialogue,
                "proposer",
                0,
                prompt,
                size,
                lambda count: batch_schema(count, space),
                lambda reply, count: read_candidates(reply, space, count),
            )

        return hold
