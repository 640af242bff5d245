"""Outputs of a board beside onnxruntime's: the same bits at int8, within the rounding of sums at float32."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from automcu_ray.problem.precision import Precision

FLOAT32_ROUNDING = 1e-4  # relative to the largest output; 1e-7 is the largest seen, a wrong layer is off by far more


@dataclass(frozen=True)
class Agreement:
    """How many outputs are equal in every byte, the largest difference of a value, and whether that is none."""

    bit_equal: int
    largest_difference: float
    agrees: bool


def compare(outputs: npt.NDArray[Any], expected: npt.NDArray[Any], precision: Precision) -> Agreement:
    """Return how outputs (N, classes) agree with what is expected of them."""
    equal = sum(ours.tobytes() == theirs.tobytes() for ours, theirs in zip(outputs, expected, strict=True))
    difference = float(np.abs(outputs.astype(np.float64) - expected).max())
    rounding = 0.0 if precision == "int8" else FLOAT32_ROUNDING * float(np.abs(expected).max() + 1)
    return Agreement(equal, difference, difference <= rounding)
