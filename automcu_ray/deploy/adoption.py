"""A user's own ONNX file, written anew as `tracing.trace` writes a network: the one form that the rest understands.

It runs in the bounded process alone, since what it reads may be anybody's.
"""

import itertools
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.onnx_graph import free_batch, worked_out
from automcu_ray.deploy.own_names import take_over
from automcu_ray.deploy.pixels import KNOWN, Pixels
from automcu_ray.deploy.quantised.file import as_pairs, drop_quantised_softmax, is_quantised
from automcu_ray.deploy.recurrent_layers import KINDS
from automcu_ray.deploy.tracing import INPUT, OPSET, OUTPUT, TRACED
from automcu_ray.deploy.untrusted_onnx import check_values

MAX_BYTES = 64_000_000


def adopt(model: bytes, input_shape: tuple[int, int, int], num_classes: int, pixels: Pixels) -> tuple[bytes, list[str]]:
    """Return the network as `trace` would have written it, and what was changed, in words for people.

    Afterwards it takes TRACED images (channels, height, width) of values `(pixel - 128) / 128` and gives TRACED rows of
    logits, in operator set OPSET, with all that is constant worked out (by onnxruntime's basic rewrites).

    Args:
        model: an ONNX file, one input of images (batch first; channels first or last, or flat), one output; float, or
            int8 with scales of its own, which then stands between pairs of QuantizeLinear and DequantizeLinear.
        input_shape: (channels, height, width) of the data.
        num_classes: outputs: the classes, or targets, of the data, or the values of an image that is reconstructed.
        pixels: what the network takes for a pixel.

    Raises:
        ToolchainError: it is no such file, or is of other data.
    """
    loaded = _load(model)
    changes: list[str] = []
    if (quantised := is_quantised(loaded)) and as_pairs(loaded):
        pixels = KNOWN["symmetric"]
        changes.append("it takes integers: each is its pixel less 128, whatever --pixels says")
    ours, labels = take_over(_in_our_opset(loaded))
    taken = set[str]()
    for node in ours.graph.node:  # what its author called it; onnxruntime wants each name once
        called = labels[node.name]
        numbered = (f"{called}_{number}" for number in itertools.count(2))
        node.name = next(name for name in itertools.chain([called], numbered) if name not in taken)
        taken.add(node.name)
    if not (kind := drop_quantised_softmax(ours.graph) if quantised else ""):
        kind = _drop_softmax(ours.graph)
    if kind:
        changes.append(f"{kind} at the end left out: the largest logit is the same class")
    batch = _take_our_images(ours.graph, input_shape, pixels, changes, by_layer=not quantised)
    _give_logits(ours.graph, num_classes)
    for value in (ours.graph.input[0], ours.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = batch or TRACED
    made = worked_out(ours)
    if batch:
        made = _for_any_batch(made, batch)
    return bytes(made.SerializeToString()), changes


def _load(model: bytes) -> onnx.ModelProto:
    """Return the file as a model whose names are text and whose tensors lie in it and can be read."""
    if len(model) > MAX_BYTES:
        raise ToolchainError(f"an ONNX file of at most {MAX_BYTES} bytes is wanted, found {len(model)}.")
    try:
        loaded = onnx.load_from_string(model)
    except Exception as error:  # protobuf's own class, from a package without types
        raise ToolchainError("an ONNX file is wanted; this one cannot be read as one.") from error
    if any(tensor.external_data for tensor in loaded.graph.initializer):
        raise ToolchainError("its weights should lie in the file itself: save it with save_as_external_data=False.")
    nodes = loaded.graph.node
    texts = [text for node in nodes for text in (node.op_type, node.domain, *(entry.name for entry in node.attribute))]
    if any(isinstance(text, bytes) for text in texts):  # so protobuf gives what is no UTF-8
        raise ToolchainError("the name of an operator, of its domain or of an attribute is no UTF-8 text.")
    check_values(loaded)
    return loaded


def _in_our_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    versions = {entry.domain: entry.version for entry in model.opset_import}
    if (version := versions.get("", 0)) == OPSET:
        return model
    try:
        return version_converter.convert_version(model, OPSET)
    except Exception as error:  # a C++ converter: RuntimeError and others
        raise ToolchainError(
            f"operator set {OPSET} is wanted; this file has {version}, and onnx cannot convert it "
            f"({_first_line(error)}). Export it with opset_version={OPSET}."
        ) from error


def _drop_softmax(graph: onnx.GraphProto) -> str:
    """Take a softmax off the end: the largest stays the largest, and int8 keeps more of logits. Return its kind."""
    last = next(node for node in graph.node if OUTPUT in node.output)
    if last.op_type not in ("Softmax", "LogSoftmax") or not last.input:
        return ""
    graph.node.remove(last)
    _rename(graph, last.input[0], OUTPUT)
    return str(last.op_type)


def _rename(graph: onnx.GraphProto, before: str, after: str) -> None:
    for node in graph.node:
        node.input[:] = [after if name == before else name for name in node.input]
        node.output[:] = [after if name == before else name for name in node.output]


def _take_our_images(
    graph: onnx.GraphProto, input_shape: tuple[int, int, int], pixels: Pixels, changes: list[str], *, by_layer: bool
) -> int:
    """Put in front what turns our images into the network's: its axes, its values of pixels.

    Return the batch size that the file was written for, 0 where it is open.
    """
    kind = graph.input[0].type.tensor_type
    sizes = tuple(dim.dim_value for dim in kind.shape.dim)
    channels = input_shape[0]
    turned = next((one for one in _forms(input_shape) if fits(sizes, one.sizes)), None)
    if kind.elem_type != TensorProto.FLOAT or turned is None:
        signals = "; without the axis of one, too" * (1 in input_shape)
        raise ToolchainError(
            f"an input of float images (batch, {', '.join(map(str, input_shape))}), channels last, or flat, is wanted, "
            f"as the data are{signals}; found {sizes if sizes else 'another type'}."
        )
    before: list[onnx.NodeProto] = []
    if not pixels.ours:
        slope, offset = pixels.affine(channels)
        weights = {
            f"{INPUT}_slope": np.array(slope, np.float32).reshape(-1, 1, 1, 1),
            f"{INPUT}_offset": np.array(offset, np.float32),
        }
        graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
        before.append(helper.make_node("Conv", [INPUT, *weights], [f"{INPUT}_values"], name="pixels", group=channels))
        changes += [f"a layer in front that turns pixels into {pixels}"] if by_layer else []
    source = before[-1].output[0] if before else INPUT
    if turned.flat:
        before.append(helper.make_node("Flatten", [source], [f"{INPUT}_flat"], name="flat", axis=1))
        changes.append("a flat input: an image's values, channel after channel, row by row")
    if turned.gone is not None:
        axes = f"{INPUT}_one"
        graph.initializer.append(numpy_helper.from_array(np.array([turned.gone]), axes))
        before.append(helper.make_node("Squeeze", [source, axes], [f"{INPUT}_signal"], name="signal"))
        source = f"{INPUT}_signal"
    if turned.perm:
        before.append(
            helper.make_node("Transpose", [source], [f"{INPUT}_last"], name="channels_last", perm=turned.perm)
        )
        changes.append("channels last: turned to channels first")
    if before:
        _rename(graph, INPUT, before[-1].output[0])
    for node in reversed(before):
        graph.node.insert(0, node)
    del graph.input[:]
    graph.input.append(helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [TRACED, *input_shape]))
    return int(sizes[0])


class _Form(NamedTuple):
    """A form that a network may take our images in: its sizes, the axis of one that is left out, the order; or flat."""

    sizes: tuple[int, ...]
    gone: int | None = None
    perm: tuple[int, ...] = ()
    flat: bool = False


def _forms(input_shape: tuple[int, int, int]) -> list[_Form]:
    channels, height, width = input_shape
    found = [_Form(input_shape), _Form((height, width, channels), perm=(0, 2, 3, 1))]
    found.append(_Form((channels * height * width,), flat=True))
    if height == 1:  # a signal
        found += [_Form((channels, width), gone=2), _Form((width, channels), gone=2, perm=(0, 2, 1))]
    if channels == 1:
        found.append(_Form((height, width), gone=1))
    return found


def fits(sizes: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Return whether an input of these sizes, 0 where open, takes images of that shape."""
    return len(sizes) == len(wanted) + 1 and all(
        found in (0, size) for found, size in zip(sizes[1:], wanted, strict=True)
    )


def _for_any_batch(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """Return a network that was written for one batch size as one that was traced for TRACED images."""
    free_batch(model, batch)
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = TRACED
    _fix_states(model.graph)
    return worked_out(model)


def _fix_states(graph: onnx.GraphProto) -> None:
    """Let recurrent layers begin with states for the images traced, where they were written for another number."""
    states = {name for node in graph.node if node.op_type in KINDS for name in node.input[5:7]}
    for tensor in graph.initializer:
        state = numpy_helper.to_array(tensor) if tensor.name in states else np.zeros(0)
        if state.ndim == 3 and (state == state[:, :1]).all():
            tensor.CopyFrom(numpy_helper.from_array(state[:, :1].repeat(TRACED, axis=1), tensor.name))


def _give_logits(graph: onnx.GraphProto, num_classes: int) -> None:
    """Flatten the answer where it is (batch, classes, 1, 1), and drop the sizes that the file claims for it."""
    sizes = [dim.dim_value for dim in graph.output[0].type.tensor_type.shape.dim]
    if len(sizes) > 1 and sizes[1] not in (0, num_classes):
        raise ToolchainError(f"{num_classes} outputs are wanted, as the data ask for; found {sizes[1]}.")
    if len(sizes) > 2 and sizes[2:] == [1] * (len(sizes) - 2):
        _rename(graph, OUTPUT, f"{OUTPUT}_maps")
        graph.node.append(helper.make_node("Flatten", [f"{OUTPUT}_maps"], [OUTPUT], name="logits", axis=1))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [TRACED, num_classes]))
    del graph.value_info[:]


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return "".join(char for char in lines[0] if char.isprintable())[:300]
