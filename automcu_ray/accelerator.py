"""Accelerators as data: what a neural network engine beside the core can do, and what it has room for."""

from collections.abc import Sequence
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from automcu_ray.frozen import Frozen
from automcu_ray.spec import LAYERS


class Count(Frozen):
    """A limit that is a number, and where it is documented."""

    value: int = Field(gt=0)
    source: str


class Memory(Frozen):
    """A memory in equal parts (the smaller ones, where they differ): what must lie together fits in one part."""

    total_bytes: int = Field(gt=0)
    part_bytes: int = Field(gt=0)
    source: str


class Operator(Frozen):
    """A layer type of the specification that the accelerator runs.

    A field that is listed may have these values only, any other field every value of the specification. The entries
    `conv` and `depthwise` hold for the convolutions inside blocks as well. Types, fields and values are checked against
    the specification.
    """

    type: str
    kernel_size: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None
    padding: tuple[int, ...] | None = None
    activation: tuple[str, ...] | None = None
    se_ratio: tuple[float, ...] | None = None

    @model_validator(mode="after")
    def _within_the_specification(self) -> Self:
        if self.type not in LAYERS:
            raise ValueError(f"type should be one of {', '.join(LAYERS)}, found {self.type!r}")
        model = LAYERS[self.type]
        needed = {"type": self.type} | ({"out_channels": 1} if "out_channels" in model.model_fields else {})
        for field, values in self.limited.items():
            if field not in model.model_fields or not values:
                rule = f"should list values of its fields {', '.join(model.model_fields)}"
                raise ValueError(f"{self.type} {rule}, found {field}: {list(values)}")
            for value in values:
                try:
                    model.model_validate({**needed, field: value})
                except ValidationError as error:
                    raise ValueError(f"{self.type}.{field}: {error.errors()[0]['msg']}, found {value!r}") from error
        return self

    def usable(self, field: str, usual: Sequence[Any]) -> tuple[Any, ...]:
        """Return those of some usual values that a field may have, or all it may have where none of these is usual."""
        return tuple(value for value in usual if self.allows(field, value)) or self.limited.get(field, ())

    def allows(self, field: str, value: Any) -> bool:
        """Return whether a field of the layer may have a value; None stands for a derived one."""
        values = self.limited.get(field)
        return value is None or values is None or value in values

    @property
    def limited(self) -> dict[str, tuple[Any, ...]]:
        """The fields that may not have every value, with those they may have."""
        fields = {name: getattr(self, name) for name in type(self).model_fields if name != "type"}
        return {name: values for name, values in fields.items() if values is not None}


class Accelerator(Frozen):
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
