"""What int8 has no operator for: functions of single values become tables of 256, slices move int8 as they are.

onnxruntime's quantiser leaves such operators in float. `mark` finds them before it runs; `tabulate` then replaces what
it wrote, `int8 -> float -> function -> int8`, by a table that onnxruntime itself fills, and that Cast and Gather read.
So the graph and its C look the same values up, on every processor. Functions of several values (softmax, quotients)
become those of `integer_functions`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import NodeProto, TensorProto, helper, numpy_helper

from automcu_ray.deploy import integer_functions
from automcu_ray.deploy.graph_editor import Editor
from automcu_ray.deploy.integer_functions import Scale
from automcu_ray.deploy.onnx_graph import MOVES

Shape = tuple[int, ...]
_INT8 = frozenset("Add Cast Clip Identity LeakyRelu Mul Relu Sigmoid".split())  # the quantiser knows them, or passes
_FLOAT = frozenset(
    """Abs Acos Acosh And Asin Asinh Atan Atanh Ceil Celu Cos Cosh Div Elu Equal Erf Exp Floor Greater GreaterOrEqual
    HardSigmoid HardSwish Less LessOrEqual Log Max Min Mish Neg Not Or Pow PRelu Reciprocal Round Selu Sign Sin Sinh
    Softplus Softsign Sqrt Sub Sum Tan Tanh ThresholdedRelu Where Xor""".split()
)
FUNCTIONS = _INT8 | _FLOAT  # of single values, where all but one operand are constants of one value
_MOVES = frozenset(("Gather", "Slice"))
_EVERY = np.arange(-128, 128, dtype=np.int8)


@dataclass(frozen=True)
class Island:
    """Operators that stay in float: `nodes`, in order, work out `sink` of `root`; `closed` is a copy of the sink.

    Without a root it is one operator of several values: an integer function.
    """

    nodes: tuple[NodeProto, ...]
    root: str
    sink: str
    closed: str

    @property
    def moves(self) -> bool:
        """Whether it moves values, and works out none."""
        return bool(self.root) and self.nodes[0].op_type in _MOVES


def mark(model: onnx.ModelProto) -> list[Island]:
    """Return the islands of a float graph, in order; each is given a copy of its result, which others read from now on.

    The copy, a leaky ReLU that leaks everything, makes the quantiser give the result a scale. The network's own input
    gets one where an island begins with it.
    """
    graph = model.graph
    if not any(node.op_type in _FLOAT | _MOVES | integer_functions.KINDS.keys() for node in graph.node):
        return []
    shapes = Editor(model).shapes
    sizes = {tensor.name: prod(tensor.dims) for tensor in graph.initializer}
    moves = [node for node in graph.node if node.op_type in _MOVES and node.input[0] not in sizes]
    islands = [Island((node,), node.input[0], *_close(graph, node, set())) for node in moves]
    roots = _roots(graph, shapes, sizes, {island.closed for island in islands})
    for node in [node for node in graph.node if roots[node.output[0]] == node.output[0]]:
        if integer_functions.is_function(node, sizes):
            if node.op_type == "Softmax":
                integer_functions.check_size(node, shapes[node.input[0]])
            islands.append(Island((node,), "", *_close(graph, node, set())))
    roots = _roots(graph, shapes, sizes, {island.closed for island in islands})
    makers = {name: node for node in graph.node for name in node.output}
    final = {value.name for value in graph.output}
    for node in list(graph.node):
        root = roots.get(node.output[0], node.output[0])
        if root == node.output[0]:
            continue
        readers = [other for other in graph.node if node.output[0] in other.input]
        inside = {other.name for other in readers if roots.get(other.output[0]) == root}
        path = _path(node, root, makers)
        if not any(one.op_type in _FLOAT for one in path) or (
            len(inside) == len(readers) and node.output[0] not in final
        ):
            continue
        islands.append(Island(tuple(path), root, *_close(graph, node, inside)))
    _copy_input(graph, islands)
    return [dataclasses.replace(island, nodes=tuple(map(_copied, island.nodes))) for island in islands]


def excluded(model: onnx.ModelProto, islands: Sequence[Island]) -> list[str]:
    """Return the names of the nodes that only islands read: the quantiser leaves them alone."""
    names = {node.name for island in islands for node in island.nodes}
    ends = {island.closed for island in islands}
    only: set[str] = set()
    for node in reversed(model.graph.node):
        readers = [other for other in model.graph.node if set(node.output) & set(other.input)]
        if node.name in names and all(other.name in only or other.output[0] in ends for other in readers):
            only.add(node.name)
    return sorted(only)


def tabulate(model: onnx.ModelProto, islands: Sequence[Island]) -> None:
    """Put the islands of a quantised graph in int8, in place."""
    graph = model.graph
    values = {tensor.name: tensor for tensor in graph.initializer}
    for island in islands:
        exit_ = next(n for n in graph.node if n.op_type == "QuantizeLinear" and n.input[0] == island.sink)
        copy = next(n for n in graph.node if n.op_type == "QLinearLeakyRelu" and n.input[0] == exit_.output[0])
        if not island.root:
            made = [_function(model, island.nodes[0], exit_, copy, values)]
            _put(graph, copy, exit_, made)
            continue
        entry = next(n for n in graph.node if n.op_type == "DequantizeLinear" and n.output[0] == island.root)
        rank = (
            1
            if island.moves
            else max(1, *(len(values[n].dims) for o in island.nodes for n in o.input if n in values), 1)
        )
        table = _filled(entry, () if island.moves else island.nodes, exit_, copy, values, rank)
        last, source = island.nodes[-1], entry.input[0]
        made = []
        if island.moves:
            moved = NodeProto()
            moved.CopyFrom(last)
            moved.input[0], moved.output[0] = source, f"{last.output[0]}_moved"
            made.append(moved)
            source = moved.output[0]
        if island.moves and np.array_equal(table, _EVERY):
            made[-1].output[0] = copy.output[0]
        else:
            name = f"{last.name}_table" if island.moves else last.name
            lookup, held = looked_up(source, copy.output[0], name)
            graph.initializer.append(numpy_helper.from_array(by_index(table), held))
            made += lookup
        _put(graph, copy, exit_, made)
    drop_unread(graph)


def _put(graph: onnx.GraphProto, copy: NodeProto, exit_: NodeProto, made: Sequence[NodeProto]) -> None:
    at = list(graph.node).index(copy)
    for node in reversed(made):
        graph.node.insert(at, node)
    graph.node.remove(copy)
    graph.node.remove(exit_)


def _function(
    model: onnx.ModelProto, node: NodeProto, exit_: NodeProto, copy: NodeProto, values: Mapping[str, TensorProto]
) -> NodeProto:
    """Return the call of an operator's integer function; its copy has the same scale as what it copies."""
    entries = [
        n for name in node.input for n in model.graph.node if n.op_type == "DequantizeLinear" and n.output[0] == name
    ]

    def scale(names: Sequence[str]) -> Scale:
        step, zero = (numpy_helper.to_array(values[name]).item() for name in names)
        return Scale(step, zero)

    reads = [scale(entry.input[1:3]) for entry in entries]
    sources = [entry.input[0] for entry in entries]
    return integer_functions.write(model, node, sources, reads, copy.output[0], scale(copy.input[3:5]))


def _copied(node: NodeProto) -> NodeProto:
    """Return a node as it is now: later rewrites are not of its island."""
    copied = NodeProto()
    copied.CopyFrom(node)
    return copied


def looked_up(source: str, result: str, name: str) -> tuple[list[NodeProto], str]:
    """Return the nodes that look int8 values up, and what the table (see `by_index`) is called."""
    index, held = f"{result}_index", f"{result}_table"
    cast = helper.make_node("Cast", [source], [index], name=f"{name}_index", to=TensorProto.INT32)
    return [cast, helper.make_node("Gather", [held, index], [result], name=name, axis=0)], held


def by_index(table: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Return a table from -128 on as Gather reads it: an index below zero counts from the end."""
    return np.roll(table, 128)


def _close(graph: onnx.GraphProto, node: NodeProto, inside: set[str]) -> tuple[str, str]:
    """Insert a copy of what a node gives, for all but the nodes `inside`; return the names of result and copy."""
    sink, closed = node.output[0], f"{node.output[0]}_closed"
    if any(value.name == sink for value in graph.output):
        sink, closed = f"{sink}_open", sink
        for other in graph.node:
            other.input[:] = [sink if name == closed else name for name in other.input]
        node.output[0] = sink
    for other in graph.node:
        if other.name not in inside:
            other.input[:] = [closed if name == sink else name for name in other.input]
    copy = helper.make_node("LeakyRelu", [sink], [closed], name=f"{node.name}_closed", alpha=1.0)
    graph.node.insert(list(graph.node).index(node) + 1, copy)
    return sink, closed


def _copy_input(graph: onnx.GraphProto, islands: list[Island]) -> None:
    """Give islands that read the image itself, moved or not, a copy of it: nothing else may give that a scale."""
    makers = {name: node for node in graph.node for name in node.output}
    copies: dict[str, str] = {}
    for at, island in enumerate(islands):
        for source in {island.root} if island.root else set(island.nodes[0].input):
            before = source
            while before in makers and makers[before].op_type in MOVES:
                before = makers[before].input[0]
            if before != graph.input[0].name:
                continue
            copied = copies.setdefault(source, f"{source}_closed")
            for node in island.nodes:
                node.input[:] = [copied if name == source else name for name in node.input]
            islands[at] = island = dataclasses.replace(island, root=island.root and copied)
    for source, copied in copies.items():
        at = list(graph.node).index(makers[source]) + 1 if source in makers else 0
        graph.node.insert(at, helper.make_node("LeakyRelu", [source], [copied], name=copied, alpha=1.0))


def _roots(
    graph: onnx.GraphProto, shapes: Mapping[str, Shape], sizes: Mapping[str, int], closed: set[str]
) -> dict[str, str]:
    """Return of which tensor each is a function, value by value; most are of themselves."""
    roots: dict[str, str] = {}
    for node in graph.node:
        result = node.output[0]
        data = [name for name in node.input if name and name not in sizes]
        found = {roots.get(name, name) for name in data}
        alone = node.op_type in _INT8 | _FLOAT and result not in closed and len(found) == 1
        alone = alone and all(sizes[name] == 1 for name in node.input if name in sizes)
        alone = alone and all(name in shapes and shapes[name] == shapes.get(result) for name in data)
        roots[result] = found.pop() if alone else result
    return roots


def _path(node: NodeProto, root: str, makers: Mapping[str, NodeProto]) -> list[NodeProto]:
    """Return the nodes that lead from a root to what a node gives, in order."""
    found: dict[str, NodeProto] = {}

    def collect(one: NodeProto) -> None:
        for name in one.input:
            if name != root and name in makers and makers[name].name not in found:
                collect(makers[name])
        found[one.name] = one

    collect(node)
    return list(found.values())


def _filled(
    entry: NodeProto,
    function: Sequence[NodeProto],
    exit_: NodeProto,
    copy: NodeProto,
    values: Mapping[str, TensorProto],
    rank: int,
) -> npt.NDArray[np.int8]:
    """Return what onnxruntime makes of each int8 value, -128 first."""
    nodes = [NodeProto() for _ in range(len(function) + 3)]
    for node, source in zip(nodes, (entry, *function, exit_, copy), strict=True):
        node.CopyFrom(source)
    nodes[0].input[0] = "every"
    if not function:
        nodes[-2].input[0] = nodes[0].output[0]
    shape = [len(_EVERY), *[1] * (rank - 1)]
    ends = [helper.make_tensor_value_info("every", TensorProto.INT8, shape), onnx.ValueInfoProto(name=copy.output[0])]
    read = {name for node in nodes for name in node.input}
    graph = helper.make_graph(nodes, "table", ends[:1], ends[1:], [values[name] for name in values if name in read])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    table: npt.NDArray[np.int8] = session.run(None, {"every": _EVERY.reshape(shape)})[0].reshape(-1)
    return table


def drop_unread(graph: onnx.GraphProto) -> None:
    """Remove what nobody reads."""
    read = {value.name for value in graph.output}
    for node in reversed(list(graph.node)):
        if read.isdisjoint(node.output):
            graph.node.remove(node)
        else:
            read.update(node.input)
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in read]:
        graph.initializer.remove(tensor)
