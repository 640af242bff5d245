"""Reads a deployed network for ai8x: its graph, its float weights, and how far each tensor reaches."""

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.networks.graph import NETWORK_INPUT, Graph, Op, Shape
from backends.ai8x.limits import Refused, cannot_run

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Source:
    """A network with its values.

    Attributes:
        graph: the operators, named as the specification, or the code, names its layers.
        weights: by operator, (outputs, inputs / groups, rows, columns), or (outputs, inputs) of a linear one.
        biases: by operator, (outputs,).
        reach: by operator, the largest magnitude of its output over the calibration images; some are not known.
    """

    graph: Graph
    weights: dict[str, Array]
    biases: dict[str, Array]
    reach: dict[str, float]


def read(deployed: DeployedNetwork) -> Source:
    """Return what a deployed int8 network holds, from its float twin and the scales that calibration gave it.

    Raises:
        Refused: a node that is no operator of ours, or has a form that ours never have.
        ToolchainError: an ONNX file that contradicts itself.
    """
    model = onnx.load_from_string(deployed.float_onnx)
    for node in model.graph.node:  # in messages, and nowhere else: layers are numbers in what is written
        node.name = deployed.labels.get(node.name, node.name)
    reader = _Reader(model, deployed.input_shape)
    try:
        reader.run()
        graph = onnx.load_from_string(deployed.onnx).graph
        values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        reach = {}
        for tensor, operator in reader.tensors.items():
            # The quantiser names scales so; where it made ReLU part of an operator, the range is ReLU's, here last.
            if f"{tensor}_scale" in values:
                scale, zero = float(values[f"{tensor}_scale"]), int(values[f"{tensor}_zero_point"])
                reach[operator] = scale * max(127 - zero, 128 + zero)
                if not (math.isfinite(reach[operator]) and reach[operator] > 0):
                    raise ValueError(f"scale of {tensor} is {scale}")
    except (KeyError, IndexError, ValueError) as error:
        raise ToolchainError(f"the exported ONNX cannot be read: {type(error).__name__}: {error}") from error
    return Source(Graph(deployed.input_shape, tuple(reader.ops)), reader.weights, reader.biases, reach)


@dataclass
class _Reader:
    """Turns one node after the other into an operator; a ReLU becomes part of the one before it."""

    model: onnx.ModelProto
    input_shape: Shape
    ops: list[Op] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)
    biases: dict[str, Array] = field(default_factory=dict)
    tensors: dict[str, str] = field(default_factory=dict)  # name of an ONNX tensor -> operator

    def run(self) -> None:
        graph = self.model.graph
        self.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        self.at = {graph.input[0].name: NETWORK_INPUT}
        self.readers = Counter(name for node in graph.node for name in node.input)
        for node in graph.node:
            name = node.name
            times = sum(op.name.partition("#")[0] == name for op in self.ops)
            self.name = f"{name}#{times + 1}" if times else name  # a module of generated code may run more than once
            make = _OPERATORS.get(node.op_type)
            if make is None:
                raise _refused(node, f"it has no operator {node.op_type}")
            make(self, node, {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute})

    def _conv(self, node: onnx.NodeProto, found: dict[str, Any]) -> None:
        weights = self.constants[node.input[1]]
        _same(node, "kernel_size", weights.shape[2:])
        op = Op(
            "conv",
            self.name,
            (self.at[node.input[0]],),
            self._shape(node),
            (0, 0, 0),
            kernel=weights.shape[2],
            stride=_same(node, "stride", found.get("strides", [1])),
            padding=_same(node, "padding", found.get("pads", [0])),
            groups=found.get("group", 1),
        )
        if _same(node, "dilation", found.get("dilations", [1])) != 1 or found.get("auto_pad", b"NOTSET") != b"NOTSET":
            raise _refused(node, "it has no dilated or automatically padded convolution")
        self._with_values(node, replace(op, shape=_windows(op, weights.shape[0])), weights)

    def _gemm(self, node: onnx.NodeProto, found: dict[str, Any]) -> None:
        weights = self.constants[node.input[1]]
        if not found.get("transB") or found.get("transA") or {found.get("alpha", 1.0), found.get("beta", 1.0)} != {1.0}:
            raise _refused(node, "it has no scaled or transposed matrix product")
        op = Op("linear", self.name, (self.at[node.input[0]],), self._shape(node), (weights.shape[0], 1, 1))
        self._with_values(node, op, weights)

    def _with_values(self, node: onnx.NodeProto, op: Op, weights: Array) -> None:
        self.weights[op.name] = weights
        self.biases[op.name] = (
            self.constants[node.input[2]] if len(node.input) > 2 else np.zeros(len(weights), np.float32)
        )
        self._append(node, op)

    def _pool(self, node: onnx.NodeProto, found: dict[str, Any]) -> None:
        op = Op(
            "max_pool" if node.op_type == "MaxPool" else "avg_pool",
            self.name,
            (self.at[node.input[0]],),
            self._shape(node),
            (0, 0, 0),
            kernel=_same(node, "kernel_size", found["kernel_shape"]),
            stride=_same(node, "stride", found.get("strides", [1])),
        )
        if any(found.get("pads", ())) or found.get("ceil_mode") or set(found.get("dilations", [1])) != {1}:
            raise _refused(node, "it pools without padding, dilation and rounding up only")
        self._append(node, replace(op, shape=_windows(op, op.in_shape[0])))

    def _globalaveragepool(self, node: onnx.NodeProto, found: dict[str, Any]) -> None:
        shape = self._shape(node)
        self._append(node, Op("global_pool", self.name, (self.at[node.input[0]],), shape, (shape[0], 1, 1)))

    def _add(self, node: onnx.NodeProto, found: dict[str, Any]) -> None:
        if any(name in self.constants for name in node.input):
            raise _refused(node, "it adds feature maps, not constants")
        shapes = {self._shape(node, side) for side in (0, 1)}
        if len(shapes) > 1:
            raise _refused(node, "it adds maps of equal shape only")
        shape = shapes.pop()
        self._append(node, Op("add", self.name, tuple(self.at[name] for name in node.input), shape, shape))

    def _relu(self, node: onnx.NodeProto, found: dict[str, Any]) -> None:
        source = self.at[node.input[0]]
        if source == NETWORK_INPUT or self.readers[node.input[0]] > 1 or self.ops[source].activation != "none":
            raise _refused(node, "it has ReLU only where nothing else reads its input")
        self.ops[source] = replace(self.ops[source], activation="relu")
        self.at[node.output[0]] = source
        self.tensors[node.output[0]] = self.ops[source].name

    def _flatten(self, node: onnx.NodeProto, found: dict[str, Any]) -> None:
        """Keep the map's own shape: the linear operator behind it takes a map of any."""
        only_linear = all(other.op_type == "Gemm" for other in self.model.graph.node if node.output[0] in other.input)
        if not only_linear:
            raise _refused(node, "it reshapes in front of a linear operator only")
        self.at[node.output[0]] = self.at[node.input[0]]

    def _append(self, node: onnx.NodeProto, op: Op) -> None:
        self.at[node.output[0]] = len(self.ops)
        self.tensors[node.output[0]] = op.name
        self.ops.append(op)

    def _shape(self, node: onnx.NodeProto, side: int = 0) -> Shape:
        source = self.at[node.input[side]]
        return self.input_shape if source == NETWORK_INPUT else self.ops[source].shape


_OPERATORS = {
    "Add": _Reader._add,
    "AveragePool": _Reader._pool,
    "Conv": _Reader._conv,
    "Flatten": _Reader._flatten,
    "Gemm": _Reader._gemm,
    "GlobalAveragePool": _Reader._globalaveragepool,
    "MaxPool": _Reader._pool,
    "Relu": _Reader._relu,
    "Reshape": _Reader._flatten,
}


def _refused(node: onnx.NodeProto, reason: str) -> Refused:
    return Refused(cannot_run(node.name, reason))


def _same(node: onnx.NodeProto, what: str, values: Any) -> int:
    """Return the one value of all dimensions."""
    if len(set(values)) != 1:
        raise _refused(node, f"{what} must be the same in all directions, found {values}")
    return int(next(iter(values)))


def _windows(op: Op, channels: int) -> Shape:
    _, height, width = op.in_shape
    rows, columns = ((extent + 2 * op.padding - op.kernel) // op.stride + 1 for extent in (height, width))
    return channels, rows, columns
