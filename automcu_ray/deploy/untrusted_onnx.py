"""ONNX that a process nobody trusts has written: what it must be before it is loaded, what it holds, what it equals.

What passes is run by onnxruntime outside the jail, in a process of its own (`bounded`).
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.operator_cost import OPERATORS, PAIR, operations
from automcu_ray.deploy.operator_cost import macs as count_macs
from automcu_ray.deploy.static_sizes import infer_shapes
from automcu_ray.deploy.tracing import INPUT, OPSET, OUTPUT, TRACED

MAX_BYTES = 64_000_000
MAX_NODES = 5_000
MAX_INPUTS = 64  # of one operator: a wide Concat has some ten
MAX_TENSOR = 1 << 22  # values of one intermediate tensor, for the images traced: 2 MB an image at int8
MAX_VALUES = 1 << 25  # of all intermediate tensors together
MAX_OPERATIONS = 1_000_000_000  # per image; an STM32H7 would take several seconds
_TRAINING_TOO = OPERATORS | {"Bernoulli", "Dropout", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
_ATTRIBUTES = frozenset({"FLOAT", "INT", "STRING", "STRINGS", "TENSOR", "FLOATS", "INTS"})
_TYPES = (TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
_INT8 = (TensorProto.INT8, TensorProto.UINT8)
_FEW_VALUES = 64  # constants in the code up to this size are structure: shapes, a scale, a dropout's rate


@dataclass(frozen=True)
class ForeignNetwork:
    """What a checked model holds: parameters after folding BatchNorm, multiply-accumulates an image.

    `stored` are the parameters that are not the same as others, `largest` the values of the largest tensor, an image.
    """

    parameters: int
    macs: int
    stored: int = field(compare=False)  # equal biases are stored once until they have been trained
    largest: int


def check_foreign(
    model: bytes, input_shape: tuple[int, int, int], num_classes: int, *, pairs: bool = False
) -> ForeignNetwork:
    """Return what a traced model holds, if it is one that may be loaded, run, and quantised here.

    It is one graph of known operators over tensors of fixed, bounded sizes, complete in itself, from TRACED images to
    TRACED rows of logits. Its values are not looked at. With `pairs` it may be quantised (QuantizeLinear and
    DequantizeLinear around float operators), as files are and what torch traces here is not.

    Raises:
        ToolchainError: it is not; says why.
    """
    loaded = _load(model, OPERATORS | PAIR if pairs else OPERATORS)
    graph = loaded.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    found = [(value.name, _shape(value)) for value in (*inputs, *graph.output)]
    wanted = [(INPUT, (TRACED, *input_shape)), (OUTPUT, (TRACED, num_classes))]
    if found != wanted or len(inputs) != 1:
        raise _refusal(f"it should take and give {wanted}, found {str(found)[:150]}")
    if any(value.type.tensor_type.elem_type != TensorProto.FLOAT for value in (*inputs, *graph.output)):
        raise _refusal("it should take and give float tensors")
    return _measure(loaded)


def network_hash(model: bytes) -> str:
    """Return 12 hex digits that are equal for equal structures: operators, attributes, shapes, and what feeds what.

    Names, weights, and the order in which independent branches were written do not count. Operators are numbered as
    a walk from the output first meets them, so two uses of one weight differ from one use of two, equal or not.

    Raises:
        ToolchainError: the file is refused as `check_foreign` refuses it, or is a graph without an output.
    """
    graph = _load(model, _TRAINING_TOO).graph  # it is read, and never run
    try:
        signature = _walk(graph)
    except Exception as error:  # anything that a file can be wrong with
        raise _refusal("its structure cannot be read") from error
    return hashlib.sha256(repr(signature).encode()).hexdigest()[:12]


def _load(model: bytes, operators: frozenset[str]) -> onnx.ModelProto:
    """Return the model where its container, operators and tensors are harmless, all but its shapes."""
    if len(model) > MAX_BYTES:
        raise _refusal(f"it has {len(model)} bytes, over {MAX_BYTES}")
    try:
        loaded = onnx.load_from_string(model)
    except Exception as error:  # protobuf's own class, from a package without types
        raise _refusal("it is no ONNX file") from error
    opsets = [(entry.domain, entry.version) for entry in loaded.opset_import]
    if opsets != [("", OPSET)]:
        raise _refusal(f"it should use operator set {OPSET} alone, found {str(opsets)[:80]}")
    if loaded.functions or loaded.training_info or loaded.graph.sparse_initializer:
        raise _refusal("functions, training information and sparse tensors have no place in it")
    if not 0 < len(loaded.graph.node) <= MAX_NODES:
        raise _refusal(f"it should have 1 to {MAX_NODES} operators, found {len(loaded.graph.node)}")
    _check_nodes(loaded.graph.node, operators)
    _check_tensors(loaded, pairs=bool(operators & PAIR))
    return loaded


def _check_nodes(nodes: Iterable[onnx.NodeProto], operators: frozenset[str]) -> None:
    for node in nodes:
        if node.domain or node.op_type not in operators:
            raise _refusal(f"operator {node.domain or 'ai.onnx'}.{node.op_type} is not among the known ones"[:150])
        if len(node.input) > MAX_INPUTS or len(node.output) > MAX_INPUTS:
            raise _refusal(f"operator {node.op_type} has more than {MAX_INPUTS} inputs or outputs")
        for attribute in node.attribute:
            if AttributeProto.AttributeType.Name(attribute.type) not in _ATTRIBUTES:
                raise _refusal(f"operator {node.op_type} has an attribute that is no plain value")
        found = [(attribute.name, attribute.type) for attribute in node.attribute]
        if node.op_type == "Constant" and found != [("value", AttributeProto.TENSOR)]:
            raise _refusal("a Constant should hold one tensor")


def _check_tensors(model: onnx.ModelProto, *, pairs: bool) -> None:
    for tensor in _tensors(model):
        if tensor.external_data or tensor.data_location != TensorProto.DEFAULT:
            raise _refusal("a tensor should lie in the file itself")
        if tensor.data_type not in (_TYPES + _INT8 if pairs else _TYPES):
            raise _refusal("a tensor should hold floats, integers or truth values")
    check_values(model)


def check_values(model: onnx.ModelProto) -> None:
    """Return if every tensor can be read.

    Raises:
        ToolchainError: one cannot.
    """
    for tensor in _tensors(model):
        if any(size < 0 for size in tensor.dims) or math.prod(tensor.dims) > MAX_BYTES:
            raise _refusal("a tensor has an impossible shape")
        try:
            numpy_helper.to_array(tensor)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _refusal("a tensor's values do not fill its shape") from error


def _tensors(model: onnx.ModelProto) -> list[TensorProto]:
    constants = [a.t for node in model.graph.node for a in node.attribute if a.HasField("t")]
    return [*model.graph.initializer, *constants]


def _measure(model: onnx.ModelProto) -> ForeignNetwork:
    """Return parameters and multiply-accumulates from inferred shapes, which must all be known and small.

    The shapes that the file claims are dropped first: inference would believe them.
    """
    del model.graph.value_info[:]
    try:
        inferred = infer_shapes(model)
    except onnx.shape_inference.InferenceError as error:
        said = str(error).strip(" .\n").splitlines()[-1][:100]
        raise _refusal(f"its shapes or types contradict each other: {said}") from error
    graph = inferred.graph
    shapes = {value.name: _shape(value) for value in (*graph.input, *graph.value_info, *graph.output)}
    weights = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    names = [name for node in graph.node for name in node.output if name]
    unknown = [name for name in names if shapes.get(name) is None]
    if unknown:
        raise _refusal(f"the size of {unknown[0][:60]!r} is not known before it runs")
    values = sum(math.prod(shapes[name] or ()) for name in names)
    if values > MAX_VALUES or any(math.prod(shapes[name] or ()) > MAX_TENSOR for name in names):
        raise _refusal(f"its intermediate tensors are too large: {values} values for {TRACED} images")
    known = {**weights, **{name: shape or () for name, shape in shapes.items()}}
    needed = sum(operations(node, known) for node in graph.node) // TRACED
    if needed > MAX_OPERATIONS:
        raise _refusal(f"it needs {needed} operations an image, over {MAX_OPERATIONS}")
    held = _INT8 if any(node.op_type in PAIR for node in graph.node) else (TensorProto.FLOAT,)
    floats = {tensor.name: tensor for tensor in graph.initializer if tensor.data_type in held}
    again = [floats[n.input[0]] for n in graph.node if n.op_type == "Identity" and n.input[0] in floats]
    stored, repeated = (sum(math.prod(tensor.dims) for tensor in group) for group in (floats.values(), again))
    macs = sum(count_macs(node, known) for node in graph.node) // TRACED
    largest = max(math.prod(known[name]) for name in names) // TRACED
    return ForeignNetwork(stored + repeated, macs, stored, largest)


def _shape(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    """Return a value's fixed shape, or None where a size is open."""
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        return None
    dims = value.type.tensor_type.shape.dim
    if any(not dim.HasField("dim_value") or dim.dim_value < 0 for dim in dims):
        return None
    return tuple(dim.dim_value for dim in dims)


def _walk(graph: onnx.GraphProto) -> list[Any]:
    """Return one entry for each value that the output depends on, in the order in which a walk from it ends there.

    A value whose makers are still being walked when it comes up again turns in a circle: it is an end there.
    The exporter writes equal weights once, with an Identity for each other one: here, and where parameters are
    counted, those are weights of their own, or training would change the structure.
    """
    makers = {name: node for node in graph.node for name in node.output}
    weights = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in weights:
            weights[node.output[0]] = weights[node.input[0]]
            makers.pop(node.output[0], None)
    numbers: dict[str, int] = {}
    signature: list[Any] = []
    pending, opened = [graph.output[0].name], set[str]()
    while pending:
        name = pending[-1]
        if name in numbers:
            pending.pop()
            continue
        node = makers.get(name)
        if node is not None and name not in opened:
            opened.add(name)
            missing = [source for source in node.input if source and source not in numbers and source not in opened]
            if missing:
                pending += reversed(missing)
                continue
        signature.append(_about(name, node, weights, numbers))
        for made in node.output if node is not None else [name]:
            numbers[made] = len(numbers)
        pending.pop()
    return signature


def _about(
    name: str, node: onnx.NodeProto | None, weights: dict[str, TensorProto], numbers: dict[str, int]
) -> tuple[Any, ...]:
    if node is None:
        return (weights[name].data_type, tuple(weights[name].dims)) if name in weights else ("input",)
    if node.op_type == "Constant":
        value = numpy_helper.to_array(node.attribute[0].t)
        return str(value.dtype), value.shape, value.tolist() if value.size <= _FEW_VALUES else ()
    attributes = sorted((a.name, onnx.helper.get_attribute_value(a)) for a in node.attribute)
    return node.op_type, repr(attributes), tuple(numbers.get(source, -1) for source in node.input)


def _refusal(why: str) -> ToolchainError:
    return ToolchainError(f"the exported network is refused: {why}.")
