"""Patch-wise execution: the first layers of a network patch by patch, so that no tensor between them exists whole.

After MCUNetV2 (Lin et al. 2021, arXiv:2110.15352, section 3.1); its patches are rectangles, ours strips of whole rows.
Each patch is computed from the rows of the image that it depends on, and rows that two patches depend on are computed
twice. Every value is computed as it was, so the bits stay.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

_WINDOWS = ("QLinearConv", "MaxPool", "QLinearAveragePool")
_VALUES = {"QLinearAdd": (0, 3), "QLinearMul": (0, 3), "QLinearSigmoid": (0,), "QLinearLeakyRelu": (0,)}  # their inputs
_MARK = " patch "  # in the names of nodes: of which patch a copy is
_ROWS = 2  # the axis of a tensor NCHW
_NOTE = "The first {nodes} operators are computed in {patches} patches of rows: {macs:.2f} times the network's MACs."
_SAID = re.compile(
    r"The first (\d+) operators are computed in (\d+) patches of rows: ([\d.]+) times the network's MACs\."
)


class Rows(NamedTuple):
    """Rows from `start` up to `end`, which is no longer one of them."""

    start: int
    end: int

    def around(self, other: "Rows") -> "Rows":
        """Return the rows from the first to the last of both."""
        return Rows(min(self.start, other.start), max(self.end, other.end))


@dataclass(frozen=True)
class Stage:
    """So many nodes from the start of a graph, computed in so many patches, for so many times the network's MACs."""

    nodes: int
    patches: int
    macs: float

    @property
    def note(self) -> str:
        """What a report says of it."""
        return _NOTE.format(nodes=self.nodes, patches=self.patches, macs=self.macs)

    @classmethod
    def of(cls, notes: Iterable[str]) -> "Stage | None":
        """Return the stage that a report speaks of; None where there is none."""
        found = next(filter(None, (_SAID.fullmatch(note) for note in notes)), None)
        return cls(int(found[1]), int(found[2]), float(found[3])) if found else None


class PatchedGraph:
    """A graph for one image whose first nodes can be computed in patches.

    `model` has the types and shapes of all tensors (`DeployedNetwork.with_batch_one`).
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model, graph = model, model.graph
        self.nodes = list(graph.node)
        self.values = {value.name: value for value in (*graph.input, *graph.output, *graph.value_info)}
        self.shapes = {
            name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
            for name, value in self.values.items()
        }
        self.weights = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}

    def stages(self, arena_bytes: int, too_large: Collection[str]) -> Iterator[Stage]:
        """Yield the stages that could fit into an arena, the one that computes least twice first.

        `too_large` are the nodes that need more than that, at least, while they run: they belong to the stage.
        """
        found = []
        names = [node.name for node in self.nodes]
        for nodes in self._cuts():
            if not set(too_large) <= set(names[:nodes]):
                continue
            height = self._shape(nodes - 1)[_ROWS]
            for patches in sorted({-(-height // rows) for rows in range(1, height)}):
                demands = self._demands(nodes, patches)
                if self._peak_bytes(nodes, demands) <= arena_bytes:
                    found.append(Stage(nodes, patches, round(self._macs(nodes, demands), 2)))
        yield from sorted(found, key=lambda stage: (stage.macs, stage.patches))

    def graph(self, stage: Stage) -> onnx.ModelProto:
        """Return the model with a stage in patches; `original` tells of which node one is a copy."""
        made = onnx.ModelProto()
        made.CopyFrom(self.model)
        del made.graph.node[:]
        last = self.nodes[stage.nodes - 1].output[0]
        parts = []
        entry = self.model.graph.input[0].name
        for number, demand in enumerate(self._demands(stage.nodes, stage.patches)):
            whole, first = Rows(0, self.shapes[entry][_ROWS]), self.nodes[0].name
            names = {entry: self._rows_of(made, first, entry, entry, whole, demand[entry])}
            for node in self.nodes[: stage.nodes]:
                self._add(made, node, demand, names, number)
            parts.append(names[last])
        end = self.nodes[stage.nodes - 1].name
        made.graph.node.append(helper.make_node("Concat", parts, [last], end + _MARK, axis=_ROWS))
        made.graph.node.extend(self.nodes[stage.nodes :])
        return made

    def _add(
        self, made: onnx.ModelProto, node: onnx.NodeProto, demand: dict[str, Rows], names: dict[str, str], number: int
    ) -> None:
        """Append a patch of a node."""
        rows, copy = demand[node.output[0]], onnx.NodeProto()
        copy.CopyFrom(node)
        for at in self._read(node):
            name = node.input[at]
            copy.input[at] = self._rows_of(made, node.name, name, names[name], demand[name], self._needs(node, rows))
        if node.op_type in _WINDOWS:
            window, height = _window(node), self.shapes[node.input[0]][_ROWS]
            pads = list(window.pads)
            pads[0] = max(0, -window.first(rows.start))
            pads[2] = max(0, window.first(rows.end - 1) + window.reach + 1 - height)
            kept = [attribute for attribute in node.attribute if attribute.name != "pads"]
            del copy.attribute[:]
            copy.attribute.extend([*kept, helper.make_attribute("pads", pads)])
        copy.name = f"{node.name}{_MARK}{number}"
        names[node.output[0]] = copy.output[0] = f"{node.output[0]}_patch{number}"
        self._declare(made, node.output[0], copy.output[0], rows)
        made.graph.node.append(copy)

    def _rows_of(self, made: onnx.ModelProto, reader: str, whole: str, name: str, there: Rows, wanted: Rows) -> str:
        """Return the name of some rows of a tensor, copied out of `name`, which holds the rows `there` of it."""
        if there == wanted:
            return name
        part = f"{name}_rows{wanted.start}to{wanted.end}"
        if part not in {value.name for value in made.graph.value_info}:
            places = np.arange(wanted.start - there.start, wanted.end - there.start, dtype=np.int64)
            made.graph.initializer.append(numpy_helper.from_array(places, f"{part}_places"))
            made.graph.node.append(
                helper.make_node("Gather", [name, f"{part}_places"], [part], f"{reader}{_MARK}{part}", axis=_ROWS)
            )
            self._declare(made, whole, part, wanted)
        return part

    def _declare(self, made: onnx.ModelProto, whole: str, part: str, rows: Rows) -> None:
        value = onnx.ValueInfoProto()
        value.CopyFrom(self.values[whole])
        value.name = part
        value.type.tensor_type.shape.dim[_ROWS].dim_value = rows.end - rows.start
        made.graph.value_info.append(value)

    def _cuts(self) -> list[int]:
        """Return after how many nodes a stage can end: all are computed row by row, and only the last is read later."""
        found = []
        for count, node in enumerate(self.nodes, 1):
            if not self._by_rows(node):
                break
            made = {name for one in self.nodes[:count] for name in one.output} | {
                v.name for v in self.model.graph.input
            }
            read = {name for one in self.nodes[count:] for name in one.input} & made
            if count > 1 and read == {node.output[0]}:
                found.append(count)
        return found

    def _by_rows(self, node: onnx.NodeProto) -> bool:
        shape = self.shapes.get(node.output[0], ())
        if len(shape) != 4 or len(node.output) != 1:
            return False
        if node.op_type in _WINDOWS:
            found = {one.name: helper.get_attribute_value(one) for one in node.attribute}
            odd = found.get("ceil_mode", 0) or found.get("channels_last", 0) or found.get("storage_order", 0)
            window = _window(node)
            beyond = max(window.pads[0], window.pads[2]) > window.reach  # a window may see padding alone
            return not (odd or beyond) and found.get("auto_pad", b"NOTSET") == b"NOTSET"
        if node.op_type not in _VALUES:
            return False
        read = [self.shapes[node.input[at]] for at in self._read(node)]
        fixed = [self.weights[node.input[at]] for at in _VALUES[node.op_type] if node.input[at] in self.weights]
        return bool(read) and all(one == shape for one in read) and all(prod(one[_ROWS:]) == 1 for one in fixed)

    def _read(self, node: onnx.NodeProto) -> list[int]:
        """Return which of a node's inputs are tensors."""
        return [at for at in _VALUES.get(node.op_type, (0,)) if node.input[at] not in self.weights]

    def _needs(self, node: onnx.NodeProto, rows: Rows) -> Rows:
        """Return the rows of its input that rows of a node's output depend on."""
        if node.op_type not in _WINDOWS:
            return rows
        window, height = _window(node), self.shapes[node.input[0]][_ROWS]
        return Rows(max(0, window.first(rows.start)), min(height, window.first(rows.end - 1) + window.reach + 1))

    def _demands(self, nodes: int, patches: int) -> list[dict[str, Rows]]:
        """Return, for each patch, the rows of every tensor that it depends on, with those of the stage's output."""
        last = self.nodes[nodes - 1].output[0]
        ends = np.linspace(0, self.shapes[last][_ROWS], patches + 1).round().astype(int).tolist()
        found = []
        for start, end in pairwise(ends):
            demand = {last: Rows(start, end)}
            for node in reversed(self.nodes[:nodes]):
                for at in self._read(node):
                    needed = self._needs(node, demand[node.output[0]])
                    demand[node.input[at]] = demand.get(node.input[at], needed).around(needed)
            found.append(demand)
        return found

    def _peak_bytes(self, nodes: int, demands: Sequence[dict[str, Rows]]) -> int:
        """Return about what lives at once: what a patch's nodes read and write, beside finished patches."""
        row = {name: prod(shape) // shape[_ROWS] for name, shape in self.shapes.items() if len(shape) == 4}
        entry = self.model.graph.input[0].name
        done = busiest = 0
        for demand in demands:
            size = {name: (rows.end - rows.start) * row[name] for name, rows in demand.items() if name != entry}
            for at, node in enumerate(self.nodes[:nodes]):
                later = {name for one in self.nodes[at:nodes] for name in one.input} | {node.output[0]}
                made = {one.output[0] for one in self.nodes[: at + 1]}
                busiest = max(busiest, done + sum(size[name] for name in later & made))
            done += size[self.nodes[nodes - 1].output[0]]
        return max(busiest, 2 * done)

    def _macs(self, nodes: int, demands: Sequence[dict[str, Rows]]) -> float:
        """Return how many times the network's multiply-accumulates are computed."""
        each: dict[str, int] = {
            node.output[0]: prod(self.weights[node.input[3]][1:]) * prod(self.shapes[node.output[0]])
            for node in self.nodes
            if node.op_type == "QLinearConv"
        }
        more = 0.0
        for node in self.nodes[:nodes]:
            if node.output[0] in each:
                rows = sum(demand[node.output[0]].end - demand[node.output[0]].start for demand in demands)
                more += each[node.output[0]] * (rows / self.shapes[node.output[0]][_ROWS] - 1)
        return 1 + more / max(1, sum(each.values()))

    def _shape(self, node: int) -> tuple[int, ...]:
        return self.shapes[self.nodes[node].output[0]]


def original(node: str) -> str:
    """Return the name of the node that a node of `PatchedGraph.graph` is a copy of."""
    return node.partition(_MARK)[0]


@dataclass(frozen=True)
class _Window:
    stride: int
    reach: int  # from the first to the last row
    pads: tuple[int, ...]

    def first(self, row: int) -> int:
        """Return the first row that a row of the output reads, padding included."""
        return row * self.stride - self.pads[0]


def _window(node: onnx.NodeProto) -> _Window:
    found = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    kernel, stride = found["kernel_shape"], found.get("strides", [1, 1])
    gaps, pads = found.get("dilations", [1, 1]), found.get("pads", [0, 0, 0, 0])
    return _Window(stride[0], (kernel[0] - 1) * gaps[0], tuple(pads))
