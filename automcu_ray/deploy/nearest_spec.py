"""The spec that is nearest to a user's network: its stages layer by layer, and what has no counterpart, by name."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper, version_converter

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.blocks import Layer, fold
from automcu_ray.deploy.branches import Branches, branches
from automcu_ray.deploy.graph_editor import Editor, options_of
from automcu_ray.deploy.onnx_graph import worked_out
from automcu_ray.deploy.operator_cost import macs
from automcu_ray.deploy.own_names import take_over
from automcu_ray.deploy.quantised.file import is_quantised
from automcu_ray.deploy.static_sizes import infer_shapes
from automcu_ray.deploy.tracing import INPUT, OPSET, OUTPUT
from automcu_ray.networks.spec import MAX_CHANNELS, MAX_LAYERS, MAX_POSITIONS

MAX_BYTES = 64_000_000
_KERNELS = (1, 3, 5, 7)
_PASSED = frozenset(
    "BatchNormalization Cast Constant Dropout Flatten Identity Reshape Squeeze Transpose Unsqueeze".split()
)
_GATES = {"Erf": "GELU", "HardSigmoid": "HardSwish", "Sigmoid": "SiLU", "Softplus": "Mish"}  # x times a function of x
_ACTIVATIONS = frozenset("Clip Elu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu Selu Sigmoid Softplus Tanh".split())


@dataclass
class Reading:
    """A network as layers of a spec; `lost` counts what has no counterpart, `weights` and `macs` are of the network."""

    layers: list[Layer] = field(default_factory=list)
    positions: int = 1
    lost: Counter[str] = field(default_factory=Counter)
    operators: int = 0
    weights: int = 0
    macs: int = 0


def read_spec(model: bytes, image_shape: tuple[int, int, int]) -> Reading:
    """Return the layers that are nearest to an ONNX file of float weights, whatever its classes and image size.

    Args:
        model: of one image input, batch first, channels first or last.
        image_shape: (channels, height, width) where the file leaves sizes open.

    Raises:
        ToolchainError: it is no such file, or nothing of it has a counterpart.
    """
    graph, shapes = _opened(model, image_shape)
    reader = _Reader(graph, shapes)
    for node in graph.graph.node:
        reader.read(node)
    found = reader.found
    if not found.layers:
        raise ToolchainError("nothing of it has a counterpart among the layers of a spec.")
    if len(found.layers) > MAX_LAYERS:
        found.lost[f"layers beyond {MAX_LAYERS}"] = len(found.layers) - MAX_LAYERS
        del found.layers[MAX_LAYERS:]
    return found


def _opened(model: bytes, image_shape: tuple[int, int, int]) -> tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]:
    if len(model) > MAX_BYTES:
        raise ToolchainError(f"an ONNX file of at most {MAX_BYTES} bytes is wanted, found {len(model)}.")
    try:
        loaded = onnx.load_from_string(model)
        if is_quantised(loaded):
            raise ToolchainError(
                "it is quantised already: a search starts from float networks; give the file from before."
            )
        if any(entry.domain == "" and entry.version != OPSET for entry in loaded.opset_import):
            loaded = version_converter.convert_version(loaded, OPSET)
    except ToolchainError:
        raise
    except Exception as error:  # protobuf's and onnx's own classes, from packages without types
        raise ToolchainError("an ONNX file is wanted that onnx can read.") from error
    ours, _ = take_over(loaded)
    kind = ours.graph.input[0].type.tensor_type
    sizes = [dim.dim_value for dim in kind.shape.dim]
    if kind.elem_type != TensorProto.FLOAT or len(sizes) != 4:
        raise ToolchainError(f"an input of float images, (batch, channels, height, width), is wanted; found {sizes}.")
    fixed = [1, *(size or given for size, given in zip(sizes[1:], image_shape, strict=True))]
    ours.graph.input[0].CopyFrom(helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, fixed))
    ours.graph.output[0].CopyFrom(onnx.ValueInfoProto(name=OUTPUT))
    ours = worked_out(ours)
    for number, node in enumerate(ours.graph.node):
        node.name = f"node{number}"
    try:
        infer_shapes(ours)  # what has too few axes or attributes for its operator ends here
    except onnx.shape_inference.InferenceError as error:
        said = (str(error).strip().splitlines() or ["no reason"])[-1][:200]
        raise ToolchainError(f"the shapes of its operators contradict each other: {said}") from error
    return ours, Editor(ours).shapes


class _Reader:
    """Walks along the main path; `at` says how many layers make each tensor of it."""

    def __init__(self, model: onnx.ModelProto, shapes: dict[str, tuple[int, ...]]) -> None:
        self.shapes, self.found = shapes, Reading()
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self.way: Branches = branches(model.graph, self.constants)
        self.at = {INPUT: 0}
        self.pooled: int | None = None  # side of the map that was averaged away
        nodes = model.graph.node
        self.last = next((n.name for n in reversed(nodes) if n.op_type in ("Gemm", "MatMul")), "")
        self.gates = {
            self.way.aside[node.name] for node in nodes if node.op_type == "Conv" and node.name in self.way.aside
        }
        self.found.operators = len(nodes)
        self.kinds = {node.name: node.op_type for node in nodes}
        known = {name: shape for name, shape in shapes.items() if shape and all(shape)}
        for node in nodes:
            if node.op_type in ("Conv", "Gemm", "MatMul") and {*node.input[:2], node.output[0]} <= known.keys():
                self.found.macs += macs(node, known)
        floats = [tensor for tensor in self.constants.values() if tensor.data_type == TensorProto.FLOAT]
        self.found.weights = sum(math.prod(tensor.dims) for tensor in floats)

    def read(self, node: NodeProto) -> None:
        data = [name for name in node.input if name and name not in self.constants]
        if not data or node.name in self.way.aside:
            return
        before = len(self.found.layers)
        if node.op_type in _READERS:
            _READERS[node.op_type](self, node)
        elif node.op_type in _ACTIVATIONS:
            self._activation(node)
        elif node.op_type not in _PASSED and not (node.op_type in ("Div", "Sub") and len(data) == 1):
            if node.op_type not in ("Softmax", "LogSoftmax") or OUTPUT not in node.output:
                self._lose(node.op_type)
        reached = max(self.at.get(name, before) for name in data)
        for name in node.output:
            self.at[name] = reached if node.op_type in _PASSED else len(self.found.layers)

    def _lose(self, what: str) -> None:
        self.found.lost[what] += 1

    def _side(self, name: str) -> int:
        return int(max(self.shapes.get(name, ())[2:], default=1))

    def _nearest(self, kind: str, sizes: list[int]) -> int:
        side = round(math.prod(sizes) ** (1 / len(sizes))) if 1 not in sizes else max(sizes)
        nearest = min(_KERNELS, key=lambda known: (abs(known - side), -known))
        if set(sizes) - {1, nearest} or (len(set(sizes)) > 1 and 1 not in sizes):
            self._lose(f"{kind} {'x'.join(map(str, sizes))} (read as {nearest})")
        return nearest

    def _conv(self, node: NodeProto) -> None:
        weights = self.constants.get(node.input[1])
        if weights is None or len(weights.dims) < 3:
            self._lose("Conv with weights that are worked out")
            return
        outputs, channels = weights.dims[0], self.shapes.get(node.input[0], (0, 0))[1]
        options = options_of(node)
        groups, kernel, stride = (
            options.get("group", 1),
            self._nearest("Conv", list(weights.dims[2:])),
            self._stride(options),
        )
        if outputs > MAX_CHANNELS:
            self._lose(f"{outputs} channels (read as {MAX_CHANNELS})")
        layer: Layer = {"type": "conv", "out_channels": min(outputs, MAX_CHANNELS), "kernel_size": kernel}
        if groups > 1 and groups == channels == outputs:
            layer = {"type": "depthwise", "kernel_size": kernel}
        elif groups in (2, 4, 8):
            layer["groups"] = groups
        elif groups > 1:
            self._lose(f"Conv of {groups} groups (read as 1)")
        elif kernel == stride == 1:
            layer = {"type": "pointwise", "out_channels": layer["out_channels"]}
        around = set(options.get("pads") or [0])
        odd = kernel == max(weights.dims[2:]) and len(around) == 1 and around != {kernel // 2} and max(around) <= 3
        layer |= ({"stride": stride} if stride > 1 else {}) | ({"padding": around.pop()} if odd else {})
        self._append({**layer, "activation": "none"})

    def _stride(self, options: dict[str, Any]) -> int:
        stride = max(options.get("strides") or [1])
        if stride > 2:
            self._lose(f"stride {stride} (read as 2)")
        if max(options.get("dilations") or [1]) > 1:
            self._lose("dilation")
        return min(2, int(stride))

    def _append(self, layer: Layer) -> None:
        self.found.layers.append(layer)
        fold(self.found.layers, self.shapes[INPUT][1])

    def _linear(self, node: NodeProto) -> None:
        weights = self.constants.get(node.input[1])
        if node.input[0] in self.constants:
            self._lose(node.op_type)
            return
        if node.name == self.last:
            if self.pooled is None:
                self.found.positions = max(1, min(MAX_POSITIONS, self._map_side()))
                if self._map_side() > MAX_POSITIONS:
                    self._lose(f"a linear layer of {self._map_side()} places a side (read as {MAX_POSITIONS})")
            return
        if weights is None or len(weights.dims) != 2:
            self._lose(node.op_type)
            return
        outputs = weights.dims[0 if options_of(node).get("transB", 0) else 1]
        side = self.pooled if self.pooled is not None else self._map_side()
        if self.pooled is None and side in _KERNELS[1:]:  # all places of a small map: a window as large
            layer: Layer = {"type": "conv", "kernel_size": side, "padding": 0}
        else:
            if self.pooled is None and side > 1:
                self._lose(f"a hidden linear layer of {side} places a side (read as their mean)")
            if side > 1:
                self._append({"type": "avg_pool", "kernel_size": min(side, 8)})
            layer = {"type": "pointwise"}
        self._append({**layer, "out_channels": min(outputs, MAX_CHANNELS), "activation": "none"})
        self.pooled = 1

    def _map_side(self) -> int:
        """Return the side of the last map with height and width."""
        maps = [shape for name, shape in self.shapes.items() if name in self.at and len(shape) == 4]
        return int(max(maps[-1][2:])) if maps else 1

    def _pool(self, node: NodeProto) -> None:
        options = options_of(node)
        kernel, stride = max(options["kernel_shape"]), max(options.get("strides") or [1])
        if kernel >= self._side(node.input[0]) and node.op_type == "AveragePool":
            self.pooled = self._side(node.input[0])
            return
        if kernel < 2:
            return
        if kernel > 8 or stride > 8 or any(options.get("pads") or ()):
            self._lose(f"{node.op_type} {kernel} with padding or beyond 8")
        kind = "max_pool" if node.op_type == "MaxPool" else "avg_pool"
        self._append({"type": kind, "kernel_size": min(kernel, 8), "stride": min(stride, 8)})

    def _mean(self, node: NodeProto) -> None:
        axes = sorted(axis % 4 for axis in options_of(node).get("axes", ()))
        if node.op_type == "ReduceMean" and axes != [2, 3]:
            self._lose("ReduceMean of other axes than height and width")
        else:
            self.pooled = self._side(node.input[0])

    def _activation(self, node: NodeProto) -> None:
        kind = node.op_type
        high = self.constants.get(node.input[2]) if kind == "Clip" and len(node.input) > 2 else None
        name = "relu6" if high is not None and np.all(numpy_helper.to_array(high) == 6) else "relu"
        if kind not in ("Clip", "Relu"):
            self._lose(f"{kind} (read as relu)")
        if self.found.layers and self.found.layers[-1].get("activation") == "none":
            self.found.layers[-1]["activation"] = name

    # Joins ------------------------------------------------------------------------------------------------------

    def _join(self, node: NodeProto) -> None:
        if sum(bool(name) and name not in self.constants for name in node.input) < 2:
            return  # by a constant
        layers, fork = self.found.layers, self.way.forks.get(node.name, "")
        start = self.at.get(fork)
        beside = [name for name, join in self.way.aside.items() if join == node.name]
        if node.op_type == "Mul":
            self._gate(node)
            return
        if start is None or start == 0 or len(layers) - start < 1:
            self._lose(f"{node.op_type} of the input or of one tensor")
            return
        if node.op_type == "Add":
            self._append({"type": "skip", "back": len(layers) + 1 - start, "activation": "none"})
        elif not beside:
            self._append({"type": "concat", "back": len(layers) + 1 - start})
        else:  # parallel branches: the longest stays, as wide as all
            self._lose("Concat of parallel branches (read as the longest)")
            channels = self.shapes.get(node.output[0], (0, 0))[1]
            if "out_channels" in layers[-1] and channels:
                layers[-1]["out_channels"] = min(channels, MAX_CHANNELS)

    def _gate(self, node: NodeProto) -> None:
        if node.name not in self.gates:  # x * sigmoid(x), and its like
            if self.found.layers and self.found.layers[-1].get("activation") == "none":
                self.found.layers[-1]["activation"] = "relu"
            beside = {kind for name, kind in self.kinds.items() if self.way.aside.get(name) == node.name}
            named = next((word for kind, word in _GATES.items() if kind in beside), "Mul by a function")
            self._lose(f"{named} (read as relu)")
        elif self.found.layers and self.found.layers[-1]["type"] == "depthwise":
            self.found.layers[-1]["gate"] = 0.25  # an mbconv takes it
        else:
            self._lose("Mul by a gate")


_READERS: dict[str, Callable[[_Reader, NodeProto], None]] = {
    "Conv": _Reader._conv,
    "Gemm": _Reader._linear,
    "MatMul": _Reader._linear,
    **dict.fromkeys(("MaxPool", "AveragePool"), _Reader._pool),
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean"), _Reader._mean),
    **dict.fromkeys(("Add", "Concat", "Mul"), _Reader._join),
}
