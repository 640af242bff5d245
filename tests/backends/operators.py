"""Models of one int8 operator under many scales and zero points, side by side over one input."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.networks.graph import Shape

Rng = np.random.Generator
PAIRS: Shape = (1, 256, 256)  # all pairs of two int8 values
VALUES: Shape = (1, 16, 16)  # all int8 values
EVERY = np.arange(-128, 128)


@dataclass
class Model:
    """Nodes that read `image` (int8, `shape`); their outputs are joined into one."""

    rng: Rng
    shape: Shape
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def constant(self, values: npt.ArrayLike) -> str:
        """Return the name of a new constant."""
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def quantised(self, scale: float) -> list[str]:
        """Return the names of a new scale and a random zero point; the extremes are frequent."""
        zero = self.rng.choice([-128, 0, 127, *self.rng.integers(-128, 128, 5)])
        return [self.constant(np.float32(scale)), self.constant(np.int8(zero))]

    def scale(self, low: float = 1e-3, high: float = 0.3) -> float:
        """Return a random scale, often a power of two or a multiple of 1/64: their ratios give exact ties."""
        kind = self.rng.integers(4)
        if kind == 0:
            return float(2.0 ** np.round(np.log2(self.rng.uniform(low, high))))
        if kind == 1:
            return float(max(1, np.round(64 * self.rng.uniform(low, high))) / 64)
        return float(np.exp(self.rng.uniform(np.log(low), np.log(high))))

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Append a node and return its output; the onnxruntime operators are those whose name starts with Q."""
        name = f"value{len(self.nodes)}"
        domain = (
            "com.microsoft" if operator.startswith("Q") and operator not in ("QLinearConv", "QLinearMatMul") else ""
        )
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, domain=domain, **attributes))
        return name

    def deployed(self) -> DeployedNetwork:
        """Return the model in the form that the C generator takes, with all outputs flat, one after the other."""
        used = {name for node in self.nodes for name in node.input}
        ends = [node.output[0] for node in self.nodes if node.output[0] not in used]
        joined = helper.make_node("Concat", [self.add("Flatten", end) for end in ends], ["logits"], name="join", axis=1)
        image = helper.make_tensor_value_info("image", TensorProto.INT8, ["batch", *self.shape])
        logits = helper.make_tensor_value_info("logits", TensorProto.INT8, ["batch", "classes"])
        graph = helper.make_graph([*self.nodes, joined], "one", [image], [logits], self.constants)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        classes = run_one_at_a_time(model.SerializeToString(), np.zeros((1, *self.shape), np.int8)).shape[1]
        logits.type.tensor_type.shape.dim[1].dim_value = classes
        model.graph.output[0].CopyFrom(logits)
        return DeployedNetwork("int8", b"", model.SerializeToString(), self.shape, classes, 1 / 128, 0, 1.0, 0)


def run_one_at_a_time(model: bytes, inputs: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Return onnxruntime's outputs (N, classes), each image alone as on a board."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"image": image[None]})[0] for image in inputs])


def pairs(rng: Rng, operator: str, shape: Shape = PAIRS, other: Shape | None = None) -> Model:
    """Return a sum or product of the image and a constant of shape `other`, in both orders."""
    model = Model(rng, shape)
    size = int(np.prod(other or shape))
    values = EVERY.repeat(256) if shape == PAIRS else rng.integers(-128, 128, size)
    second = model.constant(values.astype(np.int8).reshape(1, *(other or shape)))
    for _ in range(4):
        a, b = model.scale(), model.scale()
        result = max(a, b) * rng.uniform(0.5, 2) if operator == "QLinearAdd" else a * b * rng.uniform(20, 300)
        inputs = [("image", *model.quantised(a)), (second, *model.quantised(b))]
        first, then = rng.permutation(2)
        output = model.quantised(rng.choice([result, model.scale(result / 2, 2 * result)]))
        model.add(operator, *inputs[first], *inputs[then], *output)
    return model


def sigmoid(rng: Rng) -> Model:
    """Return sigmoids of every value."""
    model = Model(rng, VALUES)
    for _ in range(64):
        y = rng.choice([1 / 256, rng.uniform(1 / 300, 1 / 100), model.scale()])
        model.add("QLinearSigmoid", "image", *model.quantised(model.scale()), *model.quantised(y))
    return model


def leaky_relu(rng: Rng) -> Model:
    """Return leaky ReLUs of every value."""
    model = Model(rng, VALUES)
    for _ in range(16):
        x, alpha = model.scale(), float(rng.choice([0.01, 0.1, 0.125, rng.uniform(0, 1)]))
        y = rng.choice([x / 2, x * rng.uniform(0.3, 1.5)])
        model.add("QLinearLeakyRelu", "image", *model.quantised(x), *model.quantised(y), alpha=alpha)
    return model


def concat(rng: Rng) -> Model:
    """Return concatenations of every value, as it is and rescaled."""
    model = Model(rng, VALUES)
    for _ in range(8):
        y = model.scale()
        ratios = rng.choice([1, 0.5, 2, 0.25, rng.uniform(0.3, 1)], rng.integers(2, 4))
        parts = [name for ratio in ratios for name in ("image", *model.quantised(y * ratio))]
        model.add("QLinearConcat", *model.quantised(y), *parts, axis=1)
    return model


def global_pool(rng: Rng) -> Model:
    """Return means over height and width."""
    model = Model(rng, (int(rng.integers(1, 20)), int(rng.integers(1, 12)), int(rng.integers(1, 12))))
    for _ in range(6):
        x = model.scale()
        scales = [*model.quantised(x), *model.quantised(x * rng.choice([1, 0.5, rng.uniform(0.2, 1)]))]
        model.add("QLinearGlobalAveragePool", "image", *scales, channels_last=0)
    return model


def average_pool(rng: Rng, *, whole: bool = False) -> Model:
    """Return means over windows, padded or not, or over one window of the image's size."""
    height, width = (int(size) for size in rng.integers(4, 12, 2))
    model = Model(rng, (int(rng.integers(1, 6)), height, width))
    for _ in range(4):
        kernel = [height, width] if whole else [int(size) for size in rng.integers(1, 5, 2)]
        pads = [0] * 4 if whole or rng.random() < 0.5 else [int(p) for p in rng.integers(0, 3, 4) % (2 * kernel)]
        x = model.scale()
        scales = [*model.quantised(x), *model.quantised(x * rng.choice([1, 0.5, rng.uniform(0.2, 1.2)]))]
        window = {"kernel_shape": kernel, "strides": [int(step) for step in rng.integers(1, 4, 2)], "pads": pads}
        model.add("QLinearAveragePool", "image", *scales, **window, count_include_pad=int(rng.integers(2)))
    return model


def max_pool(rng: Rng) -> Model:
    """Return maxima over windows."""
    model = Model(rng, (int(rng.integers(1, 6)), int(rng.integers(4, 12)), int(rng.integers(4, 12))))
    for _ in range(4):
        kernel = [int(size) for size in rng.integers(1, 5, 2)]
        pads = [int(pad) for pad in rng.integers(0, 3, 4) % (2 * kernel)]
        model.add("MaxPool", "image", kernel_shape=kernel, strides=[int(s) for s in rng.integers(1, 4, 2)], pads=pads)
    return model


def convolution(rng: Rng, kind: str) -> Model:
    """Return convolutions of one kind (dense, depthwise or pointwise), with a scale a channel or one for all."""
    channels, size = int(rng.integers(1, 24)), 1 if kind == "pointwise" else int(rng.choice([3, 5]))
    model = Model(rng, (channels, int(rng.integers(3, 12)), int(rng.integers(3, 12))))
    for _ in range(4):
        outputs, groups = (channels, channels) if kind == "depthwise" else (int(rng.integers(1, 24)), 1)
        x, weights, scales, bias, y = _weights(model, (outputs, channels // groups, size, size))
        inputs = ["image", *model.quantised(x), model.constant(weights), *scales, *model.quantised(y)]
        strides = [int(rng.integers(1, 3))] * 2
        window = {"kernel_shape": [size] * 2, "strides": strides, "pads": [size // 2] * 4, "group": groups}
        model.add("QLinearConv", *inputs, bias, **window)
    return model


def linear(rng: Rng) -> Model:
    """Return fully connected layers, weights transposed or not."""
    size, outputs = int(rng.integers(1, 200)), int(rng.integers(1, 20))
    model = Model(rng, (size, 1, 1))
    for _ in range(4):
        x, weights, scales, bias, y = _weights(model, (outputs, size))
        transposed = int(rng.integers(2))
        matrix = model.constant(weights if transposed else weights.T.copy())
        flat = model.add("Flatten", "image")
        inputs = [flat, *model.quantised(x), matrix, *scales, bias, *model.quantised(y)]
        model.add("QGemm", *inputs, alpha=1.0, transB=transposed)
    return model


def _weights(model: Model, shape: tuple[int, ...]) -> tuple[float, npt.NDArray[np.int8], list[str], str, float]:
    """Return the input's scale, weights, names of their scales and zeros, of the biases, and the output's scale."""
    weights = np.clip(model.rng.normal(0, 50, shape), -127, 127).astype(np.int8)
    spread = int(50 * 74 * np.sqrt(weights[0].size))  # of the sums: 74 is that of uniform int8 values
    each = np.float32([model.scale(1e-4, 0.03) for _ in range(shape[0])])
    x, w = model.scale(), each if model.rng.random() < 0.7 else each[0]
    y = float(x * np.median(w) * spread / model.rng.uniform(30, 90))
    bias = model.constant(model.rng.integers(-spread, spread + 1, shape[0]).astype(np.int32))
    return x, weights, [model.constant(w), model.constant(np.zeros(np.shape(w), np.int8))], bias, y


MODELS: dict[str, Callable[[Rng], Model]] = {
    "add": lambda rng: pairs(rng, "QLinearAdd"),
    "add of odd sizes": lambda rng: pairs(rng, "QLinearAdd", (3, 7, int(rng.integers(1, 9)))),
    "add of vectors": lambda rng: pairs(rng, "QLinearAdd", (int(rng.integers(1, 40)), 1, 1)),
    "mul": lambda rng: pairs(rng, "QLinearMul"),
    "mul of odd sizes": lambda rng: pairs(rng, "QLinearMul", (3, 7, int(rng.integers(1, 9)))),
    "mul by a gate": lambda rng: pairs(rng, "QLinearMul", (9, 3, int(rng.integers(1, 9))), (9, 1, 1)),
    "sigmoid": sigmoid,
    "leaky relu": leaky_relu,
    "concat": concat,
    "global pool": global_pool,
    "average pool": average_pool,
    "average pool of the whole": lambda rng: average_pool(rng, whole=True),
    "max pool": max_pool,
    "dense": lambda rng: convolution(rng, "dense"),
    "depthwise": lambda rng: convolution(rng, "depthwise"),
    "pointwise": lambda rng: convolution(rng, "pointwise"),
    "linear": linear,
}
