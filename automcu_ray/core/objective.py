"""What a search looks for: the most accurate network within the limits, or the cheapest that is accurate enough."""

import math
from typing import Literal

from automcu_ray.core.feasibility import FeasibilityReport
from automcu_ray.core.models import FrozenModel
from automcu_ray.core.training_recipe import PROXY_ERRORS

Objective = Literal["accuracy", "instructions", "ram", "flash"]
_DECADES = 12  # of a cost: beyond any instructions or bytes of a microcontroller


class Aim(FrozenModel):
    """The cheapest network that is accurate enough: a cost to minimise, and the accuracy that is asked for.

    `floor` holds for networks that are trained fully. A proxy may be wrong `proxy_errors` times as often.
    """

    objective: Literal["instructions", "ram", "flash"]
    floor: float
    proxy_errors: float = PROXY_ERRORS

    @property
    def proxy_floor(self) -> float:
        """The accuracy after the proxy's training from which on a network counts as accurate enough."""
        return 1 - self.proxy_errors * (1 - self.floor)

    def cost(self, report: FeasibilityReport | None) -> int | None:
        """Return what a network costs, in instructions or bytes; None where nobody measured it."""
        if report is None:
            return None
        costs = {"instructions": report.instructions, "ram": report.ram_bytes, "flash": report.flash_bytes}
        return costs[self.objective]

    def score(self, accuracy: float, report: FeasibilityReport | None, *, proxy: bool = True) -> float:
        """Return a number that ranks networks, more is better.

        Below the floor it is what is missing in accuracy, as a negative number. From the floor on it is between 0 and 1
        and falls with the cost, by 1/12 for each factor of ten; 0 where the cost is not known.
        """
        missing = accuracy - (self.proxy_floor if proxy else self.floor)
        if not missing >= 0:
            return missing
        cost = self.cost(report)
        return 0.0 if not cost else max(0.0, 1 - math.log10(cost) / _DECADES)
