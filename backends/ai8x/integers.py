"""The integer network that a MAX78000 or MAX78002 computes: how it is made from a float one, and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import INPUT_SCALE
from automcu_ray.networks.graph import NETWORK_INPUT
from backends.ai8x.float_graph import Source
from backends.ai8x.network import Layer, Pool

Integers = npt.NDArray[np.int64]
UNIT = 128  # an accumulator counts in 1/128 of its output; biases are added in this unit
MAX_SHIFT = 15
BATCH = 64  # images at a time: 64 maps of 32x32 for each take 34 MB
IDENTITY = 64  # with a shift of 1 an identity convolution gives 64 * 2 / 128 = 1 times its input


@dataclass(frozen=True)
class IntegerLayer:
    """The values of one layer: output = clip(floor(0.5 + (weights * input + 128 * biases) * 2^shift / 128)).

    Attributes:
        weights: int8 values (outputs, inputs / groups, rows, columns); None where data pass through.
        biases: int8 values (outputs,); None where there are none.
        shift: the layer's `output_shift`; a wide output is neither shifted nor clipped.
    """

    weights: Integers | None = None
    biases: Integers | None = None
    shift: int = 0


@dataclass(frozen=True)
class IntegerNetwork:
    """Layers with their values. A float logit is its output times `output_scale`."""

    layers: tuple[Layer, ...]
    values: tuple[IntegerLayer, ...]
    output_scale: float

    def run(self, inputs: npt.NDArray[np.int8]) -> Integers:
        """Return the outputs (N, classes) for inputs (N, channels, rows, columns), as the hardware computes them.

        Rounding follows ai8xize's simulation (izer/compute.py, izer/simulate.py); averages are rounded, which is its
        option --avg-pool-rounding.
        """
        outputs = []
        for start in range(0, len(inputs), BATCH):
            results = {NETWORK_INPUT: inputs[start : start + BATCH].astype(np.int64)}
            for at, (layer, values) in enumerate(zip(self.layers, self.values, strict=True)):
                results[at] = _run(layer, values, [results[index] for index in layer.inputs])
            outputs.append(results[len(self.layers) - 1])
        return np.concatenate(outputs).reshape(len(inputs), -1)

    def accuracy(self, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64]) -> float:
        """Return the share of images (N, C, H, W) whose largest output is the label's; the first one wins a tie."""
        outputs = self.run((images.astype(np.int16) - 128).astype(np.int8))
        return float(np.mean(outputs.argmax(axis=1) == labels))


def quantise(layers: Sequence[Layer], source: Source) -> IntegerNetwork:
    """Return the integer network that computes a float one.

    Every tensor has one scale, so that its largest magnitude over the calibration images is 127; tensors that are
    added, pooled or handed on share one. The hardware scales an output by powers of two only, so the weights take
    what is left: at most half of their range is lost. The image's scale is 1/128.

    Raises:
        ToolchainError: a layer whose scales are too far apart for any shift.
    """
    scales = _scales(layers, source)
    values = []
    for at, layer in enumerate(layers):
        if layer.weights == "own":
            values.append(_weights(layer, source, scales[layer.inputs[0]], scales[at]))
        elif layer.weights == "identity":
            channels = layer.shape[0]
            kernel = (IDENTITY * np.eye(channels, dtype=np.int64)).reshape(channels, channels, 1, 1)
            values.append(IntegerLayer(kernel, None, 1))
        else:
            values.append(IntegerLayer())
    final = layers[-1]
    output_scale = scales[final.inputs[0]] * _weight_scale(final, source, scales[final.inputs[0]])
    return IntegerNetwork(tuple(layers), tuple(values), output_scale)


def _scales(layers: Sequence[Layer], source: Source) -> dict[int, float]:
    """Return the scale of the image and of every layer's output."""
    group = {index: index for index in range(NETWORK_INPUT, len(layers))}
    for at, layer in enumerate(layers):
        handed_on = (at,) if layer.weights != "own" else ()
        for index in (*layer.inputs[1:], *handed_on):
            old, new = group[index], group[layer.inputs[0]]
            group = {i: new if g == old else g for i, g in group.items()}
    scales = {}
    for index, mine in group.items():
        members = [i for i, g in group.items() if g == mine]
        reach = max((source.reach.get(layers[i].name, 0.0) for i in members if i != NETWORK_INPUT), default=0.0)
        scales[index] = INPUT_SCALE if NETWORK_INPUT in members else (reach or 1.0) / 127
    return scales


def _weight_scale(layer: Layer, source: Source, input_scale: float) -> float:
    """Return the finest scale at which weights and biases still are 8-bit values."""
    weights, biases = source.weights[layer.name], source.biases[layer.name]
    largest_bias = float(np.abs(biases).max()) / (UNIT * input_scale)
    return max(float(np.abs(weights).max()), largest_bias) / 127 or 1.0


def _weights(layer: Layer, source: Source, input_scale: float, output_scale: float) -> IntegerLayer:
    scale, shift = _weight_scale(layer, source, input_scale), 0
    if not layer.wide:
        steps = [output_scale * 2.0**shift / (UNIT * input_scale) for shift in range(-MAX_SHIFT, MAX_SHIFT + 1)]
        if not np.isfinite(scale) or steps[-1] < scale:
            raise ToolchainError(f"{layer.name}: no shift up to 2^{MAX_SHIFT} brings its output into 8 bits.")
        shift, scale = next((i - MAX_SHIFT, step) for i, step in enumerate(steps) if step >= scale)
    weights = np.rint(source.weights[layer.name] / scale).astype(np.int64)
    biases = np.rint(source.biases[layer.name] / (scale * input_scale * UNIT)).astype(np.int64)
    return IntegerLayer(weights.reshape(*weights.shape, *(1,) * (4 - weights.ndim)), biases, shift)


def _run(layer: Layer, values: IntegerLayer, inputs: list[Integers]) -> Integers:
    pooled = [_pool(data, layer.pool) if layer.pool else data for data in inputs]
    data = pooled[0] if len(pooled) == 1 else np.clip(sum(pooled), -128, 127)
    if values.weights is None:
        return data
    if layer.flatten:
        data = data.reshape(len(data), -1, 1, 1)
    # exact: sums stay far below 2^53, up to which float64 holds every integer
    maps, kernels = (torch.from_numpy(array.astype(np.float64)) for array in (data, values.weights))
    convolved = torch.nn.functional.conv2d(maps, kernels, padding=layer.padding, groups=layer.groups)
    sums: Integers = convolved.numpy().astype(np.int64)
    if values.biases is not None:
        sums += UNIT * values.biases.reshape(-1, 1, 1)
    if layer.wide:
        return sums
    result = np.clip(np.floor(0.5 + sums / (UNIT / 2.0**values.shift)), -128, 127).astype(np.int64)
    return np.maximum(result, 0) if layer.relu else result


def _pool(data: Integers, pool: Pool) -> Integers:
    windows = np.lib.stride_tricks.sliding_window_view(data, pool.window, axis=(2, 3))
    windows = windows[:, :, :: pool.stride, :: pool.stride]
    if not pool.average:
        largest: Integers = windows.max(axis=(4, 5))
        return largest
    means = windows.mean(axis=(4, 5))
    rounded: Integers = np.where(means < 0, np.ceil(means - 0.5), np.floor(means + 0.5)).astype(np.int64)
    return rounded
