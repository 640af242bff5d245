"""Einstein sums of two tensors as products of matrices."""

from collections.abc import Sequence
from math import prod

import numpy as np
import onnx
from onnx import NodeProto, helper

from automcu_ray.deploy.graph_editor import Editor, options_of


def use_matrix_products(model: onnx.ModelProto) -> None:
    """Rewrite each Einsum of two tensors, in place, whose equation names every axis once an operand."""
    editor = Editor(model)
    for node in [node for node in model.graph.node if node.op_type == "Einsum"]:
        made = _products(editor, node)
        if made:
            at = list(model.graph.node).index(node)
            model.graph.node.remove(node)
            for number, one in enumerate(made):
                model.graph.node.insert(at + number, one)


def _products(editor: Editor, node: NodeProto) -> list[NodeProto]:
    """Return transpositions and changes of shape around one MatMul; [] where the equation is not of that form."""
    equation = options_of(node)["equation"].decode().replace(" ", "")
    sources, arrow, result = equation.partition("->")
    operands = sources.split(",")
    sizes: dict[str, int] = {}
    for letters, name in zip(operands, node.input, strict=False):
        if len(letters) != len(editor.shapes.get(name, ())) or len(set(letters)) != len(letters):
            return []
        sizes |= dict(zip(letters, editor.shapes[name], strict=True))
    if not arrow or len(operands) != 2 or not sources.replace(",", "").isalpha() or len(set(result)) != len(result):
        return []
    first, second = operands
    both = [letter for letter in first if letter in second and letter in result]
    summed = [letter for letter in first if letter in second and letter not in result]
    rows, columns = ([letter for letter in own if letter not in both + summed] for own in operands)
    if any(letter not in result for letter in rows + columns):
        return []
    made: list[NodeProto] = []

    def then(kind: str, source: str, *constants: Sequence[int], **options: object) -> str:
        name = f"{node.name}_{len(made)}"
        names = [editor.constant(node.name, np.array(values, np.int64)) for values in constants]
        made.append(helper.make_node(kind, [source, *names], [f"{name}_out"], name=name, **options))
        return f"{name}_out"

    def ordered(source: str, letters: Sequence[str], wanted: Sequence[str]) -> str:
        order = [list(letters).index(letter) for letter in wanted]
        if source in editor.constants:
            return editor.constant(node.name, editor.constants[source].transpose(order))
        return source if order == sorted(order) else then("Transpose", source, perm=order)

    def merged(source: str, *groups: Sequence[str]) -> str:
        shape = [*(sizes[one] for one in both), *(prod(sizes[one] for one in letters) for letters in groups)]
        if source in editor.constants:
            return editor.constant(node.name, editor.constants[source].reshape(shape))
        return then("Reshape", source, shape)

    left = merged(ordered(node.input[0], first, [*both, *rows, *summed]), rows, summed)
    right = merged(ordered(node.input[1], second, [*both, *summed, *columns]), summed, columns)
    product = then("MatMul", left)
    made[-1].input[:] = [left, right]
    apart = then("Reshape", product, [sizes[letter] for letter in (*both, *rows, *columns)])
    ordered(apart, [*both, *rows, *columns], list(result))
    made[-1].output[0], made[-1].name = node.output[0], node.name
    return made
