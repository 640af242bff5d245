"""An operator of an int8 graph, as readers of its layers ask for it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from automcu_ray.core.errors import ToolchainError
from backends.c_qemu.kernels.layer import Array
from backends.c_qemu.patches import original

Shape = tuple[int, ...]


class Node:
    """An operator with its attributes, the shapes of its tensors and the values of its constants."""

    def __init__(self, node: onnx.NodeProto, shapes: Mapping[str, Shape], constants: Mapping[str, Array]) -> None:
        self.proto, self.shapes, self.constants = node, shapes, constants
        self.kind, self.name = node.op_type, original(node.name) or node.op_type
        self.attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.inputs, self.output = list(node.input), node.output[0]

    def constant(self, at: int) -> Array:
        """Return the values of an input.

        Raises:
            ToolchainError: it is computed, or left out.
        """
        name = self.inputs[at] if at < len(self.inputs) else ""
        if name not in self.constants:
            raise self.error(f"a constant as input {at}")
        return self.constants[name]

    def scale(self, at: int) -> np.float32:
        """Return a scale of one value."""
        return np.float32(self.constant(at).reshape(-1)[0])

    def zero(self, at: int) -> int:
        """Return a zero point; int8."""
        found = self.constant(at)
        if found.dtype != np.int8:
            raise self.error("zero points of int8")
        return int(found.reshape(-1)[0])

    def shape(self, at: int = 0) -> Shape:
        """Return the shape of an input."""
        return self.shapes[self.inputs[at]]

    @property
    def written(self) -> Shape:
        """The shape of the first output."""
        return self.shapes[self.output]

    def ints(self, name: str, default: Sequence[int]) -> tuple[int, ...]:
        """Return an attribute that is a list of integers."""
        return tuple(self.attributes.get(name) or default)

    def error(self, wanted: str) -> ToolchainError:
        """Return the error that this operator is not what the kernels can compute."""
        return ToolchainError(f"int8 {self.kind} should have {wanted} to become C; other forms have no kernel.")
