"""How each operator of a graph is written anew where images are put first: `batch_axis` says what for."""

from math import prod

import numpy as np
import onnx
from onnx import NodeProto, helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.batch_axis import FIRST, BatchGraph, Place, Rewrite, shared_place
from automcu_ray.deploy.graph_editor import options_of
from automcu_ray.deploy.operator_cost import PAIR

_BY_VALUE = frozenset(
    """Abs Add And Cast Ceil Celu Clip Cos Div Dropout Elu Equal Erf Exp Floor Greater GreaterOrEqual HardSigmoid
    HardSwish Identity LeakyRelu Less LessOrEqual Log Max Min Mish Mul Neg Not Or Pow PRelu Reciprocal Relu Round Selu
    Sigmoid Sign Sin Softplus Softsign Sqrt Sub Sum Tan Tanh ThresholdedRelu Where""".split()
)
_REDUCTIONS = frozenset("ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum".split())

_DRAWN = frozenset("Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split())


def put_images_first(model: onnx.ModelProto, images: int) -> None:
    """Rewrite a graph traced for so many images in place: those become the first axis of every tensor.

    Nothing is done where a size is not known.

    Raises:
        ToolchainError: the images of a batch are mixed, or an operator does not allow it or draws random numbers; it is
            named.
    """
    graph, nodes = BatchGraph(model, images), model.graph.node
    if any(name and name not in graph.shapes for node in nodes for name in (*node.input, *node.output)):
        return
    for node in list(nodes):
        if node.op_type in _DRAWN:
            raise graph.refusal(node, "draws random numbers, and would answer otherwise each time")
        if any(name in graph.places for name in node.input):
            at = list(nodes).index(node)
            made = graph.by_any_reading(node, _moved)
            nodes.remove(node)
            for number, one in enumerate(made):
                nodes.insert(at + number, one)
    if graph.places.get(model.graph.output[0].name, FIRST) != FIRST:
        raise ToolchainError("a row of logits for each image is wanted; here the images are along another axis.")
    del model.graph.value_info[:]


def _moved(graph: BatchGraph, node: NodeProto) -> list[NodeProto]:
    if rule := _RULES.get(node.op_type):
        return rule(graph, node)
    if node.op_type in PAIR and prod(graph.shapes[node.input[1]]) == 1:
        return _stays(graph, node)
    given = {graph.places[name] for name in node.input if name in graph.places}
    if given != {FIRST} or any(name and graph.shapes[name][:1] != (graph.images,) for name in node.output):
        raise graph.refusal(node, "is computed here only where images are the first axis")
    graph.places |= dict.fromkeys(node.output, FIRST)
    return [node]


def _stays(graph: BatchGraph, node: NodeProto) -> list[NodeProto]:
    graph.places |= dict.fromkeys(node.output, graph.places[node.input[0]])
    return [node]


def _by_value(graph: BatchGraph, node: NodeProto) -> list[NodeProto]:
    """Operands are aligned at the last axis, and repeated."""
    rank = len(graph.shapes[node.output[0]])
    place = graph.places[node.output[0]] = shared_place(graph, node, rank)
    made: list[NodeProto] = []
    for at, name in enumerate(node.input):
        if name in graph.places:
            made += graph.aligned(node, at, rank)
        elif (
            name and prod(shape := graph.shapes[name]) > 1 and (place != FIRST or (len(shape) == rank and shape[0] > 1))
        ):
            node.input[at] = graph.editor.constant(node.name, graph.for_one(node, at, rank, place))
    return [*made, node]


def _reshaped(graph: BatchGraph, node: NodeProto) -> list[NodeProto]:
    """Any change of shape that keeps the order: images stay behind as many values as before."""
    source, result = node.input[0], node.output[0]
    shape, place, wanted = graph.shapes[source], graph.places[source], graph.shapes[result]
    before = prod(shape[: place.axis]) * place.before
    passed = 1
    for axis, size in enumerate(wanted):
        if passed * size >= before * graph.images:
            inner = before // passed
            if before % passed or size % (inner * graph.images):
                break
            found = graph.places[result] = Place(axis, inner, size // inner // graph.images)
            if place == found == FIRST and node.op_type != "Reshape" and graph.images > 1:
                return [node]
            return [graph.reshaped(node, source, result, found.stored_shape(wanted), node.name)]
        passed *= size
    raise graph.refusal(node, f"from {list(shape)} to {list(wanted)} tears the images of a batch apart")


def _transposed(graph: BatchGraph, node: NodeProto) -> list[NodeProto]:
    source, result = node.input[0], node.output[0]
    place, rank = graph.places[source], len(graph.shapes[source])
    order = options_of(node).get("perm", list(range(rank))[::-1])
    found = graph.places[result] = place._replace(axis=order.index(place.axis))
    own = place.axis + 1  # where what is left of the images' axis is
    moved = [0, *(own if axis == place.axis else place.stored_axis(axis) for axis in order)]
    if place.left == 1:
        del moved[1 + found.axis]
    return [helper.make_node("Transpose", [source], [result], name=node.name, perm=moved)]


def _along_an_axis(graph: BatchGraph, node: NodeProto) -> list[NodeProto]:
    """Softmax, Split, Concat."""
    axis = options_of(node).get("axis", 0 if node.op_type in ("Concat", "Split") else -1)
    read = next(name for name in node.input if name in graph.places)
    rank = len(graph.shapes[read])
    place, moved = shared_place(graph, node, rank), graph.axis(node, read, axis)
    graph.places |= dict.fromkeys(node.output, place)
    kept = [attribute for attribute in node.attribute if attribute.name != "axis"]
    before: list[NodeProto] = []
    for at, name in enumerate(node.input if node.op_type == "Concat" else ()):
        if name not in graph.places:  # as often as there are images: a part of them, times nothing
            part, nothing, filled = (f"{node.name}_{what}{at}" for what in ("part", "nothing", "filled"))
            values = graph.editor.constant(node.name, graph.for_one(node, at, rank, place))
            zero = graph.editor.constant(node.name, np.array(0, np.float32))
            before += [
                helper.make_node("Gather", [read, graph.sizes(node, 0)], [part], name=part, axis=moved),
                helper.make_node("Mul", [part, zero], [nothing], name=nothing),
                helper.make_node("Add", [nothing, values], [filled], name=filled),
            ]
            node.input[at] = filled
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("axis", moved)])
    return [*before, node]


def _normalised(graph: BatchGraph, node: NodeProto) -> list[NodeProto]:
    """A norm over the last axes: they stay the last ones."""
    place, rank = graph.places[node.input[0]], len(graph.shapes[node.input[0]])
    axis = options_of(node).get("axis", -1) % rank
    if place.axis >= axis:
        raise graph.refusal(node, "works along the images of a batch")
    for attribute in node.attribute:
        if attribute.name == "axis":
            attribute.i = axis - rank
    return _stays(graph, node)


def _reduced(graph: BatchGraph, node: NodeProto) -> list[NodeProto]:
    source, result, options = node.input[0], node.output[0], options_of(node)
    place, rank = graph.places[source], len(graph.shapes[source])
    axes = graph.constant_of(node, 1).tolist() if len(node.input) > 1 else options.get("axes", list(range(rank)))
    keeps, moved = options.get("keepdims", 1), [graph.axis(node, source, axis) for axis in axes]
    gone = 0 if keeps else sum(axis % rank < place.axis for axis in axes)
    graph.places[result] = place._replace(axis=place.axis - gone)
    sizes = [graph.sizes(node, *moved)] if node.op_type == "ReduceSum" else []
    about = {} if sizes else {"axes": moved}
    return [helper.make_node(node.op_type, [source, *sizes], [result], name=node.name, keepdims=keeps, **about)]


def _gathered(graph: BatchGraph, node: NodeProto) -> list[NodeProto]:
    source, result = node.input[0], node.output[0]
    indices, place = graph.constant_of(node, 1), graph.places[source]
    axis = options_of(node).get("axis", 0) % len(graph.shapes[source])
    moved = graph.axis(node, source, axis)
    graph.places[result] = place._replace(axis=place.axis + (indices.ndim - 1 if axis < place.axis else 0))
    return [helper.make_node("Gather", list(node.input), [result], name=node.name, axis=moved)]


def _sliced(graph: BatchGraph, node: NodeProto) -> list[NodeProto]:
    source, result, shape = node.input[0], node.output[0], graph.shapes[node.input[0]]
    place = graph.places[result] = graph.places[source]
    starts, ends = (graph.constant_of(node, at).tolist() for at in (1, 2))
    along, steps = (
        graph.constant_of(node, at).tolist() if len(node.input) > at and node.input[at] else usual
        for at, usual in ((3, list(range(len(starts)))), (4, [1] * len(starts)))
    )
    kept = []
    for axis, start, end, step in zip(along, starts, ends, steps, strict=True):
        every = range(shape[axis])
        if axis % len(shape) != place.axis or every[start:end:step] != every:
            kept.append((start, end, graph.axis(node, source, axis), step))
    if not kept:
        return [helper.make_node("Identity", [source], [result], name=node.name)]
    inputs = [graph.sizes(node, *column) for column in zip(*kept, strict=True)]
    return [helper.make_node("Slice", [source, *inputs], [result], name=node.name)]


def _expanded(graph: BatchGraph, node: NodeProto) -> list[NodeProto]:
    result, before, after = node.output[0], graph.shapes[node.input[0]], graph.shapes[node.output[0]]
    place = graph.places[node.input[0]]
    found = graph.places[result] = place._replace(axis=place.axis + len(after) - len(before))
    if after[found.axis] != before[place.axis]:
        raise graph.refusal(node, "repeats the images of a batch")
    made = graph.aligned(node, 0, len(after))
    sizes = graph.sizes(node, 1, *found.stored_shape(after)[1:])
    return [*made, helper.make_node("Expand", [node.input[0], sizes], [result], name=node.name)]


def _tiled(graph: BatchGraph, node: NodeProto) -> list[NodeProto]:
    place, times = graph.places[node.input[0]], graph.constant_of(node, 1).tolist()
    if times[place.axis] != 1:
        raise graph.refusal(node, "repeats the images of a batch")
    node.input[1] = graph.sizes(node, 1, *place.without_images(times, 1))
    return _stays(graph, node)


def _padded(graph: BatchGraph, node: NodeProto) -> list[NodeProto]:
    place, pads = graph.places[node.input[0]], graph.constant_of(node, 1).tolist()
    halves = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    if any(half[place.axis] for half in halves):
        raise graph.refusal(node, "adds images to a batch")
    node.input[1] = graph.sizes(node, *(size for half in halves for size in (0, *place.without_images(half, 0))))
    return _stays(graph, node)


def _cumulated(graph: BatchGraph, node: NodeProto) -> list[NodeProto]:
    axis = int(graph.constant_of(node, 1).reshape(-1)[0])
    node.input[1] = graph.editor.constant(node.name, np.array(graph.axis(node, node.input[0], axis)))
    return _stays(graph, node)


def _multiplied(graph: BatchGraph, node: NodeProto) -> list[NodeProto]:
    """Products of the last two axes; those before are aligned. One image may have rows of its own."""
    rank = max(len(graph.shapes[name]) for name in node.input)
    place = shared_place(graph, node, rank)
    rows = place.axis == rank - 2 and node.input[1] not in graph.places and len(graph.shapes[node.input[1]]) == 2
    if min(len(graph.shapes[name]) for name in node.input) < 2 or not (place.axis < rank - 2 or rows):
        raise graph.refusal(node, "multiplies the images of a batch with each other")
    graph.places[node.output[0]] = place
    made: list[NodeProto] = []
    for at, name in enumerate(node.input):
        if name in graph.places:
            made += graph.aligned(node, at, rank)
        elif len(shape := graph.shapes[name]) > 2 and (place != FIRST or (len(shape) == rank and shape[0] > 1)):
            node.input[at] = graph.editor.constant(node.name, graph.for_one(node, at, rank, place))
    return [*made, node]


def _connected(graph: BatchGraph, node: NodeProto) -> list[NodeProto]:
    """A linear layer of (tokens x images, channels): a product and a sum."""
    place, options = graph.places.get(node.input[0]), options_of(node)
    if place == FIRST:
        return _stays(graph, node)
    plain = options.get("alpha", 1.0) == options.get("beta", 1.0) == 1.0 and not options.get("transA", 0)
    if place is None or place.axis != 0 or not plain:
        raise graph.refusal(node, "multiplies the images of a batch with each other")
    matrix = graph.constant_of(node, 1)
    result, name = node.output[0], node.name
    graph.places[result] = place
    weights = graph.editor.constant(name, matrix.T if options.get("transB", 0) else matrix)
    made = [helper.make_node("MatMul", [node.input[0], weights], [result], name=name)]
    if len(node.input) > 2 and node.input[2]:
        made[0].output[0], made[0].name = f"{result}_product", f"{name}_product"
        made.append(helper.make_node("Add", [f"{result}_product", node.input[2]], [result], name=name))
    return made


def _recurrent(graph: BatchGraph, node: NodeProto) -> list[NodeProto]:
    """ONNX's own recurrent layers keep the images in the middle; they are moved there and back."""
    place, source = graph.places.get(node.input[0]), node.input[0]
    computed = [name for name in node.input if name in graph.places]
    if place != Place(1) or computed != [source] or options_of(node).get("layout", 0):
        raise graph.refusal(node, "should read (steps, images, values), and begin with a constant state")
    for at in range(5, len(node.input)):
        if node.input[at] and not graph.constant_of(node, at).any():
            node.input[at] = ""  # a state of zeros is what it begins with: for any number of images
    node.input[0] = f"{source}_for_{node.name}"
    made = [helper.make_node("Transpose", [source], [node.input[0]], name=f"{node.name}_steps", perm=[1, 0, 2]), node]
    for at, result in enumerate(node.output):
        if not result:
            continue
        images = len(graph.shapes[result]) - 2  # of every step: steps, directions, images, values
        graph.places[result] = Place(images)
        node.output[at] = f"{result}_of_{node.name}"
        order = [images, *range(images), images + 1]
        name = f"{node.name}_images{at}"
        made.append(helper.make_node("Transpose", [node.output[at]], [result], name=name, perm=order))
    return made


_RULES: dict[str, Rewrite] = {
    **dict.fromkeys(_BY_VALUE, _by_value),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshaped),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Split", "Concat"), _along_an_axis),
    **dict.fromkeys(_REDUCTIONS, _reduced),
    "Transpose": _transposed,
    "LayerNormalization": _normalised,
    "Gather": _gathered,
    "Slice": _sliced,
    "Expand": _expanded,
    "Tile": _tiled,
    "Pad": _padded,
    "CumSum": _cumulated,
    "MatMul": _multiplied,
    "Gemm": _connected,
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
}
