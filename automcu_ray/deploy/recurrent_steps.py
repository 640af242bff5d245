"""Recurrent layers at int8: a Scan whose body is one step, in int8 products, tables and whole numbers.

onnxruntime's quantiser leaves such layers in float. `prepare` closes them off before it runs, as `tables.mark` does
with other islands, `put_steps` puts the Scan in their place. Weights lie in its body: once, however many steps there
are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, log2
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import NodeProto, TensorProto, helper, numpy_helper

from automcu_ray.deploy.recurrent_cell import STATE, Array, Cell, table
from automcu_ray.deploy.recurrent_layers import KINDS, for_all_images
from automcu_ray.deploy.tables import drop_unread

_MOVES = frozenset(("Flatten", "Gather", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
_TYPES = {"int8": TensorProto.INT8, "int32": TensorProto.INT32}


@dataclass(frozen=True)
class Recurrent:
    """A recurrent node of a float graph that waits for its integers; `source` is what it reads."""

    node: NodeProto
    cell: Cell
    source: str
    every: bool  # whether it gives all steps, or the last
    largest: float = 0.0  # see `Cell.largest`

    @property
    def result(self) -> str:
        """The name of what it gives."""
        name: str = self.node.output[0 if self.every else 1]
        return name


def prepare(model: onnx.ModelProto) -> list[Recurrent]:
    """Return the recurrent nodes, in order; each gets copies around it that make the quantiser give scales.

    Copies are leaky ReLUs that leak everything: of what a node gives, and of the network's input where it reads that.
    """
    graph, found = model.graph, list[Recurrent]()
    makers = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    image = graph.input[0].name
    for node in [node for node in graph.node if node.op_type in KINDS]:
        every = bool(node.output[0])
        place = 0 if every else 1
        opened, closed = f"{node.output[place]}_open", node.output[place]
        node.output[place] = opened
        copy = helper.make_node("LeakyRelu", [opened], [closed], name=f"{node.name}_closed", alpha=1.0)
        graph.node.insert(list(graph.node).index(node) + 1, copy)
        states = [makers[name].input[0] if name else "" for name in node.input[5:7]]  # of what repeats it
        plain = NodeProto()
        plain.CopyFrom(node)
        plain.input[5:] = states
        found.append(Recurrent(node, Cell.of(plain, constants), node.input[0], every))
        source = node.input[0]
        while source in makers and makers[source].op_type in _MOVES:
            source = makers[source].input[0]
        if source == image:
            _copy_input(graph, f"{image}_read")
            makers |= {name: node for node in graph.node for name in node.output}
    return found


def measured(model: onnx.ModelProto, recurrent: Sequence[Recurrent], batches: Sequence[Array]) -> list[Recurrent]:
    """Return the nodes with the sizes that their integers have to hold on calibration images, normalised."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    names = list(dict.fromkeys(one.source for one in recurrent))
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = ort.InferenceSession(probe.SerializeToString(), options, providers=["CPUExecutionProvider"])
    largest = [0.0] * len(recurrent)
    for batch in batches:
        data = dict(zip(names, session.run(names, {model.graph.input[0].name: batch}), strict=True))
        largest = [max(size, one.cell.largest(data[one.source])) for size, one in zip(largest, recurrent, strict=True)]
    return [replace(one, largest=size) for one, size in zip(recurrent, largest, strict=True)]


def excluded(recurrent: Sequence[Recurrent], model: onnx.ModelProto) -> list[str]:
    """Return the names of nodes that the quantiser is to leave alone: the layers, and what makes their first states."""
    states = {name for one in recurrent for name in one.node.input[5:] if name}
    sizes = {name for node in model.graph.node if set(node.output) & states for name in node.input}
    counts = {name for node in model.graph.node if set(node.output) & sizes for name in node.input}
    made = states | sizes | counts
    return [one.node.name for one in recurrent] + [n.name for n in model.graph.node if set(n.output) & made]


def put_steps(model: onnx.ModelProto, recurrent: Sequence[Recurrent]) -> None:
    """Replace the float layers of a quantised graph, and what the quantiser wrote around them, in place."""
    graph = model.graph
    if not recurrent:
        return
    for one in recurrent:
        values = {tensor.name: tensor for tensor in graph.initializer}
        entry = next(n for n in graph.node if n.op_type == "DequantizeLinear" and n.output[0] == one.source)
        exit_ = next(n for n in graph.node if n.op_type == "QuantizeLinear" and n.input[0] == one.result)
        copy = next(n for n in graph.node if n.op_type == "QLinearLeakyRelu" and n.input[0] == exit_.output[0])
        scale, zero = (numpy_helper.to_array(values[name]).item() for name in entry.input[1:3])
        steps = _Steps(one, (scale, zero), graph)
        made = steps.nodes(entry.input[0])
        at = list(graph.node).index(copy)
        copy.input[:3] = [made[-1].output[0], *(steps.outside(np.array(v)) for v in steps.ends)]
        for node in reversed(made):
            graph.node.insert(at, node)
        graph.node.remove(exit_)
    _drop_idle_copies(graph)
    drop_unread(graph)


def _copy_input(graph: onnx.GraphProto, copied: str) -> None:
    image = graph.input[0].name
    if any(copied in node.output for node in graph.node):
        return
    for node in graph.node:
        node.input[:] = [copied if name == image else name for name in node.input]
    graph.node.insert(0, helper.make_node("LeakyRelu", [image], [copied], name=copied, alpha=1.0))


def _drop_idle_copies(graph: onnx.GraphProto) -> None:
    """Remove leaky ReLUs that leak everything and change no scale."""
    values = {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in graph.initializer}
    final = {value.name for value in graph.output}
    for node in [node for node in graph.node if node.op_type == "QLinearLeakyRelu"]:
        slope = next((a.f for a in node.attribute if a.name == "alpha"), 0.01)
        ends = [[values.get(name) for name in node.input[start : start + 2]] for start in (1, 3)]
        if slope == 1 and ends[0] == ends[1] and node.output[0] not in final:
            graph.node.remove(node)
            for other in graph.node:
                other.input[:] = [node.input[0] if name == node.output[0] else name for name in other.input]


class _Steps:
    """Writes the Scan of one layer."""

    def __init__(self, recurrent: Recurrent, data: tuple[float, int], graph: onnx.GraphProto) -> None:
        self.recurrent, self.cell, self.data, self.graph = recurrent, recurrent.cell, data, graph
        self.name, self.hidden = recurrent.node.name, recurrent.cell.hidden
        self.body = list[NodeProto]()
        self.constants = dict[str, Array]()
        self.bits, self.unit, self.zero = 0, STATE, 0
        size = max(recurrent.largest, 1e-6)
        if self.cell.kind == "LSTM":  # of fraction: a cell may grow to twice what was seen
            self.bits = min(12, max(6, floor(log2(32767 / (2 * size)))))
        elif self.cell.kind == "GRU" and self.cell.reset_after:
            self.bits = min(5, max(-8, floor(log2(127 / size))))
            self.unit = 2.0**-self.bits
        elif self.cell.rectifies:
            self.unit, self.zero = float(np.float32(size / 255)), -128

    @property
    def ends(self) -> tuple[np.float32, np.int8]:
        """Scale and zero point of what the layer gives."""
        return (np.float32(self.unit), np.int8(self.zero)) if self.cell.rectifies else (np.float32(STATE), np.int8(0))

    def outside(self, values: npt.ArrayLike) -> str:
        """Add a constant to the graph around; return its name."""
        name = f"{self.name}_constant{len(self.graph.initializer)}"
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def nodes(self, source: str) -> list[NodeProto]:
        """Return the Scan and the nodes around it, from int8 data (steps, images, inputs) to what the layer gave."""
        states = self._states()
        kinds = {"h": "int8", **dict.fromkeys(list(states)[1:], "int32")}
        self._constant("shift", np.int32(self.bits + 10 * (self.cell.kind == "GRU")))  # for who writes C
        hx = self._give("Concat", "h", "x", axis=1)
        last = {"GRU": self._gru, "LSTM": self._lstm, "RNN": self._rnn}[self.cell.kind](hx)
        outputs = [(name, kinds[key]) for key, name in zip(kinds, last, strict=True)]
        if self.recurrent.every:
            outputs.append((self._give("Identity", last[0]), "int8"))
        sizes = {**dict.fromkeys(kinds, self.hidden), "x": self.cell.weights.shape[1]}
        inputs = [_value(key, kind, sizes[key]) for key, kind in {**kinds, "x": "int8"}.items()]
        body = helper.make_graph(
            self.body,
            self.cell.kind,
            inputs,
            [_value(name, kind, self.hidden) for name, kind in outputs],
            [numpy_helper.from_array(values, name) for name, values in self.constants.items()],
        )
        made, starts = list[NodeProto](), list[str]()
        for key, start in states.items():
            starts.append(f"{self.name}_start_{key}")
            made += for_all_images(source, start[None], starts[-1], lambda _, values: self.outside(values))
        ends = [f"{self.name}_{key}" for key in kinds] + [f"{self.name}_all"] * self.recurrent.every
        ways = {"scan_input_directions": [int(self.cell.backwards)]}
        if self.recurrent.every:
            ways["scan_output_directions"] = ways["scan_input_directions"]
        made.append(
            helper.make_node("Scan", [*starts, source], ends, name=self.name, body=body, num_scan_inputs=1, **ways)
        )
        given, axis = (ends[-1], 1) if self.recurrent.every else (ends[0], 0)
        axes = self.outside(np.array([axis], np.int64))
        made.append(helper.make_node("Unsqueeze", [given, axes], [f"{self.name}_given"], name=f"{self.name}_given"))
        return made

    def _states(self) -> dict[str, Array]:
        """Return what the first step begins with: int8 `h`, and 16 bits of a GRU's state or an LSTM's cell."""
        scale, zero = self.ends
        start, cell = self.cell.start[0], self.cell.start[-1]
        found = {"h": (np.rint(start / scale) + zero).clip(-128, 127).astype(np.int8)}
        if self.cell.kind != "RNN":
            bits = self.bits if self.cell.kind == "LSTM" else 15
            found["s"] = np.rint(cell * (1 << bits)).clip(-32767, 32767).astype(np.int32)
        return found

    def _gru(self, hx: str) -> list[str]:
        z, r = self._split(self._table("sigmoid", self._product("gates", hx)), 2)
        if self.cell.reset_after:
            one, other = self._wide(self._product("of_input", "x")), self._wide(self._product("of_state", "h"))
            total = self._give("Add", self._give("Mul", one, self._int(1 << 15)), self._give("Mul", r, other))
            fresh = self._table("tanh", self._narrow(self._shifted(total, 10 + self.bits)))
        else:
            kept = self._narrow(self._shifted(self._give("Mul", r, "s"), 23))
            fresh = self._table("tanh", self._product("fresh", self._give("Concat", kept, "x", axis=1)))
        rest = self._give("Sub", self._int(1 << 15), z)
        total = self._give("Add", self._give("Mul", z, "s"), self._give("Mul", rest, fresh))
        state = self._shifted(total, 15)
        return [self._narrow(self._shifted(state, 8)), state]

    def _lstm(self, hx: str) -> list[str]:
        gates, fresh = self._split(self._product("gates", hx), 3 * self.hidden, self.hidden)
        i, o, f = self._split(self._table("sigmoid", gates), 3)
        new = self._shifted(self._give("Mul", i, self._table("tanh", fresh)), 15 - self.bits)
        total = self._give("Add", self._give("Mul", f, "s"), new)
        cell = self._give("Clip", self._shifted(total, 15), self._int(-32767), self._int(32767))
        squashed = self._table("tanh", self._narrow(self._shifted(cell, self.bits - 5)))
        return [self._narrow(self._shifted(self._give("Mul", o, squashed), 23)), cell]

    def _rnn(self, hx: str) -> list[str]:
        fresh = self._product("fresh", hx)
        return [fresh if self.cell.rectifies else self._narrow(self._shifted(self._table("tanh", fresh), 8))]

    def _give(self, kind: str, *sources: str, **options: Any) -> str:
        name = f"step{len(self.body)}"
        domain = "com.microsoft" if kind == "QGemm" else ""
        self.body.append(helper.make_node(kind, sources, [name], name=name, domain=domain, **options))
        return name

    def _constant(self, name: str, values: npt.ArrayLike) -> str:
        self.constants[name] = np.asarray(values)
        return name

    def _int(self, value: int) -> str:
        return self._constant(f"int{value}", np.array(value, np.int32))

    def _product(self, name: str, source: str) -> str:
        """Sums of int8 products, as int8: the scales of weights are those of whole results."""
        found = self.cell.products(self.unit)[name]
        zero = self.zero if self.cell.rectifies else 0
        weights, biases, scales = found.in_integers((float(self.ends[0]), int(self.ends[1])), self.data)
        one, none = self._constant("one", np.float32(1)), self._constant("none", np.int8(0))
        arrays = {"weights": weights, "scales": scales, "zeros": np.zeros(len(scales), np.int8), "biases": biases}
        w, s, z, b = (self._constant(f"{name}_{what}", values) for what, values in arrays.items())
        last = self._constant("zero", np.int8(zero))
        return self._give("QGemm", source, one, none, w, s, z, b, one, last, transB=1)

    def _table(self, name: str, places: str) -> str:
        """Values of a table, int32; an index below zero counts from the end."""
        values = np.roll(table("tanh" if name == "tanh" else "sigmoid"), 128)
        return self._give("Gather", self._constant(name, values), self._wide(places), axis=0)

    def _shifted(self, value: str, bits: int) -> str:
        """Value / 2^bits, to the nearest, half up; division alone would round towards zero."""
        total = self._give("Add", value, self._int(1 << bits >> 1)) if bits else value
        rest = self._give("Mod", total, self._int(1 << bits))
        return self._give("Div", self._give("Sub", total, rest), self._int(1 << bits))

    def _wide(self, value: str) -> str:
        return self._give("Cast", value, to=TensorProto.INT32)

    def _narrow(self, value: str) -> str:
        cut = self._give("Clip", value, self._int(-128), self._int(127))
        return self._give("Cast", cut, to=TensorProto.INT8)

    def _split(self, value: str, *sizes: int) -> list[str]:
        """Parts along the values: of these sizes, or as many equal ones."""
        parts = [self.hidden] * sizes[0] if len(sizes) == 1 else list(sizes)
        name = f"step{len(self.body)}"
        names = [f"{name}_{number}" for number in range(len(parts))]
        lengths = self._constant(f"{name}_sizes", np.array(parts, np.int64))
        self.body.append(helper.make_node("Split", [value, lengths], names, name=name, axis=1))
        return names


def _value(name: str, kind: str, size: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, _TYPES[kind], [None, size])
