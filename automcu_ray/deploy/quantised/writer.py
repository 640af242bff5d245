"""The int8 graph that a quantised file becomes, as it is written operator by operator."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.quantised.values import EVERY, Array, Grid, Real
from automcu_ray.deploy.tables import by_index, looked_up
from automcu_ray.deploy.tracing import INPUT, OPSET, OUTPUT

_CONTRIB = "com.microsoft"
_ONNX = ("QLinearConv", "QLinearMatMul")  # quantised operators that ONNX itself has
IR_VERSION = 8


class Writer:
    """Collects nodes and constants; every activation is int8."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Array] = {}

    def add(self, kind: str, inputs: Sequence[str], near: str, name: str, **options: Any) -> str:
        """Append an operator; return its result, named after a tensor of the file."""
        result = f"{near}_int8_{len(self.nodes)}"
        own = kind.startswith("Q") and kind not in _ONNX
        self.nodes.append(
            helper.make_node(kind, inputs, [result], name=name, domain=_CONTRIB if own else None, **options)
        )
        return result

    def constant(self, name: str, value: Array) -> str:
        """Add a constant; return its name."""
        self.constants[name] = np.ascontiguousarray(value).reshape(value.shape)
        return name

    def grid(self, near: str, grid: Grid) -> list[str]:
        """Return a scale and a zero point, as constants."""
        return [
            self.constant(f"{near}_scale_{len(self.nodes)}", np.array(grid.scale, np.float32)),
            self.constant(f"{near}_zero_{len(self.nodes)}", np.array(grid.zero, np.int8)),
        ]

    def operand(self, real: Real) -> list[str]:
        """Return tensor, scale and zero point."""
        scale, zero = f"{real.name}_{real.grid.scale.tobytes().hex()}_scale", f"{real.name}_{real.grid.zero % 256}_zero"
        self.constant(scale, np.array(real.grid.scale, np.float32))
        return [real.name, scale, self.constant(zero, np.array(real.grid.zero, np.int8))]

    def table(self, source: str, table: Array, name: str) -> str:
        """Return a tensor of what a table, from -128 on, says of each value."""
        if np.array_equal(table, EVERY):
            return source
        result = f"{source}_looked_{len(self.nodes)}"
        made, held = looked_up(source, result, name)
        self.nodes += made
        self.constants[held] = by_index(table)
        return result

    def copy(self, node: NodeProto, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Append an operator of the file that moves values of any type."""
        made = NodeProto.FromString(node.SerializeToString())
        made.input[:], made.output[:] = inputs, outputs
        self.nodes.append(made)

    def model(self, shape: Sequence[int], classes: int, result: str) -> onnx.ModelProto:
        """Return the graph: images (batch, *shape) in, (batch, classes) out, both int8.

        Raises:
            ToolchainError: the result is not worked out from the images.
        """
        needed, nodes = {result}, []
        for node in reversed(self.nodes):
            if not needed.isdisjoint(node.output):
                needed.update(node.input)
                nodes.append(node)
        if INPUT not in needed or result == INPUT:
            raise ToolchainError("int8 needs an output that is worked out from the input: this network has none.")
        taken = set[str]()
        for node in reversed(nodes):
            numbered = (f"{node.name}_{number}" for number in itertools.count(2))
            node.name = next(name for name in itertools.chain([node.name], numbered) if name not in taken)
            taken.add(node.name)  # onnxruntime wants each once
            node.input[:] = [OUTPUT if name == result else name for name in node.input]
            node.output[:] = [OUTPUT if name == result else name for name in node.output]
        ends = [
            helper.make_tensor_value_info(name, TensorProto.INT8, ["batch", *sizes])
            for name, sizes in ((INPUT, shape), (OUTPUT, [classes]))
        ]
        tensors = [numpy_helper.from_array(value, name) for name, value in self.constants.items() if name in needed]
        graph = helper.make_graph(nodes[::-1], "network", ends[:1], ends[1:], tensors)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(_CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
