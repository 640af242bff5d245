"""Feedback-memory search (paper 002): an improver reads the outcomes, a generator writes the next network."""

from functools import partial
from typing import ClassVar, Literal

from pydantic import NonNegativeFloat, NonNegativeInt

from automcu_ray.core.training_recipe import Positive
from automcu_ray.networks.candidate import Candidate, Diagnosis
from automcu_ray.problem.task import Form, Task
from automcu_ray.records.record import Record
from automcu_ray.runtime.config import Plugin
from searchers.dialogue import compact_prompts, rows
from searchers.dialogue.asking import ask_for_several
from searchers.dialogue.dialogue import Dialogue, Sampling, Script, TopP
from searchers.dialogue.feedback_memory import Memory
from searchers.dialogue.llm_proposer import LLMProposer
from searchers.dialogue.notations import CodeNotation, NotationName, notation_of
from searchers.dialogue.pacing import OnStall, Pacing, Share
from searchers.dialogue.prompts import CandidateFormat, Prompter, Told
from searchers.dialogue.reply_parsing import read_advice, read_candidate, read_code, read_networks
from searchers.dialogue.reply_schemas import SHORT_ADVICE_CHARS, advice_schema, spec_schema
from searchers.engines.base import Engine, Reply

_ONE_ROLE = 3  # networks an answer of the one role: its prompt is the same for one


class LLMMemory(LLMProposer):
    """Two roles, one engine: what limits the last network, and the next network (paper 002, algorithm 1).

    With `roles: one`, which is ours, a single request reads rows and lessons, plans, and proposes several networks.

    Args:
        task: what is searched for.
        seed: with the number of a conversation, the seed of each of its requests.
        engine: what answers; None is the rule-based `offline`.
        form: candidates are structured specs, or PyTorch code in which anything can be written.
        notation: how specs are written: `compact`, a line each, or `json`; cells are compact, code is code.
        roles: `two` as published, or `one`.
        per_call: candidates an answer; None: one of two roles, three of one role.
        history_tokens: about how many tokens of rows one role reads.
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
    table_name = "llm_memory"

    def __init__(
        self,
        task: Task,
        *,
        seed: int = 0,
        engine: Engine | None = None,
        form: CandidateFormat = "spec",
        notation: NotationName = "compact",
        roles: Literal["one", "two"] = "two",
        per_call: Positive | None = None,
        history_tokens: NonNegativeInt = 500,
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
        seeds: Positive | None = None,
        ask_after: NonNegativeInt = 1,
        stall: Positive = 8,
        on_stall: OnStall = "end",
        fill: Plugin | None = None,
        mend: Share = 1.0,
        blind_names: bool = False,
    ) -> None:
        blind = seed if blind_names else None
        found = None if form == "code" else notation_of(task, notation, shared=shared_context, blind=blind)
        one = roles == "one" and found is not None
        batch = (per_call or (_ONE_ROLE if one else 1)) if found is not None else 1
        first = max(batch, seeds or 1) if found is not None else 1
        super().__init__(
            task,
            seed=seed,
            engine=engine,
            sampling=Sampling(temperature=temperature, top_p=top_p, max_tokens=max_tokens),
            batch=batch,
            pacing=Pacing(seeds=first, ask_after=ask_after, stall=stall, on_stall=on_stall, fill=fill, mend=mend),
            parallel=parallel,
            patience=patience,
            backoff_s=backoff_s,
        )
        self.prompter = Prompter(task, form, reference, shared_context)
        self.notation, self.one_role, self.history_tokens = found, one, history_tokens
        self.improver, self.extended = improver, top_n > 0
        size = None if memory == "all" or shared_context else memory
        self.memory = Memory(size=size, top_size=max(1, top_n))

    def learn(self, record: Record) -> None:
        super().learn(record)
        self.memory = self.memory.after(record)

    def script(self, size: int) -> Script:
        """Improver (once there is a record), then generator, each with one repair; or one role."""
        if self.notation is None:
            return self._plain_script()
        known, memory = self.known(self.notation), self.memory  # as things stand now
        reference, top = self.prompter.reference, self.memory.top_size if self.extended else 0
        schema = partial(compact_prompts.schema, known)
        tokens = 0 if memory.size == 0 else self.history_tokens // 3  # without history none comes in by rows
        generator = "cell" if self.task.form == "cell" else "generator"

        def read(reply: Reply, count: int) -> tuple[list[Candidate], list[Candidate]]:
            return read_networks(reply, known.notation, count)

        def hold(dialogue: Dialogue) -> list[Candidate]:
            if self.one_role:
                prompt = compact_prompts.designer(known, size, self.history_tokens, memory)
                return ask_for_several(dialogue, generator, 0, prompt, size, schema, read, patch=False)
            parent = memory.reference[0] if reference else None
            advice = None
            if self.improver and memory.current is not None:
                told = compact_prompts.adviser(known, memory, reference=reference)
                advice = dialogue.ask("improver", 0, told, advice_schema(*SHORT_ADVICE_CHARS), read_advice)
                dialogue.about["diagnosis"] = Diagnosis(problem=advice.problem, suggestion=advice.suggestion)
            dialogue.about["parent"] = parent.hash if parent else ""
            prompt = compact_prompts.builder(known, memory, advice, size, reference=reference, top=top, tokens=tokens)
            return ask_for_several(dialogue, generator, 1, prompt, size, schema, read, patch=False)

        return hold

    def _plain_script(self) -> Script:
        """Return the conversation of the paper's own forms: a spec as JSON, or code."""
        prompter, memory = self.prompter, self.memory  # as things stand now
        tokens = self.history_tokens if memory.size != 0 else 0
        known = self.known(CodeNotation())
        told = Told(known, rows.rows(known, tokens)) if prompter.form == "code" else None

        def hold(dialogue: Dialogue) -> list[Candidate]:
            parent, _ = memory.reference if prompter.reference else (None, None)
            dialogue.about["parent"] = parent.hash if parent else ""
            advice = None
            if self.improver and memory.current is not None:
                advice = dialogue.ask("improver", 0, prompter.improver(memory, told), advice_schema(), read_advice)
                dialogue.about["diagnosis"] = Diagnosis(problem=advice.problem, suggestion=advice.suggestion)
            # Advice is untrusted text: it goes into the next prompt and nowhere else.
            prompt = prompter.generator(memory, advice, extended=self.extended, told=told)
            if prompter.form == "code":
                return [dialogue.ask("generator", 1, prompt, None, read_code)]
            space = self.task.space
            schema = spec_schema(space)
            return [dialogue.ask("generator", 1, prompt, schema, lambda reply: read_candidate(reply, space))]

        return hold
