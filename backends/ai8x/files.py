"""What ai8xize reads: the description of a network, its quantised checkpoint and a sample input."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import yaml

from backends.ai8x.integers import UNIT, IntegerNetwork
from backends.ai8x.network import Layer
from backends.ai8x.placement import Placement

ARCH = "automcu"  # must be the same in description and checkpoint
NAMES = DESCRIPTION, CHECKPOINT, SAMPLE = "network.yaml", "network.pth.tar", "sample.npy"


def write(folder: Path, network: IntegerNetwork, placement: Placement, sample: npt.NDArray[np.int8]) -> None:
    """Write the three files; `sample` is one input (channels, rows, columns)."""
    layers = [_entry(at, layer, placement) for at, layer in enumerate(network.layers)]
    described = {"arch": ARCH, "dataset": "sample", "layers": layers}
    (folder / DESCRIPTION).write_text("---\n" + yaml.safe_dump(described, sort_keys=False))
    state: dict[str, torch.Tensor] = {}  # in the order of the layers, which is all that ties them together
    for at, (layer, values) in enumerate(zip(network.layers, network.values, strict=True)):
        if values.weights is None:
            continue
        weights = values.weights.reshape(len(values.weights), -1) if layer.flatten else values.weights
        state[f"layer{at}.output_shift"] = torch.tensor([float(values.shift)])
        state[f"layer{at}.weight_bits"] = torch.tensor([8.0])
        state[weight_key(at)] = torch.from_numpy(weights.astype(np.float32))
        if values.biases is not None:
            state[f"layer{at}.op.bias"] = torch.from_numpy((values.biases * UNIT).astype(np.float32))
    torch.save({"epoch": 0, "arch": ARCH, "state_dict": state}, folder / CHECKPOINT)
    np.save(folder / SAMPLE, sample.astype(np.int64), allow_pickle=False)  # it insists on int64


def _entry(at: int, layer: Layer, placement: Placement) -> dict[str, Any]:
    """Return a layer of the description; README.md of ai8x-synthesis, "Per-Layer Configuration", has the keys."""
    entry: dict[str, Any] = {
        "in_sequences": list(layer.inputs),
        "in_offset": placement.in_offsets[at],
        "out_offset": placement.out_offsets[at],
        "processors": f"{placement.reads[at]:#018x}",
        "output_processors": f"{placement.writes[at]:#018x}",
    }
    if at == 0:
        entry["data_format"] = "HWC"
        del entry["in_sequences"]
    if len(layer.inputs) > 1:
        entry["eltwise"] = "add"
    if layer.pool is not None:
        entry["avg_pool" if layer.pool.average else "max_pool"] = list(layer.pool.window)
        entry["pool_stride"] = layer.pool.stride
    if layer.interleaved:
        entry["write_gap"] = 1
    if layer.weights == "none":
        return entry | {"op": "passthrough"}
    if layer.flatten:
        entry |= {"op": "mlp", "flatten": True, "in_channels": math.prod(layer.in_shape)}
    else:
        entry |= {"op": "conv2d", "kernel_size": f"{layer.kernel}x{layer.kernel}", "pad": layer.padding}
    if layer.groups > 1:
        entry["groups"] = layer.groups
    width = {"output_width": 32} if layer.wide else {}
    return entry | {"activate": "ReLU" if layer.relu else "None", "quantization": 8, **width}


def weight_key(at: int) -> str:
    """Return the checkpoint's key of a layer's weights."""
    return f"layer{at}.op.weight"
