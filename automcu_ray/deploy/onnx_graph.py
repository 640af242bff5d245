"""Questions about an ONNX graph, and the two edits that export needs."""

import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.batch_rules import put_images_first
from automcu_ray.deploy.einsum import use_matrix_products

MOVES = ("MaxPool", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze")  # their values are some of their input's
_NOT_USED = [  # rewrites: one reshapes for one batch size, the others move and merge a file's own roundings
    "MatMulAddFusion",
    "QDQPropagationTransformer",
    "DoubleQDQPairsRemover",
    "EnsureUniqueDQForNodeUnit",
    "WeightBiasQuantization",
]
_WITH_INT8 = frozenset(  # in float because of another operator
    """Add AveragePool Cast Clip Concat Conv Flatten Gather Gemm GlobalAveragePool LeakyRelu MatMul MaxPool Mul Relu
    Reshape Resize Sigmoid Split Squeeze Transpose Unsqueeze""".split()
)


@dataclass(frozen=True)
class IntegerEnds:
    """Scales and zero points of an int8 model's input and output: real value = (q - zero_point) * scale."""

    input_scale: float
    input_zero_point: int
    output_scale: float
    output_zero_point: int


def operators(model: bytes) -> tuple[str, ...]:
    """Return the distinct operator types of a model, sorted."""
    return tuple(sorted({node.op_type for node in onnx.load_from_string(model).graph.node}))


def values_per_image(float_onnx: bytes) -> int:
    """Return how many values all tensors of a float model hold for one image; those of unknown size count as none."""
    model = onnx.load_from_string(float_onnx)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    graph = onnx.shape_inference.infer_shapes(model).graph
    shapes = [value.type.tensor_type.shape.dim for value in (*graph.input, *graph.value_info)]
    return sum(math.prod(dim.dim_value for dim in shape) for shape in shapes)


def computes_constants(model: onnx.ModelProto) -> bool:
    """Return whether there are operators that no image reaches: constant, as sizes are."""
    reached = {model.graph.input[0].name}
    for node in model.graph.node:
        if node.op_type == "Shape" or (reached.isdisjoint(node.input) and node.op_type not in ("Constant", "Identity")):
            return True
        if not reached.isdisjoint(node.input):
            reached.update(node.output)
    return False


def free_batch(model: onnx.ModelProto, traced: int) -> None:
    """Give a model traced with a fixed batch size a dynamic batch axis, in place.

    Tracing with a fixed size turns `x.view(x.size(0), -1)` into one Reshape by a constant instead of six shape
    operators that cannot be quantised; here its first dimension becomes 0, which means "as the input".
    Constant nodes become initializers, and the Identity nodes by which the exporter shares equal weights (all
    biases of an untrained network) go: the quantiser takes neither.

    Raises:
        ToolchainError: the images of a batch are mixed.
    """
    graph = model.graph
    final = {value.name for value in graph.output}
    same: dict[str, str] = {}
    for node in [n for n in graph.node if n.op_type == "Identity" and n.output[0] not in final]:
        same[node.output[0]] = same.get(node.input[0], node.input[0])
        graph.node.remove(node)
    for node in graph.node:
        node.input[:] = [same.get(name, name) for name in node.input]
    for node in [node for node in graph.node if node.op_type == "Constant"]:
        tensor = graph.initializer.add()
        tensor.CopyFrom(node.attribute[0].t)
        tensor.name = node.output[0]
        graph.node.remove(node)
    use_matrix_products(model)
    put_images_first(model, traced)
    shapes = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    for tensor in graph.initializer:
        sizes = numpy_helper.to_array(tensor)
        if tensor.name in shapes and sizes.size and sizes[0] == traced:
            tensor.CopyFrom(numpy_helper.from_array(np.array([0, *sizes[1:]]), tensor.name))
    for value in (graph.input[0], graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del graph.value_info[:]


def float_operators(model: onnx.ModelProto) -> tuple[str, ...]:
    """Return the operators of a quantised model that take or give a float tensor, sorted; () is a full int8 graph.

    The one QuantizeLinear at the input and the one DequantizeLinear at the output do not count. What only moves values
    is in float because of another operator, and named where there is no other.
    """
    graph = model.graph
    source, sink = graph.input[0].name, graph.output[0].name
    floats, stuck = {source}, set[str]()
    for node in graph.node:
        is_float = floats.intersection(node.input)
        if node.op_type == "QuantizeLinear":
            stuck.update({node.op_type} if node.input[0] != source else ())
        elif node.op_type == "DequantizeLinear":
            floats.update(node.output)
            stuck.update({node.op_type} if node.output[0] != sink else ())
        elif is_float:
            floats.update(node.output)
            stuck.add(node.op_type)
    real = stuck - {"QuantizeLinear", "DequantizeLinear"}
    real = {kind for kind in real if not kind.startswith("Q")} or real
    return tuple(sorted(real - _WITH_INT8 or real.difference(MOVES) or real or stuck))


def named(kinds: Sequence[str], graph: onnx.GraphProto, lines: Mapping[str, str]) -> str:
    """Return operator types, each with the first node of it and, where known, the line of its author's code.

    `lines` are of nodes of the float graph; what was made of one of them has its name, and more.
    """
    words = []
    for kind in kinds:
        name = next((node.name for node in graph.node if node.op_type == kind), "")
        base = re.match(r"node\d+", name)
        place = [base[0] if base else name, lines.get(base[0] if base else name, "")]
        words.append(f"{kind} ({', '.join(filter(None, place))})" if name else kind)
    return ", ".join(words)


def leading_window(model: onnx.ModelProto) -> int:
    """Return the pixels (of one side) that one value sees through the max pools at a model's input; 1 without any."""
    window, step, name = 1, 1, model.graph.input[0].name
    for node in model.graph.node:
        if node.op_type != "MaxPool" or node.input[0] != name:
            break
        sizes = {attribute.name: attribute.ints for attribute in node.attribute}
        window += (sizes["kernel_shape"][0] - 1) * step
        step *= (sizes.get("strides") or [1])[0]
        name = node.output[0]
    return window


def quantise_before_pools(model: onnx.ModelProto) -> None:
    """Swap max pools and flattening at the input with every QuantizeLinear behind them, in place: one is left.

    onnxruntime leaves an operator in float that only moves values, if what it reads is not quantised yet. A maximum
    commutes with the (monotone) quantisation, so the swapped graph gives the same values. What another operator reads
    as well stays in float.
    """
    graph, image = model.graph, model.graph.input[0].name
    values = {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in graph.initializer}
    entry = onnx.NodeProto()
    renamed: dict[str, str] = {}
    for node in [node for node in graph.node if image in node.input]:
        for quantise in (found := _quantisers_behind(graph, node)):
            if not entry.op_type:
                entry.CopyFrom(quantise)
                entry.input[0], entry.output[0] = image, f"{image}_int8"
            if [values[name] for name in quantise.input[1:]] != [values[name] for name in entry.input[1:]]:
                found = []  # two scales: one input cannot have both
        for quantise in found:
            renamed[quantise.output[0]] = quantise.input[0] if quantise.input[0] != image else entry.output[0]
            graph.node.remove(quantise)
        if found and node.op_type != "QuantizeLinear":
            node.input[0] = entry.output[0]
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    if renamed:
        graph.node.insert(0, entry)


def _quantisers_behind(graph: onnx.GraphProto, node: onnx.NodeProto) -> Sequence[onnx.NodeProto]:
    """Return every QuantizeLinear that a node leads to; none where something else does more than move its values."""
    found, pending = [], [node]
    while pending:
        reader = pending.pop()
        if reader.op_type == "QuantizeLinear":
            found.append(reader)
            continue
        behind = [other for other in graph.node if reader.output[0] in other.input]
        if reader.op_type not in MOVES or not behind:
            return []
        pending += behind
    return found


def integer_ends(model: onnx.ModelProto) -> IntegerEnds:
    """Cut the leading QuantizeLinear and the trailing DequantizeLinear off a full int8 graph, in place.

    Input and output keep their names and become int8. Shapes of intermediates are dropped: the exporter's are
    of the float graph.

    Raises:
        ToolchainError: nothing was quantised.
    """
    graph = model.graph
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    first = next((node for node in graph.node if node.op_type == "QuantizeLinear"), None)
    last = next((node for node in graph.node if node.op_type == "DequantizeLinear"), None)
    if first is None or last is None:
        raise ToolchainError("int8 needs an output that is worked out from the input: this network has none.")
    ends = IntegerEnds(*(values[name].item() for name in (*first.input[1:3], *last.input[1:3])))
    renamed = {first.output[0]: first.input[0], last.input[0]: last.output[0]}
    graph.node.remove(first)
    graph.node.remove(last)
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    for value in (graph.input[0], graph.output[0]):
        value.type.tensor_type.elem_type = TensorProto.INT8
    del graph.value_info[:]
    return ends


def with_batch_one(model: bytes) -> onnx.ModelProto:
    """Return the model with batch size 1 and every intermediate's type and shape, as the C generator needs it.

    onnxruntime is the oracle: ONNX's own shape inference does not know the com.microsoft operators.
    """
    fixed = onnx.load_from_string(model)
    graph = fixed.graph
    for value in (graph.input[0], graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    del graph.value_info[:]
    names = [name for node in graph.node for name in node.output if name and name != graph.output[0].name]
    probe = onnx.ModelProto()
    probe.CopyFrom(fixed)
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # keep every tensor
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = ort.InferenceSession(probe.SerializeToString(), options, providers=["CPUExecutionProvider"])
    entry = graph.input[0].type.tensor_type
    images = np.zeros([dim.dim_value for dim in entry.shape.dim], helper.tensor_dtype_to_np_dtype(entry.elem_type))
    arrays = session.run(names, {graph.input[0].name: images}) if names else []
    _fix_sizes(graph, dict(zip(names, arrays, strict=True)))
    made = {name for node in graph.node for name in node.output}
    for name, array in zip(names, arrays, strict=True):
        if name not in made:
            continue
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        graph.value_info.append(helper.make_tensor_value_info(name, kind, array.shape))
    return fixed


def _fix_sizes(graph: onnx.GraphProto, values: Mapping[str, npt.NDArray[Any]]) -> None:
    """Make constants of what depends on sizes alone: they are known."""
    fixed = {tensor.name for tensor in graph.initializer} | {""}
    for node in list(graph.node):
        if node.op_type == "Shape" or fixed.issuperset(node.input):
            for name in node.output:
                graph.initializer.append(numpy_helper.from_array(values[name], name))
            fixed.update(node.output)
            graph.node.remove(node)


def worked_out(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model after onnxruntime's basic rewrites: constants folded, shapes fixed, transposes cancelled.

    Raises:
        ToolchainError: onnxruntime refuses it.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    with tempfile.TemporaryDirectory(prefix="automcu-adopt-") as folder:
        path = Path(folder, "worked_out.onnx")
        options.optimized_model_filepath = str(path)
        try:
            ort.InferenceSession(
                model.SerializeToString(),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=_NOT_USED,
            )
        except Exception as error:  # onnxruntime's errors share no base class
            lines = str(error).strip().splitlines() or [type(error).__name__]
            said = "".join(char for char in lines[0] if char.isprintable())[:300]
            raise ToolchainError(f"onnxruntime cannot load it: {said}") from error
        made = onnx.load(path)
    used = {node.domain for node in made.graph.node}
    kept = [entry for entry in made.opset_import if entry.domain in used]
    del made.opset_import[:]
    made.opset_import.extend(kept)
    del made.graph.value_info[:]
    return made
