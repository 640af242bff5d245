"""Writes net.pte from an int8 graph, in the environment of backend `executorch`, and what it answers to some inputs.

    python write_pte.py FOLDER CORE   reads graph.json, constants.npz, probe.npy; writes net.pte, pte.json, answers.int8

The graph becomes a torch module that dequantises, computes and quantises with the scales that it came with: what
ExecuTorch's own quantiser would leave, so that its Cortex-M passes turn each such triple into a call of CMSIS-NN. What
they leave alone runs on portable kernels. The answers come from the kernels' Python twins: no Arm code runs here.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from executorch.backends.arm.common.annotation_meta import ArmAnnotationInfo  # type: ignore[import-not-found]
from executorch.backends.cortex_m.edge_compile_config import (  # type: ignore[import-not-found]
    cortex_m_edge_compile_config,
)
from executorch.backends.cortex_m.passes.cortex_m_pass_manager import (  # type: ignore[import-not-found]
    CortexMPassManager,
)
from executorch.backends.cortex_m.passes.passes_utils import is_channel_broadcast  # type: ignore[import-not-found]
from executorch.backends.cortex_m.target_config import CortexMTargetConfig  # type: ignore[import-not-found]
from executorch.exir import to_edge_transform_and_lower  # type: ignore[import-not-found]
from executorch.exir.schema import KernelCall  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.nn import functional

Q = torch.ops.quantized_decomposed
ATEN = torch.ops.aten
INT8 = (-128, 127, torch.int8)
INT32 = (torch.iinfo(torch.int32).min, torch.iinfo(torch.int32).max, torch.int32)

Data = dict[str, Any]


class Net(nn.Module):
    """Runs an int8 graph on one int8 image (1, C, H, W); a method for each kind of node computes it in float."""

    def __init__(self, graph: Data, constants: Data) -> None:
        super().__init__()
        self.graph, self.tensors = graph, graph["tensors"]
        self.names: dict[Any, str] = {}
        for name, values in constants.items():
            self.keep(name, torch.from_numpy(values))
        for shape in {_channels(tensor["shape"]): None for tensor in self.tensors.values()}:
            self.keep(shape, torch.ones(shape, dtype=torch.int8))
        for node in graph["nodes"]:
            if node["kind"] in ("conv", "linear"):
                self.complete(node)

    def keep(self, key: Any, values: Tensor) -> None:
        """Make a constant part of the module, under a name that torch takes; each key once."""
        self.names[key] = f"constant{len(self.names)}"
        self.register_buffer(self.names[key], values)

    def constant(self, key: Any) -> Tensor:
        """Return a constant."""
        found: Tensor = getattr(self, self.names[key])
        return found

    def complete(self, node: Data) -> None:
        """Add what ONNX leaves out of weights: the biases' scales, and zero points, which are all 0."""
        output = node["output"]
        scales, weight = self.constant(f"{output}/scales"), self.constant(f"{output}/weight")
        self.keep(f"{output}/bias_scales", scales * self.tensors[node["inputs"][0]]["scale"])
        self.keep(f"{output}/zeros", torch.zeros(len(scales), dtype=torch.int64))
        self.keep(f"{output}/kernel", weight if weight.ndim == 4 else weight[:, :, None, None])

    def forward(self, image: Tensor) -> Tensor:
        values: dict[str, Tensor] = {self.graph["input"]: image}
        for node in self.graph["nodes"]:
            inputs = [values[name] for name in node["inputs"]]
            special = getattr(self, f"int8_{node['kind']}", None)
            values[node["output"]] = special(node, *inputs) if special else self.quantised(node, inputs)
        result: Tensor = values[self.graph["output"]]
        return result

    def quantised(self, node: Data, inputs: list[Tensor]) -> Any:
        """Return a node's output, worked out in float between dequantising and quantising."""
        real = [self.dequantise(name, value) for name, value in zip(node["inputs"], inputs, strict=True)]
        return self.quantise(node["output"], getattr(self, node["kind"])(node, *real))

    def dequantise(self, name: str, value: Tensor) -> Any:
        """Return an activation as real values."""
        return Q.dequantize_per_tensor(value, self.tensors[name]["scale"], self.tensors[name]["zero_point"], *INT8)

    def quantise(self, name: str, value: Tensor) -> Any:
        """Return an activation as int8."""
        return Q.quantize_per_tensor(value, self.tensors[name]["scale"], self.tensors[name]["zero_point"], *INT8)

    def rescale(self, name: str, value: Tensor, target: str) -> Any:
        """Return an activation on the scale of another: times one, a product that CMSIS-NN rescales in int8."""
        if all(self.tensors[name][key] == self.tensors[target][key] for key in ("scale", "zero_point")):
            return value
        one = Q.dequantize_per_tensor(self.constant(_channels(value.shape)), 1.0, 0, *INT8)
        return self.quantise(target, self.dequantise(name, value) * one)

    def weights(self, node: Data) -> tuple[Any, Any]:
        """Return kernel and bias as real values, with a scale for each output channel."""
        kernel, scales, bias, bias_scales, zeros = (
            self.constant(f"{node['output']}/{part}") for part in ("kernel", "scales", "bias", "bias_scales", "zeros")
        )
        return (
            Q.dequantize_per_channel(kernel, scales, zeros, 0, -127, 127, torch.int8),
            Q.dequantize_per_channel(bias, bias_scales, zeros, 0, *INT32),
        )

    def conv(self, node: Data, x: Tensor) -> Tensor:
        options, pads = node["options"], _symmetric(node)
        if options["dilations"] != [1, 1]:
            sys.exit(f"{node['name']}: the kernel of a dilated convolution has no Python twin to check it by.")
        return functional.conv2d(x, *self.weights(node), options["strides"], pads, groups=options["group"])

    def int8_linear(self, node: Data, x: Tensor) -> Any:
        """Return a convolution of one pixel: ExecuTorch's linear has no scale for each channel."""
        real = self.dequantise(node["inputs"][0], x.view(1, -1, 1, 1))
        return self.quantise(node["output"], functional.conv2d(real, *self.weights(node))).view(1, -1)

    def int8_average_pool(self, node: Data, x: Tensor) -> Any:
        """Return the pool on its input's scale, rescaled: CMSIS-NN's does not rescale."""
        (name,), options, pads = node["inputs"], node["options"], _symmetric(node)
        if options["dilations"] != [1, 1]:
            sys.exit(f"{node['name']}: torch has no dilated average pooling.")
        counts = any(pads) and bool(options["count_include_pad"])
        real = self.dequantise(name, x)
        pooled = functional.avg_pool2d(real, options["kernel_shape"], options["strides"], pads, False, counts)
        return self.rescale(name, self.quantise(name, pooled), node["output"])

    def int8_concat(self, node: Data, *parts: Tensor) -> Tensor:
        """Return the parts on one scale, side by side."""
        named = zip(node["inputs"], parts, strict=True)
        return torch.cat([self.rescale(name, part, node["output"]) for name, part in named], node["options"]["axis"])

    def int8_reshape(self, node: Data, x: Tensor) -> Tensor:
        return _channels_last(x.reshape(self.tensors[node["output"]]["shape"]))

    def int8_transpose(self, node: Data, x: Tensor) -> Tensor:
        return _channels_last(x.permute(node["options"]["perm"]))

    def max_pool(self, node: Data, x: Tensor) -> Tensor:
        options, pads = node["options"], _symmetric(node)
        return functional.max_pool2d(x, options["kernel_shape"], options["strides"], pads, options["dilations"])

    def resize(self, node: Data, x: Tensor) -> Tensor:
        return functional.interpolate(x, self.tensors[node["output"]]["shape"][2:], mode="nearest")

    def add(self, node: Data, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def mul(self, node: Data, x: Tensor, y: Tensor) -> Tensor:
        return x * y

    def sigmoid(self, node: Data, x: Tensor) -> Tensor:
        return x.sigmoid()

    def leaky_relu(self, node: Data, x: Tensor) -> Tensor:
        return functional.leaky_relu(x, node["options"]["alpha"])


def _channels(shape: Any) -> tuple[int, ...]:
    """Return the shape of a tensor with one value for each channel."""
    return (1, *shape[1:2], *[1] * (len(shape) - 2))


def _channels_last(value: Tensor) -> Tensor:
    """Return a tensor in the order in memory that CMSIS-NN wants of images.

    `to` gives one channel its strides as well; `contiguous` would not, and the passes go by strides.
    """
    return value.to(memory_format=torch.channels_last) if value.ndim == 4 else value


def _symmetric(node: Data) -> list[int]:
    """Return the padding of height and width, equal on both sides."""
    pads: list[int] = node["options"]["pads"]
    if pads[:2] != pads[2:]:
        sys.exit(f"{node['name']}: torch pads both sides alike, found {pads}.")
    return pads[:2]


def annotate(exported: Any) -> None:
    """Mark what CMSIS-NN has a kernel for, as ExecuTorch's quantiser would: the passes touch nothing else."""
    always = (ATEN.conv2d.default, ATEN.avg_pool2d.default, ATEN.max_pool2d.default, ATEN.sigmoid.default)
    for node in exported.graph.nodes:
        if node.target in (ATEN.add.Tensor, ATEN.mul.Tensor):
            left, right = (argument.meta["val"] for argument in node.args)
            known = left.shape == right.shape or is_channel_broadcast(left, right)
        else:
            known = node.target in always
        if known:
            node.meta.setdefault("custom", {})[ArmAnnotationInfo.CUSTOM_META_KEY] = ArmAnnotationInfo(quantized=True)


def main(folder: Path, core: str) -> None:
    """Read, lower, answer, write."""
    with np.load(folder / "constants.npz") as constants:
        net = Net(json.loads((folder / "graph.json").read_text()), dict(constants)).eval()
    probe = [_channels_last(image[None]) for image in torch.from_numpy(np.load(folder / "probe.npy"))]
    exported = torch.export.export(net, (probe[0],))
    annotate(exported)
    edge = to_edge_transform_and_lower(exported, compile_config=cortex_m_edge_compile_config())
    target = CortexMTargetConfig.from_target_string(core)
    lowered = CortexMPassManager(edge.exported_program(), target_config=target).transform()
    edge._edge_programs["forward"] = lowered  # as ExecuTorch's own Cortex-M compiler puts it back
    module = lowered.module()
    np.concatenate([module(image).numpy() for image in probe]).tofile(folder / "answers.int8")
    program = edge.to_executorch()
    (folder / "net.pte").write_bytes(program.buffer)
    plan = program.executorch_program.execution_plan[0]
    calls = [instruction.instr_args for chain in plan.chains for instruction in chain.instructions]
    kernels = Counter(plan.operators[call.op_index].name for call in calls if isinstance(call, KernelCall))
    report = {"kernels": kernels, "planned_bytes": sum(plan.non_const_buffer_sizes)}
    (folder / "pte.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
