"""How a quantised file's tensors are read: with the file's own scales and zero points, never with new ones.

The graph is walked once, in order. A tensor is a constant, integers, the real values of integers, a function of those,
or what an operator works out and nothing has rounded yet; where it is rounded, the operator of int8 is written. What
rounding commutes with (moves, maxima, clipping) may stand on either side of it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import onnx
from onnx import NodeProto, numpy_helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.graph_editor import Editor, options_of
from automcu_ray.deploy.quantised.entry import AS_THEY_ARE, is_by_pixel, looked_up_by_channel, tables, turns
from automcu_ray.deploy.quantised.values import (
    EVERY,
    Array,
    Entry,
    Function,
    Grid,
    Held,
    Integers,
    Pending,
    Real,
    Value,
    along,
    integers_on,
    outcomes,
    rounded,
)
from automcu_ray.deploy.quantised.writer import Writer
from automcu_ray.deploy.tables import FUNCTIONS

MONOTONE = frozenset(("Clip", "Max", "Min", "Relu"))


class Reader:
    """Reads a file of pairs; `values` are the file's tensors by name, `to` is the graph that is written."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.editor, self.to, self.notes = Editor(model), Writer(), Counter[str]()
        self.image = model.graph.input[0].name
        constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self.values: dict[str, Value] = {name: Held(array) for name, array in constants.items()}
        self.values[self.image] = Entry(self.image)
        self.input_grid = AS_THEY_ARE

    def data(self, node: NodeProto) -> list[str]:
        """Return the inputs of a node that are no constants."""
        return [name for name in node.input if name and not isinstance(self.values.get(name), Held)]

    def held(self, name: str) -> Array | None:
        """Return a constant, None where it is none."""
        found = self.values.get(name)
        return found.real if isinstance(found, Held) else None

    def error(self, node: NodeProto, why: str) -> ToolchainError:
        """Return the error that a node has no form of int8."""
        return ToolchainError(f"{node.op_type} ({node.name or 'unnamed'}): {why}.")

    # Pairs ------------------------------------------------------------------------------------------------------

    def quantise(self, node: NodeProto) -> None:
        """Read a QuantizeLinear: whatever has been worked out is written now."""
        (scale, zeros), unsigned = self._scales(node), self._unsigned(node)
        low, high, offset = (0, 255, 128) if unsigned else (-128, 127, 0)
        found, axis = self.values[node.input[0]], options_of(node).get("axis", 1)
        if isinstance(found, Held):
            of = found.real
            integers = rounded(of, along(scale, axis, of), along(zeros, axis, of), low, high)
            self.values[node.output[0]] = Held(integers.astype(np.uint8 if unsigned else np.int8))
            return
        grid = self._grid(node, scale, zeros, offset)
        if isinstance(found, Real) and found.grid == grid:
            self.values[node.output[0]] = Integers(found.name, offset, found.pads)
        else:
            self.values[node.output[0]] = Integers(self.on(found, grid, node), offset)

    def dequantise(self, node: NodeProto) -> None:
        """Read a DequantizeLinear."""
        scale, zeros = self._scales(node)
        found = self.values[node.input[0]]
        if isinstance(found, Held):
            axis, of = options_of(node).get("axis", 1), found.real
            real = (of.astype(np.int64) - along(zeros, axis, of)).astype(np.float32) * along(scale, axis, of)
            self.values[node.output[0]] = Held(real.astype(np.float32), of, scale, zeros, axis % max(1, of.ndim))
        elif isinstance(found, Integers):
            self.values[node.output[0]] = Real(found.name, self._grid(node, scale, zeros, found.offset), found.pads)
        else:
            raise self.error(node, "it reads what is no integer")

    def _scales(self, node: NodeProto) -> tuple[Array, Array]:
        scale, zeros = self.held(node.input[1]), self.held(node.input[2]) if len(node.input) > 2 else None
        if scale is None or (zeros is None and any(node.input[2:])):
            raise self.error(node, "its scales are worked out from the image: constant ones are wanted")
        return scale.astype(np.float32), np.zeros(scale.shape, np.int64) if zeros is None else zeros.astype(np.int64)

    def _unsigned(self, node: NodeProto) -> bool:
        zeros = self.held(node.input[2]) if len(node.input) > 2 else None
        if zeros is not None and zeros.dtype not in (np.int8, np.uint8):
            raise self.error(node, f"{zeros.dtype} has no kernels here: int8 or uint8 is wanted")
        return zeros is None or zeros.dtype == np.uint8  # ONNX: uint8 where nothing is said

    def _grid(self, node: NodeProto, scale: Array, zeros: Array, offset: int) -> Grid:
        if scale.size != 1 or zeros.size != 1:
            raise self.error(node, "activations have one scale a tensor here, this one has one a channel")
        grid = Grid(np.float32(scale.reshape(-1)[0]), int(zeros.reshape(-1)[0]) - offset)
        if not (np.isfinite(grid.scale) and grid.scale > 0) or not -128 <= grid.zero <= 127:
            raise self.error(node, "a scale above zero, and a zero point among its integers, are wanted")
        return grid

    # Rounding ---------------------------------------------------------------------------------------------------

    def on(self, found: Value, grid: Grid, node: NodeProto) -> str:
        """Return the int8 tensor of a value on a grid; `node` is what rounds it."""
        if isinstance(found, Entry):
            return self._entry(found, grid, node)
        if isinstance(found, Real) and not found.pads:
            return self._tabulated(found, "", "", (), grid, node.name or "rounded")
        if isinstance(found, Function):
            name = found.nodes[-1].name
            return self._tabulated(found.source, found.root, found.result, found.nodes, grid, name)
        if isinstance(found, Pending):
            return self._settled(found, grid)
        what = "zeros around an image (Pad) become C within a convolution alone"
        raise self.error(node, what if isinstance(found, Real) else "integers are rounded again")

    def _settled(self, pending: Pending, grid: Grid) -> str:
        key = grid.scale.tobytes(), grid.zero
        if key not in pending.written:
            name = pending.write(grid)
            for one in pending.after:
                if one.op_type in MONOTONE:  # rounding commutes with it
                    root = self.data(one)[0]
                    name = self._tabulated(Real(name, grid), root, one.output[0], (one,), grid, one.name)
                else:
                    name = self.moved(one, name)[0]
            pending.written[key] = name
        return pending.written[key]

    def _tabulated(
        self, source: Real, root: str, result: str, nodes: tuple[NodeProto, ...], grid: Grid, name: str
    ) -> str:
        real = self._outcomes(source.grid, root, result, nodes)
        return self.to.table(source.name, integers_on(grid, real), name)

    def _outcomes(self, grid: Grid, root: str, result: str, nodes: tuple[NodeProto, ...]) -> Array:
        """Return what a function gives for each int8 value of a grid, -128 first."""
        real = (EVERY.astype(np.float32) - np.float32(grid.zero)) * grid.scale
        if not nodes:
            return real
        constants = self._constants(nodes)
        rank = max(1, *(array.ndim for array in constants.values()), 1)
        shaped = real.reshape(-1, *[1] * (rank - 1))
        return outcomes(nodes, constants, {root: shaped}, result).reshape(-1)

    def on_its_grid(self, found: Function) -> Real | None:
        """Return a function as integers on its source's grid, where each of its values lies on that."""
        grid = found.source.grid
        real = self._outcomes(grid, found.root, found.result, found.nodes)
        table = integers_on(grid, real)
        if not np.array_equal((table.astype(np.float32) - np.float32(grid.zero)) * grid.scale, real):
            return None
        return Real(self.to.table(found.source.name, table, found.nodes[-1].name), grid)

    def _entry(self, entry: Entry, grid: Grid, node: NodeProto) -> str:
        """Return the images on a grid: by a table for each channel, where that is not what they are."""
        found = tables(entry, self.image, self.editor.shapes[self.image][1:], self._constants(entry.nodes), grid)
        if found is None:
            raise self.error(node, "what is done to images before they are rounded should be the same at each pixel")
        name = looked_up_by_channel(self.to, self.image, found)
        if name == self.image:
            self.input_grid = grid
        else:
            self.notes["tables in front turn pixels into the file's integers"] += 1
        for one in (*turns(entry), *entry.moves):
            (name,) = self.moved(one, name)
        return name

    def _constants(self, nodes: Iterable[NodeProto]) -> dict[str, Array]:
        return {name: array for one in nodes for name in one.input if (array := self.held(name)) is not None}

    # Moves and functions ----------------------------------------------------------------------------------------

    def move(self, node: NodeProto) -> None:
        """Read an operator whose values are some of its first input's."""
        first = self.values[self.data(node)[0]]
        if isinstance(first, Function) and (real := self.on_its_grid(first)) is not None:
            first = real
        if isinstance(first, Integers | Real) and not first.pads:
            for result, name in zip(node.output, self.moved(node, first.name), strict=True):
                self.values[result] = replace(first, name=name)
        elif isinstance(first, Entry) and len(node.output) == 1:
            early = node.op_type == "Transpose" and not first.moves and "perm" in options_of(node)
            nodes, moves = ((*first.nodes, node), ()) if early else (first.nodes, (*first.moves, node))
            self.values[node.output[0]] = Entry(node.output[0], nodes, moves)
        elif isinstance(first, Pending) and len(node.output) == 1:
            self.values[node.output[0]] = replace(first, after=(*first.after, node), written={})
        else:
            raise self.error(node, "it reads what the file does not round")

    def moved(self, node: NodeProto, source: str) -> list[str]:
        """Write a move of an int8 tensor; return its results."""
        if node.op_type == "MaxPool" and len(node.output) > 1:
            raise self.error(node, "a pool with places as its second output has no kernel")
        constants = list(node.input[1:])
        for name in filter(None, constants):
            if (array := self.held(name)) is None:
                raise self.error(node, "its sizes or places are worked out from the image: constant ones are wanted")
            self.to.constant(name, array)
        results = [f"{name}_int8_{len(self.to.nodes)}" for name in node.output]
        self.to.copy(node, [source, *constants], results)
        return results

    def function(self, node: NodeProto) -> bool:
        """Read an operator on single values of one tensor; return whether it is one."""
        names = self.data(node)
        found = [self.values[name] for name in names]
        constants = [array for name in node.input if (array := self.held(name)) is not None]
        result = node.output[0]
        if (
            isinstance(found[0], Entry)
            and len(names) == 1
            and not found[0].moves
            and is_by_pixel(node, constants[0] if constants else None, self.editor.shapes[self.image][1])
        ):
            self.values[result] = Entry(result, (*found[0].nodes, node))
            return True
        if node.op_type not in FUNCTIONS or any(array.size != 1 for array in constants):
            return False
        if isinstance(found[0], Integers) and node.op_type == "Clip":
            self._clip(node, found[0])
        elif isinstance(found[0], Pending) and len(names) == 1 and node.op_type in MONOTONE:
            self.values[result] = replace(found[0], after=(*found[0].after, node), written={})
        else:
            parts = [
                Function(one, one.root, one.root, ()) if isinstance(one, Real) and not one.pads else one
                for one in found
            ]
            whole = [part for part in parts if isinstance(part, Function)]
            if len(whole) != len(parts) or len({part.root for part in whole}) != 1:
                return False
            path = {one.output[0]: one for part in whole for one in part.nodes}
            made = NodeProto.FromString(node.SerializeToString())
            results = {name: part.result for name, part in zip(names, whole, strict=True)}
            made.input[:] = [results.get(name, name) for name in node.input]
            self.values[result] = Function(whole[0].source, whole[0].root, result, (*path.values(), made))
        return True

    def _clip(self, node: NodeProto, found: Integers) -> None:
        """Cut integers, as files of fewer bits do between their pairs."""
        low, high = -np.inf, np.inf
        if len(node.input) > 1 and (array := self.held(node.input[1])) is not None:
            low = float(array.reshape(-1)[0]) - found.offset
        if len(node.input) > 2 and (array := self.held(node.input[2])) is not None:
            high = float(array.reshape(-1)[0]) - found.offset
        table = np.clip(EVERY.astype(np.float64), low, high).astype(np.int8)
        self.values[node.output[0]] = replace(found, name=self.to.table(found.name, table, node.name))

    # Operands ---------------------------------------------------------------------------------------------------

    def real(self, name: str, node: NodeProto) -> Real:
        """Return an operand of a node as integers with a scale.

        Raises:
            ToolchainError: nothing has rounded it.
        """
        found = self.values[name]
        if isinstance(found, Function) and (real := self.on_its_grid(found)) is not None:
            self.values[name] = found = real
        if isinstance(found, Held) and found.integers is not None:
            assert found.scales is not None and found.zeros is not None
            offset = 128 if found.integers.dtype == np.uint8 else 0
            stored = self.to.constant(f"{name}_held", (found.integers.astype(np.int16) - offset).astype(np.int8))
            return Real(stored, self._grid(node, found.scales, found.zeros, offset))
        if isinstance(found, Real):
            return found
        what = "the image" if isinstance(found, Entry) else "a constant"
        if isinstance(found, Pending | Function):
            last = found.node if isinstance(found, Pending) else found.nodes[-1]
            what = f"what {last.op_type} ({last.name}) gives"
        raise self.error(node, f"it reads {what} in float: the file has no scale for it; quantise that, too")
