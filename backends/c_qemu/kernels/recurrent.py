"""Recurrent layers: what `automcu_ray/deploy/recurrent_steps.py` wrote as a Scan becomes one call."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.sizing.scratch import ALIGNMENT
from backends.c_qemu.kernels.layer import Array, Field, Layer, Variant
from backends.c_qemu.kernels.weighted import packed_rows

_SUMS = ("gates", "fresh", "of_input", "of_state")


def recurrent(
    node: str,
    body: onnx.GraphProto,
    x: str,
    y: str,
    shape: Sequence[int],
    starts: Sequence[Array],
    way: int,
    variant: Variant,
) -> Layer:
    """Return a recurrent layer.

    Args:
        node: its name in reports.
        body: of the Scan: one step.
        x: the data.
        shape: of the data: (steps, 1, inputs).
        y: what it gives: all steps, or the last.
        starts: the states that it begins with.
        way: 1 where the last step comes first.
        variant: of the kernels.

    Raises:
        ToolchainError: a Scan of another origin.
    """
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in body.initializer}
    kernel = {"GRU": "gru_after" if "of_state_weights" in values else "gru_before", "LSTM": "lstm", "RNN": "plain"}
    if body.name not in kernel or len(shape) != 3 or shape[1] != 1:
        raise ToolchainError("int8 Scan should be a recurrent layer of ours to become C; others have no kernel.")
    hidden, inputs = len(starts[0].reshape(-1)), shape[2]
    fields: dict[str, Field] = {
        "steps": shape[0],
        "inputs": inputs,
        "hidden": hidden,
        "backwards": way,
        "every": len(body.output) - len(starts),
        "zero": int(values["zero"]),
        "shift": int(values["shift"]) if "shift" in values else 0,
        "start_h": starts[0].reshape(-1),
    }
    scales, bound = list[Array](), 0.0
    for name in (name for name in _SUMS if f"{name}_weights" in values):
        weights, biases, factors = (values[f"{name}_{what}"] for what in ("weights", "biases", "scales"))
        fields |= {
            f"{name}_weights": packed_rows(weights, variant),
            f"{name}_biases": biases,
            f"{name}_scales": factors,
        }
        sums = 255 * np.abs(weights.astype(np.int64)).sum(axis=1) + np.abs(biases.astype(np.int64))
        bound = max(bound, float((sums * factors.astype(np.float64)).max(initial=0)))
        scales.append(factors)
    for name in ("sigmoid", "tanh"):
        if name in values:
            fields[name] = np.roll(values[name], 128).astype(np.int16)  # from -128 on
    wide = len(starts) > 1
    if wide:
        fields["start_s"] = starts[1].reshape(-1).astype(np.int16)
    room = {"GRU": 4, "LSTM": 4, "RNN": 1}[body.name] * hidden
    scratch = 2 * hidden * wide + hidden + inputs + room + ALIGNMENT - 1
    name, factors = f"recur_{kernel[body.name]}", np.concatenate(scales)
    kept = 2 * hidden * wide + hidden
    return Layer(node, name, "recurrent", (x,), y, fields, {}, scratch, factors, bound, state_bytes=kept)
