"""An int8 ONNX graph as plain data, for programs of other environments: JSON for the graph, npz for its constants."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import DeployedNetwork

GRAPH, CONSTANTS = "graph.json", "constants.npz"
_MOVES = {
    "MaxPool": "max_pool",
    "Flatten": "reshape",
    "Reshape": "reshape",
    "Squeeze": "reshape",
    "Unsqueeze": "reshape",
    "Transpose": "transpose",
    "Resize": "resize",
}
_UNARY = {
    "QLinearAveragePool": "average_pool",
    "QLinearGlobalAveragePool": "average_pool",
    "QLinearSigmoid": "sigmoid",
    "QLinearLeakyRelu": "leaky_relu",
}
_BINARY = {"QLinearAdd": "add", "QLinearMul": "mul"}
_WINDOW: dict[str, Any] = {"kernel_shape": None, "strides": [1, 1], "pads": [0, 0, 0, 0], "dilations": [1, 1]}
_OPTIONS: dict[str, dict[str, Any]] = {  # with ONNX's defaults; None has none
    "conv": {**_WINDOW, "group": 1},
    "max_pool": _WINDOW,
    "average_pool": {**_WINDOW, "count_include_pad": 0},
    "leaky_relu": {"alpha": 0.01},
    "concat": {"axis": None},
    "transpose": {"perm": None},
}
_ONLY: dict[str, Any] = {  # attributes that change the meaning, and the one value that is handed over
    "auto_pad": b"NOTSET",
    "ceil_mode": 0,
    "channels_last": 0,
    "storage_order": 0,
    "transA": 0,
    "mode": b"nearest",
    "coordinate_transformation_mode": b"asymmetric",
    "nearest_mode": b"floor",
}
_RESIZE = {"coordinate_transformation_mode": b"half_pixel", "nearest_mode": b"round_prefer_floor"}  # ONNX's defaults


@dataclass(frozen=True)
class Tensor:
    """An activation, batch size 1: a real value is `(q - zero_point) * scale`."""

    shape: tuple[int, ...]
    scale: float
    zero_point: int


@dataclass(frozen=True)
class Node:
    """One operator on named tensors; `options` are ONNX attributes, with their defaults filled in.

    A kind is conv, linear, add, mul, concat, sigmoid, leaky_relu, average_pool, max_pool, reshape, transpose or resize
    (nearest). Global pooling is an average_pool of the whole.
    """

    kind: str
    name: str
    inputs: tuple[str, ...]
    output: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Int8Graph:
    """Nodes in execution order. `constants` has `<output>/weight` (as ONNX has it), `/scales` and `/bias` of a node.

    Weights are int8 with zero point 0 and a scale for each output channel, biases int32.
    """

    input: str
    output: str
    tensors: dict[str, Tensor]
    nodes: tuple[Node, ...]
    constants: dict[str, npt.NDArray[Any]]

    def write(self, folder: Path) -> None:
        """Write `graph.json` and `constants.npz`."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        np.savez(folder / CONSTANTS, **plain.pop("constants"))
        (folder / GRAPH).write_text(json.dumps(plain, default=dataclasses.asdict))


def read_int8_graph(deployed: DeployedNetwork) -> Int8Graph:
    """Return the operators of a deployed int8 network with the quantisation that it was scored with.

    Raises:
        ToolchainError: it is not int8, or has an operator that is not known here; it is named.
    """
    if deployed.input_scale is None or deployed.input_zero_point is None:
        raise ToolchainError(f"an int8 network is needed, found precision {deployed.precision}.")
    model = deployed.with_batch_one()
    reader = _Reader(model)
    entry, end = model.graph.input[0].name, model.graph.output[0].name
    reader.tensors[entry] = Tensor(reader.shapes[entry], deployed.input_scale, deployed.input_zero_point)
    for node in model.graph.node:
        reader.read(node)
    return Int8Graph(entry, end, reader.tensors, tuple(reader.nodes), reader.constants)


@dataclass
class _Reader:
    model: onnx.ModelProto
    tensors: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.model.graph
        self.values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        known = (*graph.input, *graph.value_info, *graph.output)
        self.shapes = {v.name: tuple(dim.dim_value for dim in v.type.tensor_type.shape.dim) for v in known}

    def read(self, node: onnx.NodeProto) -> None:
        kind, names = node.op_type, list(node.input)
        if kind in _MOVES:
            self._append(_MOVES[kind], node, [names[:1]], self._quantisation(names[0]))
        elif kind in _UNARY:
            self._append(_UNARY[kind], node, [names[:3]], self._constants(names[3:5]))
        elif kind in _BINARY:
            self._append(_BINARY[kind], node, [names[:3], names[3:6]], self._constants(names[6:8]))
        elif kind == "QLinearConcat":
            parts = [names[start : start + 3] for start in range(2, len(names), 3)]
            self._append("concat", node, parts, self._constants(names[:2]))
        elif kind == "QLinearConv":
            self._weights(node, names[3:6], names[8] if len(names) > 8 else "")
            self._append("conv", node, [names[:3]], self._constants(names[6:8]))
        elif kind == "QGemm":
            self._weights(node, names[3:6], names[6])
            self._append("linear", node, [names[:3]], self._constants(names[7:9]))
        else:
            raise ToolchainError(f"operator {kind} ({node.name}) is not handed over to other toolchains.")

    def _append(
        self, kind: str, node: onnx.NodeProto, inputs: Sequence[Sequence[str]], quantisation: tuple[float, int]
    ) -> None:
        for name, *said in inputs:
            self._quantisation(name, said)
        self.tensors[node.output[0]] = Tensor(self.shapes[node.output[0]], *quantisation)
        read = tuple(name for name, *_ in inputs)
        found = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        if node.op_type == "Resize":
            found = {**_RESIZE, **found}
        if node.op_type == "QLinearGlobalAveragePool":
            found["kernel_shape"] = list(self.shapes[node.input[0]][2:])
        options = {name: found.get(name, default) for name, default in _OPTIONS.get(kind, {}).items()}
        only = {**_ONLY, "alpha": 1.0} if kind == "linear" else _ONLY
        wrong = [name for name, wanted in only.items() if found.get(name, wanted) != wanted]
        wrong += [name for name, value in options.items() if value is None]
        if wrong:
            raise ToolchainError(f"{node.name}: {wrong[0]} {found.get(wrong[0])} is not handed over.")
        self.nodes.append(Node(kind, node.name, read, node.output[0], options))

    def _weights(self, node: onnx.NodeProto, names: Sequence[str], bias: str) -> None:
        weight, scales, zeros = (self.values[name] for name in names)
        if node.op_type == "QGemm" and not any(a.name == "transB" and a.i for a in node.attribute):
            weight = weight.T
        if np.any(zeros):
            raise ToolchainError(f"{node.name}: weights should have zero point 0, found {zeros}.")
        outputs = len(weight)
        output = node.output[0]
        self.constants[f"{output}/weight"] = weight
        self.constants[f"{output}/scales"] = np.broadcast_to(scales.reshape(-1), outputs).astype(np.float32)
        self.constants[f"{output}/bias"] = self.values[bias] if bias else np.zeros(outputs, np.int32)

    def _constants(self, names: Sequence[str]) -> tuple[float, int]:
        scale, zero_point = (self.values[name] for name in names)
        return float(scale), int(zero_point)

    def _quantisation(self, name: str, said: Sequence[str] = ()) -> tuple[float, int]:
        """Return scale and zero point of an activation; its reader must say the same."""
        if name not in self.tensors:
            raise ToolchainError(f"constant {name} is read like an activation: no other toolchain is handed one.")
        found = self.tensors[name].scale, self.tensors[name].zero_point
        if said and self._constants(said) != found:
            raise ToolchainError(f"{name} is written with scale and zero point {found} and read with others.")
        return found
