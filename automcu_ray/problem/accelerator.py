"""Accelerators as data: what a neural network engine beside the core can do, and what it has room for."""

from pydantic import Field

from automcu_ray.core.models import FrozenModel
from automcu_ray.networks.operator_limits import Operator


class Count(FrozenModel):
    """A limit that is a number, and where it is documented."""

    value: int = Field(gt=0)
    source: str


class Memory(FrozenModel):
    """A memory in equal parts (the smaller ones, where they differ): what must lie together fits in one part."""

    total_bytes: int = Field(gt=0)
    part_bytes: int = Field(gt=0)
    source: str


class Accelerator(FrozenModel):
    """A convolution engine with memories of its own; a processor handles one input channel at a time.

    Attributes:
        name: the device, as its toolchain calls it.
        operators: what it runs of the specification.
        operators_source: where that is documented.
        weight_memory: 8-bit weights; a part belongs to one processor.
        bias_memory: 8-bit biases; a part belongs to a quarter of the processors.
        data_memory: activations; a part is shared by four processors, and a feature map lies in one.
        max_layers: of the hardware, which a block of the specification may need several of.
        max_channels: of a layer's input, or of its output.
        max_extent: rows or columns of a feature map.
        max_window: rows or columns of a pooling window, so also of a map that is pooled as a whole.
        max_pooled_channels: of a pooling layer that no convolution follows directly, unless it leaves 1x1.
        max_added_channels: of an addition.
    """

    name: str
    operators: tuple[Operator, ...] = Field(min_length=1)
    operators_source: str
    weight_memory: Memory
    bias_memory: Memory
    data_memory: Memory
    max_layers: Count
    max_channels: Count
    max_extent: Count
    max_window: Count
    max_pooled_channels: Count
    max_added_channels: Count

    def operator(self, kind: str) -> Operator | None:
        """Return what is known about a layer type; None where the accelerator does not run it."""
        return next((operator for operator in self.operators if operator.type == kind), None)
