"""Products, and what is made of them, as operators that int8 has: linear layers, running sums, norms of vectors."""

import numpy as np
from onnx import NodeProto, helper

from automcu_ray.deploy.graph_editor import Array, Chain, Editor, options_of


def linear(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """A matrix for each of several rows: a linear layer of all rows, whose weights have a scale for each output."""
    shape, matrix = editor.shapes.get(node.input[0], ()), editor.constants.get(node.input[1])
    if len(shape) < 3 or not all(shape[1:]) or matrix is None:
        return None  # a matrix for one row has a scale for each column as it is
    if matrix.ndim > 2:
        return _swapped(editor, node, matrix)
    outputs = matrix.shape[1]
    if matrix.ndim < 2 or matrix.shape[0] != shape[-1]:
        return None
    node, biases = _with_sum(editor, node, outputs)
    chain = Chain(editor, node, node.input[0]).then("Reshape", np.array([-1, shape[-1]], np.int64))
    chain.then("Gemm", matrix.T.copy(), *biases, transB=1)
    return chain.then("Reshape", np.array([-1, *shape[1:-1], outputs], np.int64)).done()


def _with_sum(editor: Editor, node: NodeProto, outputs: int) -> tuple[NodeProto, list[Array]]:
    """Return the node, and the biases that a sum adds to its result: it then gives that sum, which is removed."""
    readers = editor.readers(node.output[0])
    final = [value.name for value in editor.graph.output]
    if len(readers) != 1 or readers[0].op_type != "Add" or node.output[0] in final:
        return node, []
    found = [editor.constants[name] for name in readers[0].input if name in editor.constants]
    if not found or found[0].size != outputs or found[0].shape[-1:] != (outputs,):
        return node, []
    made = NodeProto()
    made.CopyFrom(node)
    made.output[0] = readers[0].output[0]
    editor.graph.node.remove(readers[0])
    return made, [found[0].reshape(-1)]


def _swapped(editor: Editor, node: NodeProto, matrix: Array) -> list[NodeProto]:
    """A stack of matrices, on the left: the quantiser gives each column a scale only where there is one matrix."""
    axes = list(range(max(len(editor.shapes[node.input[0]]), matrix.ndim)))
    order = [*axes[:-2], axes[-1], axes[-2]]
    own = list(range(len(editor.shapes[node.input[0]])))
    chain = Chain(editor, node, node.input[0]).then("Transpose", perm=[*own[:-2], own[-1], own[-2]])
    chain.then("MatMul", matrix.swapaxes(-1, -2).copy())
    product = chain.nodes[-1]
    product.input[:] = [product.input[1], product.input[0]]
    return chain.then("Transpose", perm=order).done()


def running_sum(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """Sums of all values up to each: a product with a triangle of ones."""
    shape, axis = editor.shapes.get(node.input[0], ()), editor.constants.get(node.input[1])
    if axis is None or len(shape) < 2 or not all(shape[1:]) or int(axis.reshape(-1)[0]) % len(shape) == 0:
        return None
    along, options = int(axis.reshape(-1)[0]) % len(shape), options_of(node)
    triangle = np.triu(np.ones((shape[along], shape[along]), np.float32), options.get("exclusive", 0))
    if options.get("reverse", 0):
        triangle = triangle.T.copy()
    order = [other for other in range(len(shape)) if other != along] + [along]
    chain = Chain(editor, node, node.input[0])
    if along != len(shape) - 1:
        chain.then("Transpose", perm=order)
    chain.then("MatMul", triangle)
    if along != len(shape) - 1:
        chain.then("Transpose", perm=[order.index(axis) for axis in range(len(shape))])
    return chain.done()


def reduced(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """Norms, minima, products and log-sums over axes, by functions of single values, sums, maxima and products."""
    shape, options = editor.shapes.get(node.input[0], ()), options_of(node)
    axes = [axis % max(1, len(shape)) for axis in options.get("axes", [])]
    if not axes or 0 in axes or not all(shape[1:]):
        return None
    keeps = options.get("keepdims", 1)
    chain = Chain(editor, node, node.input[0])
    if node.op_type == "ReduceL2":
        chain.then("Mul")
        chain.nodes[-1].input.append(node.input[0])
        return chain.then("ReduceSum", np.array(axes, np.int64), keepdims=keeps).then("Sqrt").done()
    if node.op_type == "ReduceL1":
        return chain.then("Abs").then("ReduceSum", np.array(axes, np.int64), keepdims=keeps).done()
    if node.op_type == "ReduceMin":
        return chain.then("Neg").then("ReduceMax", axes=axes, keepdims=keeps).then("Neg").done()
    for axis in axes:
        _multiply_along(chain, axis, shape[axis])
    left = [1 if axis in axes else size for axis, size in enumerate(shape) if axis and (keeps or axis not in axes)]
    return chain.reshaped(*left).done()


def _multiply_along(chain: Chain, axis: int, size: int) -> None:
    """Append the product of all values along an axis: of the halves, until one is left."""
    while size > 1:
        whole, half = chain.at, size // 2
        parts = []
        for first, last in ((0, half), (half, 2 * half), (2 * half, size)):
            chain.at = whole
            if first < last:
                parts.append(chain.then("Gather", np.arange(first, last), axis=axis).at)
        chain.at = parts[0]
        chain.then("Mul").nodes[-1].input.append(parts[1])
        if size % 2:
            chain.then("Concat", axis=axis).nodes[-1].input.append(parts[2])
        size -= half


def log_of_exponentials(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """A log-sum of exponentials, or a log-softmax: by distances from the largest value."""
    shape, options = editor.shapes.get(node.input[0], ()), options_of(node)
    softmax = node.op_type == "LogSoftmax"
    along = [options.get("axis", -1)] if softmax else options.get("axes", [])
    axes = [axis % max(1, len(shape)) for axis in along]
    if not axes or 0 in axes:
        return None
    keeps, name, result = softmax or options.get("keepdims", 1), node.name, node.output[0]
    made: list[NodeProto] = []

    def give(kind: str, what: str, *sources: str, **attributes: object) -> str:
        made.append(helper.make_node(kind, sources, [f"{result}_{what}"], name=f"{name}_{what}", **attributes))
        return f"{result}_{what}"

    largest = give("ReduceMax", "largest", node.input[0], axes=axes, keepdims=1)
    apart = give("Sub", "apart", node.input[0], largest)
    along_axes = editor.constant(name, np.array(axes, np.int64))
    total = give("ReduceSum", "total", give("Exp", "part", apart), along_axes, keepdims=int(keeps))
    logarithm = give("Log", "logarithm", total)
    if softmax:
        give("Sub", "left", apart, logarithm)
    else:
        give("Add", "both", logarithm, largest if keeps else give("Squeeze", "squeezed", largest, along_axes))
    made[-1].output[0], made[-1].name = result, name
    return made


def extreme(editor: Editor, node: NodeProto) -> list[NodeProto] | None:
    """The larger of values and constants: c + relu(x - c); the smaller: the larger one with signs changed."""
    constants = [editor.constants[name] for name in node.input if name in editor.constants]
    if len(node.input) != 2 or len(constants) != 1 or constants[0].size == 1 or constants[0].dtype != np.float32:
        return None
    source = next(name for name in node.input if name not in editor.constants)
    chain, constant = Chain(editor, node, source), constants[0]
    if node.op_type == "Min":
        return chain.then("Neg").then("Max", -constant).then("Neg").done()
    return chain.then("Add", -constant).then("Relu").then("Add", constant).done()
