"""Convolutions and linear layers between pairs: their weights around zero, their biases in units of the products."""

import functools
from dataclasses import replace

import numpy as np
from onnx import NodeProto

from automcu_ray.deploy.graph_editor import options_of
from automcu_ray.deploy.quantised.reader import Reader
from automcu_ray.deploy.quantised.values import Array, Grid, Held, Pending, Real, Weighted, along

_INT32 = 2**31 - 1
_UNIT_ERROR = 1e-5  # between a bias's scale and that of the products, both float32


def _weights(reader: Reader, node: NodeProto, axis: int) -> tuple[Array, Array]:
    """Return constant weights, around zero, and a scale for each place along an axis of them."""
    held = reader.values.get(node.input[1])
    if not isinstance(held, Held):
        raise reader.error(node, "both of its operands are worked out; constant weights are wanted")
    if held.integers is None or held.scales is None or held.zeros is None:
        raise reader.error(node, "its weights are float in the file; quantise them, too")
    if held.integers.dtype not in (np.int8, np.uint8):
        raise reader.error(node, f"its weights are {held.integers.dtype}: int8 or uint8 is wanted")
    if held.scales.size > 1 and held.axis != axis:
        raise reader.error(node, "its weights have scales along another axis than the output channels'")
    centred = held.integers.astype(np.int64) - along(held.zeros, held.axis, held.integers)
    if centred.size and (centred.min() < -128 or centred.max() > 127):
        raise reader.error(
            node, "its weights need nine bits, for they are not symmetric around zero; quantise weights symmetrically"
        )
    return centred.astype(np.int8), np.broadcast_to(held.scales.reshape(-1), centred.shape[axis])


def _bias(reader: Reader, node: NodeProto, products: Array) -> tuple[Array, Array | None]:
    """Return a bias as real values, and as integers where it counts products already."""
    name = node.input[2] if len(node.input) > 2 else ""
    if not name:
        return np.zeros(products.size), np.zeros(products.size, np.int64)
    held = reader.values.get(name)
    if not isinstance(held, Held):
        raise reader.error(node, "its bias is worked out; a constant one is wanted")
    real = np.broadcast_to(held.real.reshape(-1).astype(np.float64), products.size)
    if held.integers is not None and held.integers.dtype == np.int32 and held.scales is not None:
        scales = np.broadcast_to(held.scales.reshape(-1), products.size)
        if np.allclose(scales, products, rtol=_UNIT_ERROR, atol=0) and held.zeros is not None and not held.zeros.any():
            return real, np.broadcast_to(held.integers.reshape(-1).astype(np.int64), products.size)
    return real, None


def _counted(reader: Reader, made: Weighted) -> tuple[Array, Array, Array]:
    """Return weights, scales (above zero) and int32 biases."""
    weights, scales = made.weights, made.scales.astype(np.float32)
    negative = scales < 0
    if negative.any():
        if (weights[negative] == -128).any():
            raise reader.error(made.node, "a negative factor on a weight of -128 needs nine bits")
        weights = np.where(negative.reshape(-1, *[1] * (weights.ndim - 1)), -weights, weights)
        scales = np.abs(scales)
    if not (np.isfinite(scales).all() and (scales > 0).all()):
        raise reader.error(made.node, "scales of weights above zero are wanted")
    exact = made.exact
    if exact is None:
        largest = int(np.abs(weights.astype(np.int64)).max(initial=1))
        finer = 2 ** max(
            0, (127 // max(1, largest)).bit_length() - 1
        )  # of few bits: the bias's unit need not be coarse
        weights, scales = (weights * np.int8(finer)).astype(np.int8), scales / np.float32(finer)
        exact = np.rint(made.bias / (np.float64(made.x.grid.scale) * scales))
        reader.notes[f"bias rounded to int32 ({made.node.name})"] += 1
    if (np.abs(exact) > _INT32).any():
        raise reader.error(made.node, "its bias is beyond int32 in units of the products")
    return weights, scales, exact.astype(np.int32)


def onto_weights(reader: Reader, node: NodeProto) -> bool:
    """Take a constant sum or product onto a convolution or linear layer before it; return whether it is one."""
    names = reader.data(node)
    before = reader.values[names[0]] if len(names) == 1 and len(node.input) == 2 else None
    if not isinstance(before, Pending) or before.weighted is None or before.after:
        return False
    constant = next(array for name in node.input if (array := reader.held(name)) is not None)
    values = _by_output(constant.astype(np.float64), before.weighted, len(reader.editor.shapes.get(names[0], ())))
    if values is None:
        return False
    ones, zeros = np.ones_like(values), np.zeros_like(values)
    _affine(reader, node, before, *((ones, values) if node.op_type == "Add" else (values, zeros)))
    return True


def _by_output(constant: Array, made: Weighted, rank: int) -> Array | None:
    """Return a constant as one number for each output; None where it differs from place to place."""
    outputs = len(made.weights)
    behind = rank - 2 if made.node.op_type == "Conv" else 0
    shape = constant.shape
    if constant.size == 1 or (
        constant.size == outputs and (*[1] * len(shape), *shape)[-behind - 1 :] == (outputs, *[1] * behind)
    ):
        return np.broadcast_to(constant.reshape(-1), outputs)
    return None


def norm(reader: Reader, node: NodeProto) -> None:
    """A BatchNorm behind a convolution or linear layer goes into its scales and bias: no weight changes."""
    before = reader.values[node.input[0]]
    numbers = [reader.held(name) for name in node.input[1:5]]
    if not isinstance(before, Pending) or before.weighted is None or before.after or any(n is None for n in numbers):
        raise reader.error(node, "it should stand right behind a convolution or linear layer")
    gamma, beta, mean, variance = (np.asarray(number, np.float64) for number in numbers)
    slope = gamma / np.sqrt(variance + options_of(node).get("epsilon", 1e-5))
    _affine(reader, node, before, slope, beta - mean * slope)


def _affine(reader: Reader, node: NodeProto, before: Pending, slope: Array, offset: Array) -> None:
    assert before.weighted is not None
    one = before.weighted
    made = replace(one, scales=one.scales * slope, bias=one.bias * slope + offset, exact=None)
    reader.values[node.output[0]] = _pending(reader, before.node, made)


def _pending(reader: Reader, node: NodeProto, made: Weighted) -> Pending:
    write = _write_conv if node.op_type == "Conv" else _write_linear
    return Pending(node.op_type, node, functools.partial(write, reader, made), made)


def convolution(reader: Reader, node: NodeProto) -> None:
    """Read a convolution with constant weights."""
    x = reader.real(node.input[0], node)
    weights, scales = _weights(reader, node, 0)
    reader.values[node.output[0]] = _pending(
        reader, node, Weighted(node, x, weights, scales, *_bias(reader, node, x.grid.scale * scales))
    )


def _write_conv(reader: Reader, made: Weighted, grid: Grid) -> str:
    to, node = reader.to, made.node
    weights, scales, biases = _counted(reader, made)
    near, options = f"{node.output[0]}_{len(to.nodes)}", options_of(node)
    if any(made.x.pads):
        if options.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
            raise reader.error(node, "zeros around its input, and auto_pad, are one too many")
        options.pop("auto_pad", None)
        given = options.get("pads") or [0] * len(made.x.pads)
        options["pads"] = [a + b for a, b in zip(given, made.x.pads, strict=True)]
    numbers = [
        to.constant(f"{near}_weight", weights),
        to.constant(f"{near}_weight_scale", scales),
        to.constant(f"{near}_weight_zero", np.zeros(scales.shape, np.int8)),
    ]
    names = [*to.operand(made.x), *numbers, *to.grid(near, grid), to.constant(f"{near}_bias", biases)]
    return to.add("QLinearConv", names, node.output[0], f"{node.name}_quant", **options)


def linear(reader: Reader, node: NodeProto) -> None:
    """A Gemm, or a product with a matrix."""
    options, x = options_of(node), reader.real(node.input[0], node)
    if options.get("transA", 0) or options.get("alpha", 1.0) != 1 or options.get("beta", 1.0) != 1:
        raise reader.error(node, "no transposed input and no factors are wanted")
    held, turned = reader.held(node.input[1]), bool(options.get("transB", 0))
    if held is not None and held.ndim != 2:
        raise reader.error(node, "a matrix of weights is wanted")
    weights, scales = _weights(reader, node, 0 if turned else 1)
    made = Weighted(node, x, weights if turned else weights.T, scales, *_bias(reader, node, x.grid.scale * scales))
    reader.values[node.output[0]] = _pending(reader, node, made)


def _write_linear(reader: Reader, made: Weighted, grid: Grid) -> str:
    to, node, x = reader.to, made.node, made.x
    weights, scales, biases = _counted(reader, made)
    near, shape = f"{node.output[0]}_{len(to.nodes)}", reader.editor.shapes.get(node.input[0], ())
    outputs, inputs = weights.shape
    if len(shape) > 2:  # rows of several tokens
        flat = to.constant(f"{near}_rows", np.array([-1, inputs], np.int64))
        x = Real(to.add("Reshape", [x.name, flat], near, f"{node.name}_rows"), x.grid)
    numbers = [
        to.constant(f"{near}_weight", weights),
        to.constant(f"{near}_weight_scale", scales),
        to.constant(f"{near}_weight_zero", np.zeros(scales.shape, np.int8)),
        to.constant(f"{near}_bias", biases),
    ]
    name = to.add("QGemm", [*to.operand(x), *numbers, *to.grid(near, grid)], near, f"{node.name}_quant", transB=1)
    if len(shape) > 2:
        sizes = to.constant(f"{near}_sizes", np.array([-1, *shape[1:-1], outputs], np.int64))
        name = to.add("Reshape", [name, sizes], near, f"{node.name}_sizes")
    return name
