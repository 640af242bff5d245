"""One step of a recurrent layer: its weights by what they are multiplied with, in float and in integers.

At int8 inputs and outputs have 8 bits, as everywhere. What a step keeps of the last one, a GRU's state and an LSTM's
cell, has 16: with 8 it would not move where a step changes it by less than half a unit, as slow gates do
(BENCHMARKS.md has what that costs).
Sums come from int8 products, a gate's in 1/16, what tanh takes in 1/32; both functions are tables of 256 values in
2^-15. The state of 8 bits that is multiplied with weights, and given on, is 128ths.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from automcu_ray.deploy.graph_editor import options_of

Array = npt.NDArray[Any]
GATE, FRESH = 1 / 16, 1 / 32  # what one unit of a sum stands for: of gates, and where tanh follows
STATE = 1 / 128
_EVERY = np.arange(-128, 128)
_MOST_BIAS = 1 << 23  # in units of a sum: beyond, weights are zeros beside it


def table(function: Literal["sigmoid", "tanh"]) -> Array:
    """Return a function of sums -128 to 127 in 2^-15, int32."""
    found = np.tanh(_EVERY * FRESH) if function == "tanh" else 1 / (1 + np.exp(-_EVERY * GATE))
    values: Array = np.rint(found * (1 << 15)).clip(-(1 << 15) + 1, (1 << 15) - 1).astype(np.int32)
    return values


@dataclass(frozen=True)
class Product:
    """A sum: weights of the state (rows, hidden) and of the input (rows, inputs), either may be missing, and biases."""

    of_state: Array | None
    of_input: Array | None
    biases: Array
    units: Array  # what one unit of each result stands for

    def in_integers(self, state: tuple[float, int], data: tuple[float, int]) -> tuple[Array, Array, Array]:
        """Return int8 weights (rows, hidden + inputs), int32 biases and float32 scales, from sums to results.

        Args:
            state: scale and zero point of the state.
            data: of the input. Biases hold both zero points.
        """
        ends = ((self.of_state, *state), (self.of_input, *data))
        parts = [(weights * scale, zero) for weights, scale, zero in ends if weights is not None]
        real = np.concatenate([part for part, _ in parts], axis=1).astype(np.float64)
        zeros = np.concatenate([np.full(part.shape[1], zero) for part, zero in parts])
        steps = np.maximum(np.abs(real).max(axis=1) / 127, np.abs(self.biases) / _MOST_BIAS)
        steps = np.maximum(steps, np.finfo(np.float32).tiny)
        weights = np.rint(real / steps[:, None]).astype(np.int8)
        biases = np.rint(self.biases / steps) - weights.astype(np.int64) @ zeros
        return weights, biases.astype(np.int32), (steps / self.units).astype(np.float32)


@dataclass(frozen=True)
class Cell:
    """A recurrent operator in one direction, from a float graph in `recurrent_layers`' one form.

    `start` are the states that it begins with, (hidden) each: the one that it gives, and an LSTM's cell.
    """

    kind: str
    weights: Array  # (rows, inputs): of gates, one after the other, as ONNX orders them
    recurrent: Array  # (rows, hidden)
    biases: tuple[Array, Array]
    start: tuple[Array, ...]
    backwards: bool
    reset_after: bool  # of a GRU: its reset gate is multiplied with a product, not with the state
    rectifies: bool  # of an RNN: ReLU, not tanh

    @classmethod
    def of(cls, node: NodeProto, constants: Mapping[str, Array]) -> "Cell":
        """Return the cell of a node, whose states are constants of one image or missing."""
        options, inputs = options_of(node), [*node.input, *[""] * 7]
        weights, recurrent = constants[inputs[1]][0], constants[inputs[2]][0]
        rows, hidden = recurrent.shape
        biases = constants[inputs[3]][0] if inputs[3] else np.zeros(2 * rows, np.float32)
        states = [constants[name].reshape(-1) if name else np.zeros(hidden, np.float32) for name in inputs[5:7]]
        return cls(
            kind=node.op_type,
            weights=weights,
            recurrent=recurrent,
            biases=(biases[:rows], biases[rows:]),
            start=tuple(states[: 1 + (node.op_type == "LSTM")]),
            backwards=options.get("direction") == b"reverse",
            reset_after=bool(options.get("linear_before_reset", 0)),
            rectifies=b"Relu" in options.get("activations", []),
        )

    @property
    def hidden(self) -> int:
        """Values of the state."""
        return int(self.recurrent.shape[1])

    def largest(self, data: Array) -> float:
        """Return the largest size that the integers have to hold, of all steps of data (steps, images, inputs).

        A GRU's is that of the two sums that its reset gate stands between, an LSTM's its cell, an RNN's its result.
        """
        state = np.broadcast_to(self.start[0], (data.shape[1], self.hidden))
        cell, found = np.broadcast_to(self.start[-1], state.shape), 0.0
        for step in data[::-1] if self.backwards else data:
            one, other = step @ self.weights.T + self.biases[0], state @ self.recurrent.T + self.biases[1]
            if self.kind == "RNN":
                state = np.maximum(one + other, 0) if self.rectifies else np.tanh(one + other)
                found = max(found, state.max())
            elif self.kind == "LSTM":
                gates = one + other
                i, o, f = np.split(_sigmoid(gates[:, : 3 * self.hidden]), 3, axis=1)
                cell = f * cell + i * np.tanh(gates[:, 3 * self.hidden :])
                state, found = o * np.tanh(cell), max(found, np.abs(cell).max())
            else:
                z, r = np.split(_sigmoid((one + other)[:, : 2 * self.hidden]), 2, axis=1)
                one, other = one[:, 2 * self.hidden :], other[:, 2 * self.hidden :]
                found = max(found, np.abs(one).max(), np.abs(other).max())
                if not self.reset_after:
                    other = (r * state) @ self.recurrent[2 * self.hidden :].T + self.biases[1][2 * self.hidden :]
                state = z * state + (1 - z) * np.tanh(one + r * other if self.reset_after else one + other)
        return float(found)

    def products(self, unit: float) -> dict[str, Product]:
        """Return the sums of a step by name; `unit` is what one stands for of those that `largest` is the size of."""
        w, r, (b, c), h = self.weights, self.recurrent, self.biases, self.hidden
        if self.kind == "RNN":
            return {"fresh": Product(r, w, b + c, np.full(h, unit if self.rectifies else FRESH))}
        if self.kind == "LSTM":
            return {"gates": Product(r, w, b + c, np.repeat([GATE, FRESH], [3 * h, h]))}
        found = {"gates": Product(r[: 2 * h], w[: 2 * h], (b + c)[: 2 * h], np.full(2 * h, GATE))}
        if self.reset_after:
            found["of_input"] = Product(None, w[2 * h :], b[2 * h :], np.full(h, unit))
            found["of_state"] = Product(r[2 * h :], None, c[2 * h :], np.full(h, unit))
        else:
            found["fresh"] = Product(r[2 * h :], w[2 * h :], (b + c)[2 * h :], np.full(h, FRESH))
        return found


def _sigmoid(values: Array) -> Array:
    found: Array = 1 / (1 + np.exp(-values))
    return found
