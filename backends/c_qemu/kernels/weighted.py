"""Convolutions and linear layers: weights packed as a variant's kernels read them, biases that hold the zero point."""

from dataclasses import replace
from math import prod

import numpy as np

from automcu_ray.core.errors import ToolchainError
from automcu_ray.sizing.peak_memory import APART, Lag
from automcu_ray.sizing.scratch import ALIGNMENT, is_depthwise, scratch_bytes
from backends.c_qemu.kernels import depthwise
from backends.c_qemu.kernels.layer import Array, Field, Layer, Variant
from backends.c_qemu.kernels.window import Quantised, Window


def convolution(node: str, x: str, y: str, window: Window, quantised: Quantised, variant: Variant) -> Layer:
    """Return a convolution of any window; a linear layer where it reads single pixels of an image of one.

    It needs as little scratch as can be; `roomy` is the same layer with more, and faster.
    """
    plane_in, plane_out = window.read[1] * window.read[2], window.written[1] * window.written[2]
    if window.groups == 1 and plane_in == plane_out == window.kernel[0] * window.kernel[1] == 1:
        return linear(node, x, y, 1, quantised, variant)
    lags = {x: window.lag()}
    copies_rows = is_depthwise(window.groups, window.read, window.written)
    if not copies_rows and window.kernel == window.stride == (1, 1) and window.pad == (0, 0) and plane_in < 1 << 16:
        read, written = (window.read[0], 1, plane_in), (window.written[0], 1, plane_out)  # one row: fewer ragged ends
        window = Window(read, written, (1, 1), (1, 1), (1, 1), (0, 0), window.groups)
    numbers = _numbers(window) | {"x_zero": quantised.x_zero, "y_zero": quantised.y_zero}

    def made(kernel: str, fields: dict[str, Field], scratch: int, roomy: Layer | None = None) -> Layer:
        scales, bound = quantised.scales, quantised.bound
        return Layer(node, kernel, "convolution", (x,), y, fields | numbers, lags, scratch, scales, bound, roomy=roomy)

    narrow = ("convolve_narrow", _narrow(window, quantised, variant), _least_scratch(window))
    if copies_rows:
        small = made(*narrow)
        if variant == "dsp" and depthwise.is_apart(window):
            return replace(made("convolve_apart", *depthwise.apart(window, quantised)), small=small)
        if variant == "dsp":
            return replace(made("convolve_depthwise", *depthwise.ring(window, quantised)), small=small)
        high = made("convolve_depthwise", *depthwise.strips(window, quantised, depthwise.most_rows(window, variant)))
        return replace(made("convolve_depthwise", *depthwise.strips(window, quantised, 1), high), small=small)
    dense = _dense_helium(window, quantised) if variant == "helium" else _dense(window, quantised, variant)
    kernel = "convolve_threes" if variant == "dsp" and _in_threes(window) else "convolve"
    wide = made(kernel, *dense) if dense and plane_out > 2 else None
    return made(*narrow, wide)


def _least_scratch(window: Window) -> int:
    return scratch_bytes(
        window.groups, window.read, window.written, window.kernel, window.stride[1], window.pad[1], window.dilation
    )


def _numbers(window: Window) -> dict[str, Field]:
    return {
        "groups": window.groups,
        "in_channels": window.read[0] // window.groups,
        "out_channels": window.written[0] // window.groups,
        **{f"in_{side}": window.read[i] for i, side in ((1, "h"), (2, "w"))},
        **{f"out_{side}": window.written[i] for i, side in ((1, "h"), (2, "w"))},
        **{f"kernel_{side}": window.kernel[i] for i, side in enumerate("hw")},
        **{f"stride_{side}": window.stride[i] for i, side in enumerate("hw")},
        **{f"dilation_{side}": window.dilation[i] for i, side in enumerate("hw")},
        "pad_top": window.pad[0],
        "pad_left": window.pad[1],
    }


def _narrow(window: Window, quantised: Quantised, variant: Variant) -> dict[str, Field]:
    channels = window.written[0] // window.groups
    flat = quantised.weights.reshape(window.groups, channels, -1)
    groups = [packed_rows(group, variant) for group in flat]
    return {
        "weights": np.concatenate(groups),
        "biases": quantised.folded.astype(np.int32),
        "scales": quantised.scales,
        "weights_step": len(groups[0]),
        "channels_step": channels,
        "depth": flat.shape[2],
    }


def packed_rows(weights: Array, variant: Variant) -> Array:
    """Return a matrix (outputs, inputs) as `dot_products` reads it, flat."""
    if variant != "dsp":
        return weights.reshape(-1)
    outputs, inputs = weights.shape
    padded = np.zeros((outputs, inputs + -inputs % 4), np.int8)
    padded[:, :inputs] = weights
    together = outputs - outputs % 4
    fours = padded[:together].reshape(together // 4, 4, padded.shape[1] // 4, 4).transpose(0, 2, 1, 3)
    return np.concatenate([fours.reshape(-1), padded[together:].reshape(-1)])


def _dense(window: Window, quantised: Quantised, variant: Variant) -> tuple[dict[str, Field], int]:
    groups, channels = window.groups, window.written[0] // window.groups
    flat = quantised.weights.reshape(groups, channels, -1)
    even = channels + channels % 2
    if variant == "dsp" and _in_threes(window):
        flat = _threes(flat)
    depth = flat.shape[2]
    if variant == "dsp":
        depth += -depth % 4
    weights: Array = np.zeros((groups, even, depth), np.int8)
    weights[:, :channels, : flat.shape[2]] = flat
    if variant == "dsp":  # two channels' words beside each other, bytes in the order of SXTB16
        fours = weights.reshape(groups, even // 2, 2, depth // 4, 4)[..., [0, 2, 1, 3]]
        weights = fours.transpose(0, 1, 3, 2, 4)
    else:
        weights = weights.reshape(groups, even // 2, 2, depth).transpose(0, 1, 3, 2)
    biases, scales = np.zeros((groups, even), np.int32), np.zeros((groups, even), np.float32)
    biases[:, :channels] = quantised.folded.reshape(groups, channels)
    scales[:, :channels] = quantised.scales.reshape(groups, channels)
    fields: dict[str, Field] = {
        "weights": weights.reshape(-1),
        "biases": biases.reshape(-1),
        "scales": scales.reshape(-1),
        "weights_step": even * depth,
        "channels_step": even,
        "depth": depth,
        "by_rows": int(_by_rows(window, even)),
    }
    each = 4 if variant == "scalar" else 8  # words of four pixels, and what they become
    return fields, each * depth + ALIGNMENT - 1


def _dense_helium(window: Window, quantised: Quantised) -> tuple[dict[str, Field], int] | None:
    """Return the fields and scratch; None where the table of a window's places would need more than 16 and 8 bits."""
    taps, plane, inputs = prod(window.kernel), window.read[1] * window.read[2], window.read[0] // window.groups
    strip = min(inputs, ((1 << 16) - 1) // plane, max(8, 64 // taps))
    if not strip or max(window.reach) > 255:
        return None
    channels = window.written[0] // window.groups
    flat = quantised.weights.reshape(len(quantised.weights), -1)
    parts = [flat[:, at : at + strip * taps] for at in range(0, flat.shape[1], strip * taps)]
    ends = [np.zeros((len(flat), -part.shape[1] % 8), np.int8) for part in parts[:-1]]
    pairs = zip(parts[:-1], ends, strict=True)
    weights = np.concatenate([*(np.concatenate(pair, axis=1) for pair in pairs), parts[-1]], axis=1)
    depth, places = weights.shape[1], strip * taps + -strip * taps % 8
    fields: dict[str, Field] = {
        "weights": weights.reshape(-1),
        "biases": quantised.folded.astype(np.int32),
        "scales": quantised.scales,
        "weights_step": channels * depth,
        "channels_step": channels,
        "depth": depth,
        "strip": strip,
        "row_step": places,
    }
    return fields, 64 * -(-depth // 16) + 4 * places + ALIGNMENT - 1


def _in_threes(window: Window) -> bool:
    """Whether windows are three wide and read by words: four of them at once, in pairs of values."""
    channels = window.written[0] // window.groups
    return window.kernel[1] == 3 and window.dilation[1] == 1 and _by_rows(window, channels + channels % 2)


def _threes(weights: Array) -> Array:
    """Return weights (..., rows of three) as pairs: first and third values of two rows, then both second ones."""
    rows = weights.reshape(*weights.shape[:2], -1, 3)
    together = rows.shape[2] // 2 * 2
    twos = rows[:, :, :together].reshape(*weights.shape[:2], -1, 6)[..., [0, 2, 3, 5, 1, 4]]
    last = rows[:, :, together:].reshape(*weights.shape[:2], -1)[..., [0, 2, 1] if together < rows.shape[2] else []]
    made: Array = np.concatenate([twos.reshape(*weights.shape[:2], -1), last], axis=2)
    return made


def _by_rows(window: Window, channels: int) -> bool:
    """Whether packing four neighbours of a row is cheaper than packing pixel by pixel, ragged ends included.

    In instructions for each value of a window: about 3 in rows and 8 alone, and 4 for each channel of a block.
    """
    if window.stride[1] > 2 or window.read[2] < 4:
        return False
    height, width = window.written[1:]
    return (
        height * -(-width // 4) * (12 + 4 * channels)
        <= 32 * height * width / 4 + -(-height * width // 4) * 4 * channels
    )


def linear(node: str, x: str, y: str, rows: int, quantised: Quantised, variant: Variant) -> Layer:
    """Return a fully connected layer; weights (outputs, inputs)."""
    weights = quantised.weights.reshape(len(quantised.weights), -1)
    outputs, inputs = weights.shape
    fields: dict[str, Field] = {
        "weights": packed_rows(weights, variant),
        "biases": quantised.folded.astype(np.int32),
        "scales": quantised.scales,
        "rows": rows,
        "inputs": inputs,
        "outputs": outputs,
        "y_zero": quantised.y_zero,
    }
    lags = {x: Lag(outputs - 1, APART.after)} if rows == 1 else {}
    return Layer(node, "connect", "linear", (x,), y, fields, lags, 0, quantised.scales, quantised.bound)


def quantised(weights: Array, zero: Array, biases: Array | None, scales: Array, x_zero: int, y_zero: int) -> Quantised:
    """Return weights with their numbers.

    Raises:
        ToolchainError: weights with a zero point: they would need nine bits.
    """
    if np.any(zero):
        raise ToolchainError("int8 weights should have the zero point 0, as onnxruntime's quantiser gives them.")
    count = len(weights)
    found = np.zeros(count, np.int32) if biases is None else np.broadcast_to(biases.reshape(-1), count)
    return Quantised(weights, found, np.broadcast_to(scales.reshape(-1), count).copy(), x_zero, y_zero)
