"""Whole int8 networks by our kernels, by calls of CMSIS-NN, and by emx-onnx-cgen: instructions for one image in QEMU.

    python benchmarks/bench_peers.py                         # every core, about half an hour
    python benchmarks/bench_peers.py cortex-m4f resnet8      # one core, one network

MLPerf Tiny's four networks and winners of searches (digits, CIFAR-10), all with random weights. CMSIS-NN works
channels last, on buffers of its own; its mean has no scale, which the layer after it takes up. `off` says by how many
of 256 steps its outputs differ from onnxruntime's on the mean: ours do not. What it has no function for is left out.
"""

import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_kernels import MACHINES, ROOM, cmsis_library, run_c
from bench_mlperf_tiny import NETWORKS
from bench_networks import WINNERS, networks
from torch import nn

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import DeployedNetwork, deploy
from automcu_ray.deploy.tracing import INPUT, OUTPUT
from automcu_ray.problem.target import Core
from backends.c_qemu.cgen import generate
from backends.c_qemu.emx import generate_float
from backends.c_qemu.form import Form
from backends.c_qemu.kernels.layer import Layer
from backends.c_qemu.kernels.reading import read

ROUND = "{-128,127}"


class Calls:
    """C that computes layers by CMSIS-NN; `pooled` has the scale and zero points that a mean leaves to its reader."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.texts = ['#include <string.h>\n#include "arm_nnfunctions.h"']
        self.texts.append("static int16_t room[200000] __attribute__((aligned(8)));")
        self.body = ["cmsis_nn_context ctx = {room, sizeof room};"]
        self.places = {INPUT: "(const int8_t *)image", OUTPUT: "(int8_t *)logits"}
        self.sizes, self.pooled = sizes, dict[str, tuple[float, int, int]]()

    def place(self, tensor: str) -> str:
        """Return the C of where a tensor lies."""
        if tensor not in self.places:
            self.places[tensor] = f"tensor_{len(self.places)}"
            self.texts.append(f"static int8_t {self.places[tensor]}[{self.sizes[tensor]}] __attribute__((aligned(8)));")
        return self.places[tensor]

    def array(self, kind: str, values: Any) -> str:
        """Return the name of a constant array."""
        name = f"array_{len(self.texts)}"
        numbers = ",".join(str(int(value)) for value in np.asarray(values).ravel())
        self.texts.append(f"static const {kind} {name}[] __attribute__((aligned(4))) = {{{numbers}}};")
        return name

    def factors(self, scales: Any) -> tuple[str, str]:
        """Return the names of multipliers of 31 bits and of shifts."""
        parts = [math.frexp(float(scale)) for scale in np.asarray(scales).ravel()]
        multipliers = [min(round(part * 2**31), 2**31 - 1) for part, _ in parts]
        return self.array("int32_t", multipliers), self.array("int32_t", [shift for _, shift in parts])

    def add(self, layer: Layer) -> None:
        """Write the calls for a layer.

        Raises:
            ToolchainError: CMSIS-NN has no function for it.
        """
        if layer.copies:
            for copy in layer.copies:
                self.places[copy.target] = f"{self.place(copy.source)} + {copy.start}"
                if copy.source in self.pooled:
                    self.pooled[copy.target] = self.pooled[copy.source]
            return
        layer = layer.small or layer
        made = {
            "convolve_narrow": self._convolution,
            "connect": self._linear,
            "add": self._sum,
            "global_pool": self._mean,
        }.get(layer.kernel)
        if made is None:
            raise ToolchainError(f"CMSIS-NN has no {layer.kernel}")
        x, y = ", ".join(map(self.place, layer.reads)), self.place(layer.write)
        self.body.append("{" + made(layer, x, y) + "}")

    def _convolution(self, layer: Layer, x: str, y: str) -> str:
        f: Any = layer.fields
        channels, depth = f["groups"] * f["out_channels"], f["in_channels"] * f["kernel_h"] * f["kernel_w"]
        weights = f["weights"].reshape(channels, f["in_channels"], f["kernel_h"], f["kernel_w"])
        biases = f["biases"] + f["x_zero"] * weights.reshape(channels, depth).astype(np.int64).sum(axis=1)
        deep = f["in_channels"] == 1 and f["groups"] > 1
        order = (1, 2, 3, 0) if deep else (0, 2, 3, 1)
        names = (
            self.array("int8_t", weights.transpose(order)),
            self.array("int32_t", biases),
            *self.factors(f["scales"]),
        )
        given = f"{{1,{f['in_h']},{f['in_w']},{f['groups'] * f['in_channels']}}}"
        size = f"{f['kernel_h']},{f['kernel_w']}"
        window = f"{{1,{size},{channels}}}" if deep else f"{{{channels},{size},{f['in_channels']}}}"
        steps = (
            f"{{{f['stride_w']},{f['stride_h']}}},{{{f['pad_left']},{f['pad_top']}}},"
            f"{{{f['dilation_w']},{f['dilation_h']}}}"
        )
        kind = "dw_conv" if deep else "conv"
        several = f"{f['out_channels']}," if deep else ""
        call = "arm_depthwise_conv_wrapper_s8" if deep else "arm_convolve_wrapper_s8"
        return f"""
    const cmsis_nn_dims in = {given}, w = {window}, b = {{1,1,1,{channels}}};
    const cmsis_nn_dims out = {{1,{f["out_h"]},{f["out_w"]},{channels}}};
    const cmsis_nn_{kind}_params p = {{{-f["x_zero"]},{f["y_zero"]},{several}{steps},{ROUND}}};
    const cmsis_nn_per_channel_quant_params q = {{(int32_t *){names[2]}, (int32_t *){names[3]}}};
    if ({call}(&ctx, &p, &q, &in, {x}, &w, {names[0]}, &b, {names[1]}, &out, {y})) for (;;) {{}}
"""

    def _linear(self, layer: Layer, x: str, y: str) -> str:
        f: Any = layer.fields
        weights = f["weights"].reshape(f["outputs"], f["inputs"])
        factor, pool_zero, zero = self.pooled.get(layer.reads[0], (1.0, 0, 0))
        sums = weights.astype(np.int64).sum(axis=1)
        biases = np.rint((f["biases"] + zero * sums) / factor) - pool_zero * sums  # they hold the input's zero point
        names = self.array("int8_t", weights), self.array("int32_t", biases), *self.factors(f["scales"] * factor)
        return f"""
    const cmsis_nn_dims in = {{1,1,1,{f["inputs"]}}}, w = {{{f["inputs"]},1,1,{f["outputs"]}}};
    const cmsis_nn_dims b = {{1,1,1,{f["outputs"]}}};
    const cmsis_nn_fc_params p = {{0,0,{f["y_zero"]},{ROUND}}};
    const cmsis_nn_per_channel_quant_params q = {{(int32_t *){names[2]}, (int32_t *){names[3]}}};
    const cmsis_nn_context sums = {{(void *){names[1]}, sizeof {names[1]}}};
    if (arm_fully_connected_per_channel_s8(&sums, &p, &q, &in, {x}, &w, {names[0]}, &b, {names[1]}, &b, {y}))
        for (;;) {{}}
"""

    def _sum(self, layer: Layer, x: str, y: str) -> str:
        f: Any = layer.fields
        twice = 2 * max(f["scale_a"], f["scale_b"])
        parts = [math.frexp(scale) for scale in (f["scale_a"] / twice, f["scale_b"] / twice, twice / (1 << 20))]
        a, b, out = (f"{min(round(part * 2**31), 2**31 - 1)}, {shift}" for part, shift in parts)
        zero, count = round(f["fixed"]), math.prod(f["counts"])
        return f"arm_elementwise_add_s8({x}, 0, {a}, 0, {b}, 20, {y}, {zero}, {out}, -128, 127, {count});"

    def _mean(self, layer: Layer, x: str, y: str) -> str:
        f: Any = layer.fields
        plane, channels = f["in_h"] * f["in_w"], f["channels"]
        self.pooled[layer.write] = f["x_scale"] * plane, f["x_zero"], f["y_zero"]
        return f"""
    const cmsis_nn_dims in = {{1,1,{plane},{channels}}}, w = {{1,1,{plane},1}}, out = {{1,1,1,{channels}}};
    const cmsis_nn_pool_params p = {{{{1,1}},{{0,0}},{ROUND}}};
    if (arm_avgpool_s8(&ctx, &p, &in, {x}, &w, &out, {y})) for (;;) {{}}
"""

    @property
    def source(self) -> str:
        """The C of `net`."""
        body = "\n".join(self.body)
        return "\n".join([*self.texts, f"void net(const void *image, void *logits) {{\n{body}\n}}\n"])


def by_cmsis(deployed: DeployedNetwork) -> str:
    """Return a network as C that calls CMSIS-NN.

    Raises:
        ToolchainError: it has no function for some layer.
    """
    layers, shapes, _ = read(deployed.with_batch_one(), "scalar")
    calls = Calls({name: math.prod(shape) for name, shape in shapes.items()})
    for layer in layers:
        calls.add(layer)
    return calls.source


def every_network() -> Iterator[tuple[str, DeployedNetwork]]:
    """Yield networks by name."""
    for name, (make, shape, _) in NETWORKS.items():
        torch.manual_seed(0)
        network = make().eval()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                nn.init.normal_(module.bias)
        noise = np.random.default_rng(0).integers(0, 256, (16, *shape), dtype=np.uint8)
        yield name, deploy(network, shape, precision="int8", calibration=noise)
    for name in WINNERS:
        yield from networks(name)


def main(arguments: Sequence[str]) -> None:
    """Print a line for each core and network."""
    cores = [core for core in MACHINES if core in arguments] or list(MACHINES)
    wanted = [word for word in arguments if word not in MACHINES]
    torch.set_num_threads(1)
    every = [one for one in every_network() if not wanted or any(word in one[0] for word in wanted)]
    for core in cores:
        print(f"{core}: instructions of ours; code; CMSIS-NN to ours; off; emx-onnx-cgen to ours", flush=True)
        with tempfile.TemporaryDirectory(prefix="automcu-cmsis-") as folder:
            library = cmsis_library(core, Path(folder))
            for name, deployed in every:
                print(f"  {name:20} {line(core, deployed, library)}", flush=True)


def line(core: Core, deployed: DeployedNetwork, library: Path) -> str:
    """Return a network's figures on a core."""
    pictures = np.random.default_rng(1).integers(0, 256, (2, *deployed.input_shape), dtype=np.uint8)
    images, wanted = deployed.encode(pictures), deployed.run(pictures)
    count = deployed.num_classes
    ours, sections = run_c(core, generate(deployed, core, form=Form(arena_bytes=ROOM)).source, count, images)
    assert np.array_equal(ours.outputs, wanted), "ours are onnxruntime's bits"
    emx = run_c(core, generate_float(deployed).source, count, images)[0]
    try:
        last = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
        peer = run_c(core, by_cmsis(deployed), count, last, [library])[0]
        off = float(np.mean(np.abs(peer.outputs.astype(int) - wanted)))
        theirs = f"{peer.instructions / ours.instructions:6.2f} {off:6.2f}"
    except ToolchainError as error:
        theirs = str(error)
    return f"{ours.instructions:10} {sections['.net_code']:6} {theirs} {emx.instructions / ours.instructions:6.1f}"


if __name__ == "__main__":
    main(sys.argv[1:])
