"""What a candidate or a run has cost: tokens, seconds, money."""

from collections.abc import Iterable

from automcu_ray.target import Frozen


class Cost(Frozen):
    """One entry of the ledger; entries add up with `+`."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    llm_seconds: float = 0.0
    toolchain_cpu_seconds: float = 0.0
    train_seconds: float = 0.0
    board_seconds: float = 0.0
    usd: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        mine, theirs = self.model_dump(), other.model_dump()
        return Cost(**{key: mine[key] + theirs[key] for key in mine})


def total(costs: Iterable[Cost]) -> Cost:
    """Return the sum of all entries."""
    return sum(costs, start=Cost())
