"""What a candidate or a run has cost: tokens, seconds, money."""

from collections.abc import Iterable
from typing import Any

from automcu_ray.frozen import Frozen


class Cost(Frozen):
    """One entry of the ledger; entries add up with `+`."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    llm_seconds: float = 0.0
    toolchain_cpu_seconds: float = 0.0
    train_seconds: float = 0.0
    board_seconds: float = 0.0
    usd: float = 0.0

    @property
    def tokens(self) -> int:
        """All tokens, read and written."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def seconds(self) -> float:
        """All seconds, wherever they were spent."""
        return self.llm_seconds + self.toolchain_cpu_seconds + self.train_seconds + self.board_seconds

    def split(self, parts: int) -> "list[Cost]":
        """Return what each of several candidates from one call has cost; the parts add up to the whole."""
        shares: list[dict[str, Any]] = [{} for _ in range(parts)]
        for key, value in self.model_dump().items():
            for index, share in enumerate(shares):
                whole = isinstance(value, int)
                share[key] = value // parts + (index < value % parts) if whole else value / parts
        return [Cost(**share) for share in shares]

    def __add__(self, other: "Cost") -> "Cost":
        mine, theirs = self.model_dump(), other.model_dump()
        return Cost(**{key: mine[key] + theirs[key] for key in mine})


def total(costs: Iterable[Cost]) -> Cost:
    """Return the sum of all entries."""
    return sum(costs, start=Cost())
