"""Whether this host's onnxruntime adds int8 products exactly: what is scored must be the integers that a board gives.

Kernels of x86 processors without VNNI may add pairs of 8-bit products in 16 bits, and saturate there. Which kernel
runs depends on the processor, on the types and on the level of graph optimisation. Source: "When and why do I need to
try U8U8?", onnxruntime.ai/docs/performance/model-optimizations/quantization.html.
"""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import GraphOptimizationLevel

from automcu_ray.core.errors import ToolMissingError

CHANNELS, SIDE, OUTPUT_ZERO_POINT = 16, 6, 3
DIVISOR = 4096  # of the sums, which reach some ten thousand times 127: a power of two, so that float32 rounds as we do


@functools.cache
def exact_level() -> GraphOptimizationLevel:
    """Return the level at which int8 networks are scored: full optimisation, or none where only that is exact.

    Asked once a process, for some 20 ms: convolutions (full, depthwise, 1x1), a linear layer and products of computed
    matrices, with the largest weights and inputs there are, against the sums of numpy's integers.

    Raises:
        ToolMissingError: this host gives other integers at either level.
    """
    images, outputs, model = _probe()
    for level in (GraphOptimizationLevel.ORT_ENABLE_ALL, GraphOptimizationLevel.ORT_DISABLE_ALL):
        options = ort.SessionOptions()
        options.graph_optimization_level, options.intra_op_num_threads = level, 1
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        found = session.run(list(outputs), {"images": images})
        if all(np.array_equal(one, wanted) for one, wanted in zip(found, outputs.values(), strict=True)):
            return level
    raise ToolMissingError(
        f"scoring int8 networks needs exact sums of int8 products; onnxruntime {ort.__version__} gives others on this "
        "processor, with and without graph optimisation. Install the version that constraints.txt names, or choose "
        "precision float32."
    )


def _probe() -> tuple[npt.NDArray[np.int8], dict[str, npt.NDArray[np.int8]], bytes]:
    """Return images, what each output should be for them, and the model: five operators that read the same images."""
    rng = np.random.default_rng(0)
    images = rng.choice(np.array([-128, 127], np.int8), (2, CHANNELS, SIDE, SIDE))
    constants: dict[str, npt.NDArray[Any]] = {
        "scale": np.array(1 / 128, np.float32),
        "zero": np.array(0, np.int8),
        "weight_scale": np.full(CHANNELS, 1 / 128, np.float32),
        "weight_zero": np.zeros(CHANNELS, np.int8),
        "bias": rng.integers(-9999, 9999, CHANNELS, np.int32),
        "output_scale": np.array(DIVISOR / 128**2, np.float32),
        "output_zero": np.array(OUTPUT_ZERO_POINT, np.int8),
    }
    scales, ends = ["scale", "zero"], ["output_scale", "output_zero"]
    nodes, outputs = [helper.make_node("Flatten", ["images"], ["flat"])], {}
    for name, inputs, kernel in (("conv", CHANNELS, 3), ("depthwise", 1, 3), ("point", CHANNELS, 1), ("linear", 0, 0)):
        weight_of = [f"{name}_weight", "weight_scale", "weight_zero"]
        shape = (CHANNELS, inputs, kernel, kernel) if inputs else (CHANNELS, CHANNELS * SIDE * SIDE)
        weight = constants[weight_of[0]] = rng.choice(np.array([-127, 127], np.int8), shape)
        if inputs:
            windows = np.lib.stride_tricks.sliding_window_view(images.astype(np.int64), (kernel, kernel), (2, 3))
            sums = np.einsum("ncyxij,ocij->noyx" if inputs > 1 else "noyxij,ocij->noyx", windows, weight)
            sums += constants["bias"][:, None, None]
            read = ["images", *scales, *weight_of, *ends, "bias"]
            nodes.append(helper.make_node("QLinearConv", read, [name], group=CHANNELS // inputs))
        else:
            sums = images.reshape(len(images), -1).astype(np.int64) @ weight.T + constants["bias"]
            read = ["flat", *scales, *weight_of, "bias", *ends]
            nodes.append(helper.make_node("QGemm", read, [name], domain="com.microsoft", transB=1))
        outputs[name] = (np.round(sums / DIVISOR) + OUTPUT_ZERO_POINT).clip(-128, 127).astype(np.int8)
    rows = images.reshape(len(images), CHANNELS, -1).astype(np.int64)
    constants["rows_shape"] = np.array([0, CHANNELS, -1], np.int64)
    nodes.append(helper.make_node("Reshape", ["images", "rows_shape"], ["rows"]))
    nodes.append(helper.make_node("Transpose", ["rows"], ["columns"], perm=[0, 2, 1]))
    nodes.append(helper.make_node("QLinearMatMul", ["rows", *scales, "columns", *scales, *ends], ["matrices"]))
    outputs["matrices"] = (
        (np.round(rows @ rows.swapaxes(1, 2) / DIVISOR) + OUTPUT_ZERO_POINT).clip(-128, 127).astype(np.int8)
    )
    shapes = {"images": images.shape, **{name: wanted.shape for name, wanted in outputs.items()}}
    ends_of_graph = [helper.make_tensor_value_info(name, TensorProto.INT8, shape) for name, shape in shapes.items()]
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "probe", ends_of_graph[:1], ends_of_graph[1:], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return images, outputs, bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
