"""Operators that move values, written as moves that become C: a Gather along an axis, a transposition, a Concat."""

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import NodeProto, TensorProto, helper, numpy_helper

from automcu_ray.deploy.graph_editor import Chain, Editor, options_of

_REPEATING = ("Add", "Div", "Max", "Min", "Mul", "Sub")


def shuffle(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """Depth to space, or back: a transposition."""
    _, channels, height, width = editor.shapes.get(node.input[0], (0, 0, 0, 0))
    block, chain = options_of(node)["blocksize"], Chain(editor, node, node.input[0])
    if node.op_type == "SpaceToDepth":
        chain.reshaped(channels, height // block, block, width // block, block)
        chain.then("Transpose", perm=[0, 3, 5, 1, 2, 4])
        return chain.reshaped(channels * block**2, height // block, width // block).done()
    left = channels // block**2
    if options_of(node).get("mode", b"DCR") == b"DCR":
        chain.reshaped(block, block, left, height, width).then("Transpose", perm=[0, 3, 4, 1, 5, 2])
    else:
        chain.reshaped(left, block, block, height, width).then("Transpose", perm=[0, 1, 4, 2, 5, 3])
    return chain.reshaped(left, height * block, width * block).done()


def padding(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """Zeros around an image: into the convolutions that read it. Mirrored or repeated edges: rows and columns taken."""
    shape = editor.shapes.get(node.input[0], ())
    pads = editor.constants.get(node.input[1] if len(node.input) > 1 else "")
    if pads is None or not all(shape[1:]) or (pads < 0).any():
        return None
    mode, sizes = options_of(node).get("mode", b"constant").decode(), pads.tolist()
    if mode != "constant":
        chain = Chain(editor, node, node.input[0])
        for axis, (before, after) in enumerate(zip(sizes[: len(shape)], sizes[len(shape) :], strict=True)):
            if before or after:
                how = {"reflect": "reflect", "edge": "edge"}[mode]
                places = np.pad(np.arange(shape[axis]), (before, after), mode=how)  # type: ignore[call-overload]
                chain.then("Gather", places.astype(np.int64), axis=axis)
        return chain.done() if chain.nodes else None
    value = editor.constants.get(node.input[2], np.zeros(1)) if len(node.input) > 2 and node.input[2] else np.zeros(1)
    readers = editor.readers(node.output[0])
    if len(shape) < 3 or any(sizes[:2]) or any(sizes[len(shape) : len(shape) + 2]):
        return None
    around = [*sizes[2 : len(shape)], *sizes[len(shape) + 2 :]]
    if not value.any() and all(map(_pads_with_zeros, readers)):
        for reader in readers:
            given = options_of(reader).get("pads", [0] * len(around))
            kept = [attribute for attribute in reader.attribute if attribute.name != "pads"]
            pads = helper.make_attribute("pads", [a + b for a, b in zip(given, around, strict=True)])
            del reader.attribute[:]
            reader.attribute.extend([*kept, pads])
        return _nothing(editor, node)
    chain, middle = Chain(editor, node, node.input[0]), float(value.reshape(-1)[0])
    if middle:
        chain.then("Add", np.array(-middle, np.float32))
    ones = np.ones((shape[1], 1, *[1] * (len(shape) - 2)), np.float32)
    chain.then("Conv", ones, kernel_shape=list(ones.shape[2:]), group=shape[1], pads=around)
    if middle:
        chain.then("Add", np.array(middle, np.float32))
    return chain.done()


def _pads_with_zeros(node: NodeProto) -> bool:
    return node.op_type == "Conv" and bool(options_of(node).get("auto_pad", b"NOTSET") == b"NOTSET")


def cut(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """A slice, whatever its step: the places that are taken, axis by axis."""
    shape = editor.shapes.get(node.input[0], ())
    given = [editor.constants.get(name) if name else None for name in node.input[1:]]
    given += [None] * (4 - len(given))
    starts, ends, axes, steps = given
    if starts is None or ends is None or not shape:
        return None
    along = range(len(starts)) if axes is None else [int(axis) % len(shape) for axis in axes]
    by = [1] * len(starts) if steps is None else steps.tolist()
    chain = Chain(editor, node, node.input[0])
    for axis, start, end, step in zip(along, starts.tolist(), ends.tolist(), by, strict=True):
        if not shape[axis]:
            return None  # along the images
        places = np.arange(shape[axis])[slice(start, end if step > 0 or end >= -shape[axis] else None, step)]
        if not len(places):
            return None
        if len(places) != shape[axis] or step != 1:
            chain.then("Gather", places.astype(np.int64), axis=axis)
    return chain.done() if chain.nodes else _nothing(editor, node)


def taken(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """One place along an axis, `x[:, 3]`: a list of one, and the axis away."""
    places, shape = editor.constants.get(node.input[1]), editor.shapes.get(node.output[0], ())
    if places is None or places.ndim or node.input[0] in editor.constants or not all(shape[1:]):
        return None
    axis = options_of(node).get("axis", 0)
    chain = Chain(editor, node, node.input[0]).then("Gather", places.reshape(1), axis=axis)
    return chain.then("Squeeze", np.array([axis], np.int64)).done()


def repeated(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """Copies beside each other."""
    times = editor.constants.get(node.input[1])
    if times is None or times[0] != 1:
        return None
    chain = Chain(editor, node, node.input[0])
    for axis, count in enumerate(times.tolist()):
        if count > 1:
            chain.then("Identity")
            beside = chain.nodes[-1]
            beside.op_type, beside.input[:] = "Concat", [beside.input[0]] * count
            beside.attribute.append(helper.make_attribute("axis", axis))
    return chain.done() if chain.nodes else _nothing(editor, node)


def expanded(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """What is repeated for a sum, product or the like alone repeats by itself; else copies beside each other."""
    before, after = editor.shapes.get(node.input[0], ()), editor.shapes.get(node.output[0], ())
    if before == after and before:
        return _nothing(editor, node)
    if len(before) == len(after) and all(reader.op_type in _REPEATING for reader in editor.readers(node.output[0])):
        return _nothing(editor, node)
    if len(before) != len(after) or not all(after[1:]):
        return None
    times = [1, *(new // old for old, new in zip(before[1:], after[1:], strict=True))]
    node.input[1] = editor.constant(node.name, np.array(times, np.int64))
    return repeated(editor, node)


def resized(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """Neighbours with sizes for one batch get scales, for any; what interpolates is a product with a matrix an axis."""
    before, after = editor.shapes.get(node.input[0], ()), editor.shapes.get(node.output[0], ())
    sizes = editor.constants.get(node.input[3]) if len(node.input) > 3 else None
    if sizes is not None:
        after = (0, *sizes[1:].tolist())
    if not before or len(before) != len(after) or not all((*before[1:], *after[1:])):
        return None
    if options_of(node).get("mode", b"nearest") != b"nearest":
        if len(before) != 4 or before[1] != after[1]:
            return None
        chain = Chain(editor, node, node.input[0])
        for axis in (3, 2):
            chain.then("MatMul", _interpolation(node, before[axis], after[axis])).then("Transpose", perm=[0, 1, 3, 2])
        return chain.done()
    if sizes is None:
        return None
    scales = np.array([1.0, *(new / old for new, old in zip(after[1:], before[1:], strict=True))], np.float32)
    short = np.floor(scales[1:] * np.array(before[1:], np.float32)) < after[1:]
    scales[1:][short] = np.nextafter(scales[1:][short], np.float32(np.inf))
    made = NodeProto()
    made.CopyFrom(node)
    made.input[:] = [node.input[0], "", editor.constant(node.name, scales)]
    return [made]


def _interpolation(node: NodeProto, before: int, after: int) -> npt.NDArray[np.float32]:
    """Return the matrix (before, after) of one axis: what onnxruntime makes of each place alone."""
    made = NodeProto()
    made.CopyFrom(node)
    made.input[:], made.output[:] = ["image", "", "", "sizes"], ["result"]
    sizes = numpy_helper.from_array(np.array([1, 1, before, after], np.int64), "sizes")
    ends = [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, before, before])]
    graph = helper.make_graph([made], "axis", ends, [onnx.ValueInfoProto(name="result")], [sizes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    matrix: npt.NDArray[np.float32] = session.run(None, {"image": np.eye(before, dtype=np.float32)[None, None]})[0][
        0, 0
    ]
    return matrix


def same_type(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """A cast of a float to a float."""
    is_float = editor.types.get(node.input[0]) == options_of(node)["to"] == TensorProto.FLOAT
    return _nothing(editor, node) if is_float else None


def _nothing(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """Let whoever reads a node read its input."""
    if node.output[0] in [value.name for value in editor.graph.output]:
        return None
    for reader in editor.readers(node.output[0]):
        reader.input[:] = [node.input[0] if name == node.output[0] else name for name in reader.input]
    return []
