"""Feedback-memory search (paper 002): an improver reads the outcomes, a generator writes the next network."""

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt

from automcu_ray.core.training_recipe import Positive
from automcu_ray.networks.candidate import Candidate, Diagnosis
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from searchers.dialogue.dialogue import Dialogue, Sampling, Script, TopP
from searchers.dialogue.feedback_memory import Memory
from searchers.dialogue.llm_proposer import LLMProposer
from searchers.dialogue.prompts import CandidateFormat, Prompter
from searchers.dialogue.reply_parsing import read_advice, read_candidate, read_code
from searchers.dialogue.reply_schemas import advice_schema, spec_schema
from searchers.engines.base import Engine


class LLMMemory(LLMProposer):
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

    table_name = "llm_memory"

    def __init__(
        self,
        task: Task,
        *,
        seed: int = 0,
        engine: Engine | None = None,
        form: CandidateFormat = "spec",
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
            task,
            seed=seed,
            engine=engine,
            sampling=Sampling(temperature=temperature, top_p=top_p, max_tokens=max_tokens),
            batch=1,
            parallel=parallel,
            patience=patience,
            backoff_s=backoff_s,
        )
        self.prompter = Prompter(task, form, reference, shared_context)
        self.improver, self.extended = improver, top_n > 0
        size = None if memory == "all" or shared_context else memory
        self.memory = Memory(size=size, top_size=max(1, top_n))

    def learn(self, record: Record) -> None:
        self.memory = self.memory.after(record)

    def script(self, size: int) -> Script:
        """Improver (once there is a record), then generator, each with one repair."""
        prompter, memory = self.prompter, self.memory  # as things stand now

        def hold(dialogue: Dialogue) -> list[Candidate]:
            parent, _ = memory.reference if prompter.reference else (None, None)
            dialogue.about["parent"] = parent.hash if parent else ""
            advice = None
            if self.improver and memory.current is not None:
                advice = dialogue.ask("improver", 0, prompter.improver(memory), advice_schema(), read_advice)
                dialogue.about["diagnosis"] = Diagnosis(problem=advice.problem, suggestion=advice.suggestion)
            # Advice is untrusted text: it goes into the next prompt and nowhere else.
            prompt = prompter.generator(memory, advice, extended=self.extended)
            if prompter.form == "code":
                return [dialogue.ask("generator", 1, prompt, None, read_code)]
            space = self.task.space
            schema = spec_schema(space.operators)
            return [dialogue.ask("generator", 1, prompt, schema, lambda reply: read_candidate(reply, space))]

        return hold
