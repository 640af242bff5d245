"""A bandit over proposers: whoever lately gained most for its cost comes first, and nobody is forgotten."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass
class _Arm:
    """Discounted sums over an arm's pulls."""

    gain: float = 0.0
    cost: float = 0.0
    pulls: float = 0.0

    @property
    def rate(self) -> float:
        """Gain per unit of cost; 0 before the first pull."""
        return self.gain / self.cost if self.cost else 0.0


class Bandit:
    """Discounted UCB (Garivier & Moulines 2011, arXiv:0805.3415, equations 3 to 5) over gains per unit of cost.

    With weights discount**age, age in pulls of any arm, an arm's index is

        (sum of gains / sum of costs) / scale + exploration * sqrt(ln(pulls of all arms) / its pulls)

    Dividing sums is what budgeted bandits do (Ding et al. 2013, AAAI, "Multi-armed bandit with budget constraint and
    variable costs"). The rule wants rewards between 0 and a known bound; gains have none and shrink as a run goes on,
    so `scale` is the largest rate lately: it follows at once when one rises, and falls half as fast as gains are
    forgotten.

    Args:
        arms: their names; the earlier one of equals comes first.
        discount: what remains of a pull's weight after each further pull; it remembers 1 / (1 - discount) of them.
        exploration: how much an arm that has not been pulled for long is worth.
    """

    def __init__(self, arms: Sequence[str], *, discount: float, exploration: float) -> None:
        self.discount, self.exploration = discount, exploration
        self.arms = {name: _Arm() for name in arms}
        self.scale = 0.0

    def learn(self, name: str, gain: float, cost: float) -> None:
        """Count one pull."""
        for arm in self.arms.values():
            arm.gain, arm.cost, arm.pulls = (self.discount * value for value in (arm.gain, arm.cost, arm.pulls))
        pulled = self.arms[name]
        pulled.gain, pulled.cost, pulled.pulls = pulled.gain + gain, pulled.cost + cost, pulled.pulls + 1
        rate = max(arm.rate for arm in self.arms.values())
        self.scale = max(rate, self.scale * math.sqrt(self.discount))

    def ranking(self, under_way: Mapping[str, int]) -> list[str]:
        """Return the arms, best first; pulls under way count as pulls that have gained nothing yet."""
        pulls = {name: arm.pulls + under_way.get(name, 0) for name, arm in self.arms.items()}
        log_of_all = math.log(max(1.0, sum(pulls.values())))

        def index(name: str) -> float:
            if not pulls[name]:
                return math.inf
            share = self.arms[name].rate / self.scale if self.scale else 0.0
            return share + self.exploration * math.sqrt(log_of_all / pulls[name])

        return sorted(self.arms, key=index, reverse=True)
