"""Print instructions a multiply-accumulate of our int8 kernels, CMSIS-NN's and emx-onnx-cgen's, by layer, in QEMU.

    python benchmarks/bench_kernels.py                      # every core, about ten minutes
    python benchmarks/bench_kernels.py cortex-m4f --ours    # one core, ours alone, seconds

One layer a network, the same weights and images for all, -O2. `equal` is the share of outputs that are onnxruntime's.
`narrow` is ours where the arena has no room for more. CMSIS-NN is read from ../shared/peers/cmsis-nn and left out where
that is absent; it works channels last. Instructions are counted by QEMU, not cycles.
"""

import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.target import Core, Emulator, McuTarget
from backends.boards.machines import find_machine
from backends.boards.qemu import QemuBoard
from backends.c_qemu import stack
from backends.c_qemu.cgen import generate
from backends.c_qemu.emx import generate_float
from backends.c_qemu.form import Form
from backends.c_qemu.gcc_flags import COMPILE_FLAGS, CORE_FLAGS, LINK_FLAGS, uart_flags
from backends.c_qemu.harness import FIRMWARE
from backends.c_qemu.linker import Layout, section_bytes

CMSIS = Path(__file__).parents[2] / "shared" / "peers" / "cmsis-nn"
MACHINES: dict[Core, str] = {
    "cortex-m0plus": "mps2-an385",  # a Cortex-M3, which runs its code
    "cortex-m3": "mps2-an385",
    "cortex-m4f": "mps2-an386",
    "cortex-m7d": "mps2-an500",
    "cortex-m33f": "mps2-an505",
    "cortex-m55d": "mps3-an547",
}
STACK_BYTES, TIMEOUT_S, ROOM = 8192, 300, 1 << 16


@dataclass
class Layer:
    """One layer with random weights; kinds: conv, depthwise, linear."""

    name: str
    kind: str
    channels: tuple[int, int]
    size: tuple[int, int]
    kernel: int = 1
    stride: int = 1

    def __post_init__(self) -> None:
        rng = np.random.default_rng(7)
        inputs, outputs = self.channels
        self.pad = self.kernel // 2
        self.out = [(side + 2 * self.pad - self.kernel) // self.stride + 1 for side in self.size]
        self.groups = inputs if self.kind == "depthwise" else 1
        shape = (outputs, inputs // self.groups, self.kernel, self.kernel)
        self.weights = np.clip(np.round(rng.normal(0, 45, shape)), -127, 127).astype(np.int8)
        self.depth = int(np.prod(shape[1:]))
        self.biases = rng.integers(-2000, 2000, outputs).astype(np.int32)
        self.w_scales = np.exp(rng.uniform(math.log(5e-4), math.log(8e-3), outputs)).astype(np.float32)
        self.x_scale, self.x_zero, self.y_zero = np.float32(0.0235), -128, -11
        self.y_scale = np.float32(self.x_scale * np.median(self.w_scales) * 45 * 74 * math.sqrt(self.depth) / 40)
        self.images = rng.integers(-128, 128, (2, inputs, *self.size)).astype(np.int8)
        self.outputs = outputs * self.out[0] * self.out[1]
        self.macs = self.outputs * self.depth

    def deployed(self) -> DeployedNetwork:
        """Return the layer as a network."""
        tensors: list[onnx.TensorProto] = []

        def constant(value: npt.ArrayLike) -> str:
            tensors.append(numpy_helper.from_array(np.asarray(value), f"c{len(tensors)}"))
            return f"c{len(tensors) - 1}"

        inputs, outputs = self.channels
        x = ["image", constant(self.x_scale), constant(np.int8(self.x_zero))]
        y = [constant(self.y_scale), constant(np.int8(self.y_zero))]
        scales, zeros, biases = constant(self.w_scales), constant(np.zeros(outputs, np.int8)), constant(self.biases)
        if self.kind == "linear":
            read = ["flat", *x[1:], constant(self.weights.reshape(outputs, inputs)), scales, zeros, biases, *y]
            gemm = helper.make_node("QGemm", read, ["logits"], domain="com.microsoft", alpha=1.0, transB=1)
            nodes = [helper.make_node("Flatten", ["image"], ["flat"]), gemm]
        else:
            window = {"kernel_shape": [self.kernel] * 2, "strides": [self.stride] * 2, "pads": [self.pad] * 4}
            read = [*x, constant(self.weights), scales, zeros, *y, biases]
            nodes = [helper.make_node("QLinearConv", read, ["logits"], group=self.groups, **window)]
        image = helper.make_tensor_value_info("image", TensorProto.INT8, ["batch", inputs, *self.size])
        flat = ["batch", outputs, *([] if self.kind == "linear" else self.out)]
        logits = helper.make_tensor_value_info("logits", TensorProto.INT8, flat)
        graph = helper.make_graph(nodes, "one", [image], [logits], tensors)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
        ends = (float(self.x_scale), self.x_zero, float(self.y_scale), self.y_zero)
        return DeployedNetwork("int8", b"", model, (inputs, *self.size), self.outputs, *ends)

    def wanted(self) -> npt.NDArray[np.int8]:
        """Return onnxruntime's outputs (images, channels, height, width)."""
        session = ort.InferenceSession(self.deployed().onnx, providers=["CPUExecutionProvider"])
        found = [session.run(None, {"image": image[None]})[0] for image in self.images]
        made: npt.NDArray[np.int8] = np.concatenate(found).reshape(len(self.images), self.channels[1], *self.out)
        return made


LAYERS = (
    Layer("1x1 32->64, 16x16", "conv", (32, 64), (16, 16)),
    Layer("1x1 33->17, 7x9", "conv", (33, 17), (7, 9)),
    Layer("3x3 3->16, 32x32", "conv", (3, 16), (32, 32), 3),
    Layer("3x3 16->32, 16x16", "conv", (16, 32), (16, 16), 3),
    Layer("3x3 16->32, 16x16, stride 2", "conv", (16, 32), (16, 16), 3, 2),
    Layer("3x3 8->8, 7x7", "conv", (8, 8), (7, 7), 3),
    Layer("5x5 8->16, 8x8", "conv", (8, 16), (8, 8), 5),
    Layer("depthwise 3x3 64, 16x16", "depthwise", (64, 64), (16, 16), 3),
    Layer("depthwise 3x3 64, 16x16, stride 2", "depthwise", (64, 64), (16, 16), 3, 2),
    Layer("depthwise 5x5 32, 8x8", "depthwise", (32, 32), (8, 8), 5),
    Layer("linear 256->64", "linear", (256, 64), (1, 1)),
    Layer("linear 288->10", "linear", (288, 10), (1, 1)),
)


@dataclass
class Found:
    """What one implementation of one layer takes; sizes in bytes."""

    instructions: int
    code: int
    arena: int
    share_equal: float


def run_c(
    core: Core, source: str, outputs: int, images: npt.NDArray[np.int8], library: Sequence[Path] = ()
) -> tuple[Any, dict[str, int]]:
    """Return what the board says of some C, and its sections."""
    machine = find_machine(MACHINES[core])
    with tempfile.TemporaryDirectory(prefix="automcu-kernels-") as name:
        folder = Path(name)
        (folder / "net.c").write_text(source)
        start = machine.flash.origin if machine.start is None else machine.start
        flash, ram = machine.flash, machine.ram
        regions = (flash.origin, flash.size_bytes, ram.origin, ram.size_bytes)
        layout = Layout(*regions, start, images[0].nbytes, outputs, STACK_BYTES)
        (folder / "net.ld").write_text(layout.script(FIRMWARE / "link.ld"))
        flags = [*CORE_FLAGS[core], *COMPILE_FLAGS]
        _call(["arm-none-eabi-gcc", *flags, f"-I{CMSIS}/Include", "-w", "-c", "net.c"], folder)
        defines = [*uart_flags(machine.uart), f"-DGUARD_BYTES={stack.GUARD_BYTES}u"]
        harness = [str(FIRMWARE / f"{part}.c") for part in ("startup", "main", f"uart_{machine.uart.kind}")]
        _call(["arm-none-eabi-gcc", *flags, *defines, "-c", *harness], folder)
        objects = ["net.o", *[f"{Path(part).stem}.o" for part in harness], *map(str, library)]
        _call(
            ["arm-none-eabi-gcc", *CORE_FLAGS[core], *LINK_FLAGS, "-Tnet.ld", *objects, "-lm", "-o", "net.elf"], folder
        )
        sections = section_bytes(_call(["arm-none-eabi-size", "-A", "net.elf"], folder))
        emulator = Emulator(machine=MACHINES[core], same_chip=True, source="QEMU")
        target = McuTarget(
            name="bench", description="bench", core=core, clock_hz=machine.systick_hz, clock_source="QEMU",
            ram={"ram": ram}, flash=flash, uart=machine.uart, emulator=emulator,
        )  # fmt: skip
        board = QemuBoard(timeout_s=TIMEOUT_S)
        done = board.run(folder / "net.elf", target, images, output_dtype=np.dtype(np.int8), output_count=outputs)
    return done, sections


def _call(argv: Sequence[str], folder: Path) -> str:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def measure(core: Core, source: str, layer: Layer, *, last: bool = False, library: Sequence[Path] = ()) -> Found:
    """Return the figures of some C; `last` for C that works channels last."""
    images = np.ascontiguousarray(layer.images.transpose(0, 2, 3, 1)) if last else layer.images
    done, sections = run_c(core, source, layer.outputs, images, library)
    shape = (len(images), *layer.out, layer.channels[1]) if last else (len(images), layer.channels[1], *layer.out)
    outputs = np.asarray(done.outputs).reshape(shape)
    outputs = outputs.transpose(0, 3, 1, 2) if last else outputs
    equal = float(np.mean(outputs == layer.wanted()))
    return Found(done.instructions, sections[".net_code"], sections.get(".arena", 0), equal)


def cmsis_library(core: Core, folder: Path) -> Path:
    """Return CMSIS-NN's int8 kernels, compiled for a core."""
    kinds = ("Convolution", "FullyConnected", "NNSupport", "BasicMath", "Pooling")
    parts = [f"{kind}Functions" for kind in kinds]
    every = [path for part in parts for path in sorted((CMSIS / "Source" / part).glob("*.c"))]
    files = [str(path) for path in every if not path.stem.endswith(("_f16", "_f32", "_flt"))]
    flags = [*CORE_FLAGS[core], *COMPILE_FLAGS]
    _call(["arm-none-eabi-gcc", *flags, "-w", f"-I{CMSIS}/Include", "-c", *files], folder)
    _call(["arm-none-eabi-ar", "rcs", "libnn.a", *[path.name for path in folder.glob("*.o")]], folder)
    return folder / "libnn.a"


def cmsis_sources(layer: Layer) -> list[str]:
    """Return C that calls each of CMSIS-NN's functions for a layer."""
    inputs, outputs = layer.channels
    factors = [math.frexp(float(layer.x_scale) * float(s) / float(layer.y_scale)) for s in layer.w_scales]
    weights = layer.weights.reshape(outputs, -1) if layer.kind == "depthwise" else layer.weights.transpose(0, 2, 3, 1)
    weights = weights.T if layer.kind == "depthwise" else weights
    sums = layer.weights.reshape(outputs, -1).astype(int).sum(1) * -layer.x_zero + layer.biases
    arrays = {
        "int8_t weights": weights,
        "int32_t bias": layer.biases,
        "int32_t factor": [min(round(m * 2**31), 2**31 - 1) for m, _ in factors],
        "int32_t shift": [e for _, e in factors],
        "int32_t sums": sums,
    }
    text = '#include "arm_nnfunctions.h"\nstatic int16_t net_arena[40000] __attribute__((aligned(8)));\n'
    for name, values in arrays.items():
        numbers = ",".join(str(int(v)) for v in np.asarray(values).ravel())
        text += f"static const {name}[] __attribute__((aligned(4))) = {{{numbers}}};\n"
    (height, width), (down, across) = layer.size, layer.out
    text += f"""static const cmsis_nn_dims in = {{1,{height},{width},{inputs}}}, out = {{1,{down},{across},{outputs}}};
static const cmsis_nn_dims bd = {{1,1,1,{outputs}}};
void net(const void *x, void *y) {{
cmsis_nn_context ctx = {{net_arena, sizeof net_arena}};
const cmsis_nn_per_channel_quant_params q = {{(int32_t *)factor, (int32_t *)shift}};
"""
    ends, size = f"{-layer.x_zero}, {layer.y_zero}", f"{layer.kernel},{layer.kernel}"
    window = f"{{{layer.stride},{layer.stride}}}, {{{layer.pad},{layer.pad}}}, {{1,1}}, {{-128,127}}"
    first, tail = "(&ctx, &p, &q, &in, x, &f, weights, &bd, bias, ", "&out, y);\n}\n"
    if layer.kind == "depthwise":
        text += f"const cmsis_nn_dw_conv_params p = {{{ends}, 1, {window}}};\n"
        text += f"const cmsis_nn_dims f = {{1,{size},{outputs}}};\n"
        names = ["s8_opt"] + (["3x3_s8"] if layer.kernel == 3 else [])
        return [f"{text}arm_depthwise_conv_{name}{first}{tail}" for name in names]
    if layer.kind == "linear":
        text += f"const cmsis_nn_fc_params p = {{{-layer.x_zero}, 0, {layer.y_zero}, {{-128,127}}}};\n"
        text += (
            f"const cmsis_nn_dims f = {{{inputs},1,1,{outputs}}}, row = {{1,1,1,{inputs}}}, to = {{1,1,1,{outputs}}};\n"
        )
        call = first.replace("&in", "&row")
        return [f"{text}ctx.buf = (void *)sums;\narm_fully_connected_per_channel_s8{call}&to, y);\n}}\n"]
    text += f"const cmsis_nn_conv_params p = {{{ends}, {window}}};\n"
    text += f"const cmsis_nn_dims f = {{{outputs},{size},{inputs}}};\n"
    if layer.kernel == 1:
        return [f"{text}arm_convolve_1x1_s8_fast{first}{tail}"]
    return [f"{text}arm_convolve_s8{first}0, {tail}"]


def row(name: str, layer: Layer, found: Found, ours: Found) -> str:
    """Return a line of the table."""
    each, ratio = found.instructions / layer.macs, found.instructions / ours.instructions
    beyond = (
        "-" if name == "CMSIS-NN" else f"{found.arena}"
    )  # it takes its memory from the caller, who has a fixed array
    return f"  {name:9} {each:8.3f} {ratio:7.2f} {found.code:6d} {beyond:>7} {found.share_equal:8.2%}"


def main(arguments: Sequence[str]) -> None:
    """Print a table for each core, and the geometric mean of the ratios."""
    cores = [core for core in MACHINES if core in arguments] or list(MACHINES)
    only_ours, peers = "--ours" in arguments, CMSIS.is_dir()
    if not peers:
        print(f"{CMSIS} is absent: CMSIS-NN is left out.")
    wanted = [a for a in arguments if a not in MACHINES and not a.startswith("--")]
    for core in cores:
        ratios: dict[str, list[float]] = {"CMSIS-NN": [], "emx": []}
        with tempfile.TemporaryDirectory(prefix="automcu-cmsis-") as folder:
            library = cmsis_library(core, Path(folder)) if peers and not only_ours else None
            print(f"{core}: instructions a MAC, relative to ours, code, scratch, equal outputs", flush=True)
            for layer in [one for one in LAYERS if not wanted or any(text in one.name for text in wanted)]:
                ours, small = (
                    measure(core, generate(layer.deployed(), core, form=Form(arena_bytes=arena_bytes)).source, layer)
                    for arena_bytes in (ROOM, 0)
                )
                print(
                    f"{layer.name}\n{row('ours', layer, ours, ours)}\n{row('narrow', layer, small, ours)}", flush=True
                )
                if only_ours:
                    continue
                others = {"emx": measure(core, generate_float(layer.deployed()).source, layer)}
                if library:
                    found = [measure(core, text, layer, last=True, library=[library]) for text in cmsis_sources(layer)]
                    others["CMSIS-NN"] = min(found, key=lambda one: one.instructions)
                for name, other in others.items():
                    ratios[name].append(other.instructions / ours.instructions)
                    print(row(name, layer, other, ours), flush=True)
        for name, values in ratios.items():
            if values:
                print(f"{core}: {name} against ours, geometric mean {np.exp(np.mean(np.log(values))):.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
