"""One layer of a network, as the C sees it: a kernel, what it takes, and which memory it may share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from automcu_ray.problem.target import Core
from automcu_ray.sizing.peak_memory import Lag
from backends.c_qemu.overlaps import Copy

Variant = Literal["scalar", "dsp", "helium"]
Array = npt.NDArray[Any]
Field = int | float | tuple[int, ...] | Array | None
_DSP = ("cortex-m4f", "cortex-m7f", "cortex-m7d", "cortex-m33f")


def variant_of(core: Core | None) -> Variant:
    """Return the kernels for a core; None stands for any processor."""
    return "dsp" if core in _DSP else "helium" if core == "cortex-m55d" else "scalar"


@dataclass(frozen=True)
class Layer:
    """One call of a kernel, or of one for each input, or copies alone.

    `node` names it in reports, `reads` and `write` are tensors of the graph. `fields` fill the kernel's struct: arrays
    become constants of their own. With `parts` there is a struct and a call for each input, all to one output. The
    output may lie over an input at the `lags` (in bytes), from the end too where the kernel can turn round. `bound` is
    the largest |sum * scale| that can come up. `roomy` computes the same faster, with more scratch; `small` with a
    kernel that other layers need anyway. `state_bytes` is what it keeps from step to step.
    """

    node: str
    kernel: str
    struct: str
    reads: tuple[str, ...]
    write: str
    fields: Mapping[str, Field]
    lags: Mapping[str, Lag]
    scratch_bytes: int = 0
    scales: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    bound: float = 0.0
    copies: tuple[Copy, ...] = ()
    parts: tuple[Mapping[str, Field], ...] = ()
    roomy: "Layer | None" = None
    small: "Layer | None" = None
    state_bytes: int = 0

    @property
    def structs(self) -> tuple[Mapping[str, Field], ...]:
        """What fills the structs, in the order of the calls."""
        return self.parts or (() if self.copies else (self.fields,))

    @property
    def weights_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(
            value.nbytes for fields in self.structs for value in fields.values() if isinstance(value, np.ndarray)
        )

    @property
    def has_wide_scales(self) -> bool:
        """Whether the shortcut of rounding in integers does not hold: scales of 1/4 or more, or tiny."""
        used = self.scales[self.scales != 0]
        return bool((used >= 0.25).any() or (used < 2.0**-30).any())
