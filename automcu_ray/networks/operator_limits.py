"""Which layer types of the specification, and which values of their fields, a target runs."""

from collections.abc import Sequence
from typing import Any, Self

from pydantic import ValidationError, model_validator

from automcu_ray.core.models import FrozenModel
from automcu_ray.networks.spec import LAYERS


class Operator(FrozenModel):
    """A layer type of the specification that the accelerator runs.

    A field that is listed may have these values only, any other field every value of the specification. The entries
    `conv` and `depthwise` hold for the convolutions inside blocks as well. Types, fields and values are checked against
    the specification.
    """

    type: str
    kernel_size: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None
    padding: tuple[int, ...] | None = None
    groups: tuple[int, ...] | None = None
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
