"""GRU, LSTM and RNN operators of a float graph in one form, and which of them have an int8 one.

Afterwards each runs in one direction, gives one tensor (what it gives at every step, or at the last one), and begins
with a state that is left out where it is zero. What a rewrite does not reach is as it was: at int8 `check` names it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.graph_editor import Editor, options_of

KINDS = ("GRU", "LSTM", "RNN")
_DATA, _WEIGHTS, _LENGTHS, _STATES, _PEEPHOLES = 0, (1, 2, 3), 4, (5, 6), 7  # inputs by place


def use_one_form(model: onnx.ModelProto) -> None:
    """Rewrite the recurrent operators of a float graph in place; it gives the same values as before."""
    if not any(node.op_type in KINDS for node in model.graph.node):
        return
    editor = Editor(model)
    for node in [node for node in model.graph.node if node.op_type in KINDS]:
        steps = editor.shapes.get(node.input[_DATA], (0,))[0]
        weights = [editor.constants.get(name) for name in node.input[1:4] if name]
        if not steps or any(one is None for one in weights) or _why_not(editor, node):
            continue
        made = _in_one_direction(editor, node, steps)
        at = list(model.graph.node).index(node)
        model.graph.node.remove(node)
        for number, one in enumerate(made):
            model.graph.node.insert(at + number, one)
        editor.refresh()


def check(model: onnx.ModelProto) -> None:
    """Refuse a recurrent layer that has no int8 form.

    Raises:
        ToolchainError: there is one; says why.
    """
    editor = Editor(model)
    for node in model.graph.node:
        if node.op_type in KINDS and (why := _why_not(editor, node) or _why_not_int8(editor, node)):
            raise ToolchainError(f"{node.name}: int8 {node.op_type} {why}. Replace it, or choose precision float32.")


def for_all_images(data: str, start: npt.NDArray[Any], near: str, constant: Callable[..., str]) -> list[NodeProto]:
    """Return nodes that give, as `near`, a state (..., 1, hidden) for each image of `data` (steps, images, inputs)."""
    before, behind = (np.array(sizes, np.int64) for sizes in (start.shape[:-2], start.shape[-1:]))
    sizes = [constant(near, before), f"{near}_images", constant(near, behind)]
    return [
        helper.make_node("Shape", [data], [f"{near}_images"], name=f"{near}_images", start=1, end=2),
        helper.make_node("Concat", sizes, [f"{near}_sizes"], name=f"{near}_sizes", axis=0),
        helper.make_node("Expand", [constant(near, start), f"{near}_sizes"], [near], name=near),
    ]


def _why_not(editor: Editor, node: NodeProto) -> str:
    """Return what of a node no rewrite here understands; "" where it does."""
    inputs, options = [*node.input, *[""] * (8 - len(node.input))], options_of(node)
    steps = editor.shapes.get(inputs[_DATA], (0,))[0]
    lengths = editor.constants.get(inputs[_LENGTHS])
    if inputs[_LENGTHS] and (lengths is None or (lengths != steps).any()):
        return "has sequences of different lengths (sequence_lens)"
    if inputs[_PEEPHOLES]:
        return "has peepholes"
    if options.get("layout", 0):
        return "has its images before its steps (layout=1)"
    if any(inputs[place] and editor.constants.get(inputs[place]) is None for place in _WEIGHTS):
        return "has weights that are computed"
    for place in _STATES:
        values = editor.constants.get(inputs[place])
        if inputs[place] and (values is None or (values != values[:, :1]).any()):
            return "begins with a state that is computed, or is another for each image"
    if len(node.output) > 2 and node.output[2] and editor.readers(node.output[2]):
        return "gives its cell state away (what it gives at a step, and at the last, can be read)"
    return ""


def _why_not_int8(editor: Editor, node: NodeProto) -> str:
    options, count = options_of(node), 1 + _both(node)
    kind: str = node.op_type
    wanted = {"GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"], "RNN": ["Tanh"]}[kind]
    found = [one.decode() for one in options.get("activations", [])] or wanted * count
    rectifies = kind == "RNN" and set(found) == {"Relu"}
    if found != wanted * count and not rectifies:
        return f"has activations {', '.join(found)}, not {', '.join(wanted)}" + " or Relu" * (kind == "RNN")
    if options.get("clip") or options.get("input_forget"):
        return "has the option clip or input_forget"
    starts = [editor.constants[name] for name in node.input[5:6] if name in editor.constants]
    if not rectifies and any(np.abs(start).max() > 1 for start in starts):
        return "begins with a state beyond -1 to 1, which it never reaches again"
    if not editor.shapes.get(node.input[_DATA], (0,))[0]:
        return "has a number of steps that is not known before it runs"
    return ""


def _in_one_direction(editor: Editor, node: NodeProto, steps: int) -> list[NodeProto]:
    """Return a node for each direction, and what joins their results."""
    direction = options_of(node).get("direction", b"forward").decode()
    ways = ["forward", "reverse"] if direction == "bidirectional" else [direction]
    final = {value.name for value in editor.graph.output}
    every, last = (name if name in final or editor.readers(name) else "" for name in (*node.output, "")[:2])
    taken = None if last or ways != ["forward"] else _last_step(editor, every, steps)
    if taken is not None:  # the one step that is read, of all
        every, last = "", f"{node.name}_last"
    made, parts, ends = [], list[str](), list[str]()
    for number, way in enumerate(ways):
        near = node.name if len(ways) == 1 else f"{node.name}_{way}"
        starts, one = _layer(editor, node, number, way, near)
        parts.append(every if len(ways) == 1 else f"{near}_every")
        ends.append(last if len(ways) == 1 else f"{near}_end")
        one.output[:] = [parts[-1], ""] if every else ["", ends[-1]]
        made += [*starts, one]
        if every and last:  # the last that it works out: the first of all where it goes backwards
            place, axis = (editor.constant(near, np.array([at])) for at in (0 if way == "reverse" else steps - 1, 0))
            made.append(helper.make_node("Gather", [parts[-1], place], [f"{near}_taken"], name=f"{near}_taken", axis=0))
            made.append(helper.make_node("Squeeze", [f"{near}_taken", axis], [ends[-1]], name=f"{near}_end"))
    if len(ways) > 1:
        for result, names, along in ((every, parts, 1), (last, ends, 0)):
            if result:
                made.append(helper.make_node("Concat", names, [result], name=f"{node.name}_joined{along}", axis=along))
    if taken is not None:
        axis = editor.constant(node.name, np.array([0]))
        made.append(helper.make_node("Squeeze", [last, axis], [taken[-1].output[0]], name=taken[-1].name))
        for other in taken:
            editor.graph.node.remove(other)
    return made


def _layer(editor: Editor, node: NodeProto, number: int, way: str, near: str) -> tuple[list[NodeProto], NodeProto]:
    """Return what makes the states that one direction begins with, and its node, without results yet."""
    part = slice(number, number + 1)
    inputs = [node.input[_DATA], *(editor.constants[name][part] if name else None for name in node.input[1:4])]
    names = [one if isinstance(one, str) else editor.constant(near, one) if one is not None else "" for one in inputs]
    names += [""] * (5 - len(names))
    starts = list[NodeProto]()
    for place in range(5, len(node.input)):
        start, name = editor.constants.get(node.input[place]), f"{near}_start{place}"
        if start is None or not start.any():
            names.append("")
            continue
        names.append(name)
        starts += for_all_images(names[0], start[part, :1], name, editor.constant)
    one = helper.make_node(node.op_type, names, [], name=near, **({} if way == "forward" else {"direction": way}))
    for attribute in node.attribute:
        if attribute.name == "activations":
            each = len(attribute.strings) // (1 + _both(node))
            one.attribute.append(helper.make_attribute("activations", attribute.strings[number * each :][:each]))
        elif attribute.name != "direction":
            one.attribute.append(attribute)
    return starts, one


def _both(node: NodeProto) -> bool:
    return bool(options_of(node).get("direction") == b"bidirectional")


def _last_step(editor: Editor, name: str, steps: int) -> list[NodeProto] | None:
    """Return the nodes from a result (steps, 1, images, hidden) to the place where its last step alone is taken."""
    axis, path = 0, list[NodeProto]()
    while True:
        readers = editor.readers(name)
        if len(readers) != 1 or name in {value.name for value in editor.graph.output}:
            return None
        reader = readers[0]
        path.append(reader)
        options, name = options_of(reader), reader.output[0]
        if reader.op_type == "Transpose":
            axis = options["perm"].index(axis)
        elif reader.op_type == "Squeeze" and len(reader.input) > 1 and reader.input[1] in editor.constants:
            gone = editor.constants[reader.input[1]].reshape(-1).tolist()
            if min(gone) < 0:
                return None
            axis -= sum(one < axis for one in gone)
        elif reader.op_type == "Gather" and options.get("axis", 0) == axis:
            place = editor.constants.get(reader.input[1])
            alone = place is not None and not place.ndim and int(place) in (-1, steps - 1)
            return path if alone and len(editor.shapes.get(name, ())) == 2 else None
        else:
            return None
