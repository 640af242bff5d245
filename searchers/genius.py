"""GENIUS (Zheng et al. 2023, arXiv:2304.10970): the LLM baseline of paper 000 on NAS-Bench-201, one cell an answer."""

from typing import ClassVar

from pydantic import NonNegativeFloat

from automcu_ray.core.training_recipe import Positive
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Form, Task
from automcu_ray.runtime.config import Plugin
from searchers.dialogue import prompts
from searchers.dialogue.dialogue import Dialogue, Sampling, Script
from searchers.dialogue.llm_proposer import LLMProposer
from searchers.dialogue.notations import CellNotation
from searchers.dialogue.pacing import OnStall, Pacing, Share
from searchers.dialogue.reply_parsing import read_object, read_one
from searchers.dialogue.reply_schemas import cell_schema
from searchers.engines.base import Engine, Reply
from searchers.proposer import SearchState


class Genius(LLMProposer):
    """A black box: the model sees every cell so far with its validation accuracy, and names a better one.

    Args:
        task: the table that is searched.
        seed: with the number of a conversation, the seed of each of its requests.
        engine: what answers; None is the rule-based `offline`.
        temperature: of every request; 0 as published.
        max_tokens: of every reply.
        patience: engine failures in a row after which the search stops proposing.
        backoff_s: the first wait after an engine failure; it doubles.
        shown: cells that a prompt shows at most: half of them the best, the others the latest. Repeats are counted.
        stall: answers in a row without a new cell after which the engine counts as stuck.
        on_stall: then the search ends, or `fill` goes on alone.
        fill: a searcher that proposes where the engine is stuck.
        mend: above 0, a repeat becomes a cell that differs in one operation, without asking.
        repeats: an answer may name a cell that was tried: as published, where nothing but the prompt asks for others.
    """

    proposes: ClassVar[tuple[Form, ...]] = ("cell",)
    table_name = "genius"

    def __init__(
        self,
        task: Task,
        *,
        seed: int = 0,
        engine: Engine | None = None,
        temperature: NonNegativeFloat = 0.0,
        max_tokens: Positive = 1024,
        patience: Positive = 5,
        backoff_s: NonNegativeFloat = 1.0,
        shown: Positive = 20,
        stall: Positive = 8,
        on_stall: OnStall = "end",
        fill: Plugin | None = None,
        mend: Share = 1.0,
        repeats: bool = False,
    ) -> None:
        self.shown, self.repeats = shown, repeats
        self.notation = CellNotation(task.cells)
        super().__init__(
            task,
            seed=seed,
            engine=engine,
            sampling=Sampling(temperature=temperature, top_p=1.0, max_tokens=max_tokens),
            batch=1,
            pacing=Pacing(stall=stall, on_stall=on_stall, fill=fill, mend=mend),
            parallel=1,
            patience=patience,
            backoff_s=backoff_s,
        )

    def wanted(self, state: SearchState) -> int:
        waits = state.in_flight or self.coming  # each answer is to know all results before
        return 0 if waits else super().wanted(state)

    def script(self, size: int) -> Script:
        notation = self.notation
        prompt = prompts.cell(self.task, self.records, self.shown, notation)
        named = () if self.repeats else (notation.write(record.candidate) for record in self.records)
        schema = cell_schema(notation.pattern({cell for cell in named if cell}))

        def hold(dialogue: Dialogue) -> list[Candidate]:
            return [dialogue.ask("cell", 0, prompt, schema, lambda reply: read_cell(reply, notation))]

        return hold


def read_cell(reply: Reply, notation: CellNotation) -> Candidate:
    """Return the cell in a reply.

    Raises:
        UnusableReply: no JSON object, not six known letters, or no network.
    """
    found = read_object(reply)
    return read_one(found.get("cell", found), notation)  # rules answer with operations
