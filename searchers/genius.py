"""GENIUS (Zheng et al. 2023, arXiv:2304.10970): the LLM baseline of paper 000 on NAS-Bench-201, one cell an answer."""

from typing import ClassVar

from pydantic import NonNegativeFloat, ValidationError

from automcu_ray.cell import CellSpec
from automcu_ray.cell_space import CellSpace
from automcu_ray.graph import ConstructibilityError
from automcu_ray.protocol import Positive
from automcu_ray.record import Candidate
from automcu_ray.spec import explain
from automcu_ray.task import Form, Task
from searchers import prompting
from searchers.engine_search import EngineSearch
from searchers.engines.base import Engine, Message, Reply
from searchers.replies import read_object, unusable
from searchers.schemas import cell_schema
from searchers.talk import Sampling, Talk, TalkId


class GeniusSearch(EngineSearch):
    """A black box: the model sees every cell so far with its validation accuracy, and names a better one.

    Args:
        task: the table that is searched.
        seed: with the number of a conversation, the seed of each of its requests.
        engine: what answers; None is the rule-based `offline`.
        temperature: of every request; 0 as published.
        max_tokens: of every reply.
        patience: engine failures in a row after which the search stops proposing.
        backoff_s: the first wait after an engine failure; it doubles.
    """

    proposes: ClassVar[tuple[Form, ...]] = ("cell",)

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
    ) -> None:
        super().__init__(task, seed=seed, engine=engine, per_talk=1, parallel=1, patience=patience, backoff_s=backoff_s)
        self.sampling = Sampling(temperature=temperature, top_p=1.0, max_tokens=max_tokens)

    def wanted(self) -> int:
        return 0 if self.in_flight or self.coming else super().wanted()  # each answer is to know all results before

    def talk(self, identity: TalkId) -> Talk:
        messages = prompting.cell_messages(self.task, self.records)
        return _CellTalk(self.engine, identity, self.sampling, self.proposer, messages, self.task.cells)


class _CellTalk(Talk):
    """One question, and one repair."""

    def __init__(
        self,
        engine: Engine,
        identity: TalkId,
        sampling: Sampling,
        proposer: str,
        messages: tuple[Message, ...],
        space: CellSpace,
    ) -> None:
        super().__init__(engine, identity, sampling, proposer)
        self.messages, self.space = messages, space

    def candidates(self) -> list[Candidate]:
        return [self.ask("cell", 0, self.messages, cell_schema(), self._read)]

    def _read(self, reply: Reply) -> Candidate:
        return read_cell(reply, self.space)


def read_cell(reply: Reply, space: CellSpace) -> Candidate:
    """Return the cell in a reply.

    Raises:
        UnusableReply: no JSON object, not six known operations, or no network.
    """
    try:
        cell = CellSpec.model_validate(read_object(reply))
        return space.candidate(list(cell.operations))
    except ValidationError as error:
        raise unusable(explain(error)) from error
    except ConstructibilityError as error:
        raise unusable(str(error)) from error
