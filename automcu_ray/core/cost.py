"""What a candidate or a run has cost: tokens, seconds, money."""

from collections.abc import Iterable

from automcu_ray.core.models import FrozenModel, Int64


class Cost(FrozenModel):
    """What one step has cost; costs add up with `+`."""

    prompt_tokens: Int64 = 0
    cached_tokens: Int64 = 0
    completion_tokens: Int64 = 0
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
        return [
            Cost(**{key: v // parts + (at < v % parts) if isinstance(v, int) else v / parts for key, v in self})
            for at in range(parts)
        ]

    def __add__(self, other: "Cost") -> "Cost":
        return Cost.model_construct(**{key: value + getattr(other, key) for key, value in self})  # a sum has no bound


def total(costs: Iterable[Cost]) -> Cost:
    """Return the sum of all costs."""
    return sum(costs, start=Cost())
