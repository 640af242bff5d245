"""Every variant of the int8 kernels at its edges, memory and sums checked; rounding by integers; names."""

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
import torch

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import deploy
from automcu_ray.problem.target import Constraints, Core, McuTarget
from automcu_ray.runtime.config_files import CONFIGS, read_yaml
from automcu_ray.testing.networks import deployed_network
from backends.boards.qemu import QemuBoard
from backends.c_qemu.backend import CQemuBackend
from backends.c_qemu.cgen import generate
from backends.c_qemu.form import Code, Form
from backends.c_qemu.kernels.printing import SOURCES
from tests.backends.host import run_on_host, run_sanitised
from tests.backends.operators import Model, Rng, run_one_at_a_time

pytestmark = pytest.mark.thorough
ROOM = 1 << 16  # for the fastest kernels

WINDOWS = [  # outputs, groups, kernel, strides, pads (top, left, bottom, right), dilations
    (1, 1, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (5, 1, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    (4, 1, (3, 3), (2, 2), (0, 0, 1, 1), (1, 1)),
    (2, 1, (2, 5), (2, 2), (1, 3, 0, 2), (1, 1)),
    (3, 1, (3, 3), (1, 1), (2, 2, 2, 2), (2, 2)),
    (7, 1, (3, 1), (3, 3), (1, 0, 1, 0), (1, 1)),
    (12, 2, (3, 3), (1, 2), (1, 0, 1, 2), (1, 1)),
    (6, 6, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (6, 6, (3, 3), (2, 2), (0, 1, 1, 0), (1, 1)),
    (12, 6, (3, 3), (1, 2), (2, 0, 1, 0), (1, 1)),
    (6, 6, (5, 5), (1, 1), (2, 3, 2, 1), (1, 1)),
    (12, 6, (5, 2), (1, 2), (2, 0, 2, 1), (1, 1)),
    (6, 6, (3, 3), (1, 3), (2, 2, 2, 2), (2, 2)),
    (18, 6, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (6, 6, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    (2, 1, (7, 9), (1, 1), (0, 0, 0, 0), (1, 1)),
]


def windows(rng: Rng, width: int) -> Model:
    """Return convolutions of every form side by side; zero points and sums are often extreme."""
    model = Model(rng, (6, 7, width))
    for outputs, groups, kernel, strides, pads, dilations in WINDOWS:
        if kernel[1] > width:
            continue
        weights = rng.choice(np.int8([-127, -1, 0, 127, *rng.integers(-127, 128, 4)]), (outputs, 6 // groups, *kernel))
        scales = np.float32(np.exp(rng.uniform(np.log(1e-4), np.log(0.02), outputs)))
        y = model.quantised(float(rng.uniform(0.01, 0.5)))
        read = [
            "image",
            *model.quantised(model.scale()),
            *map(model.constant, (weights, scales, np.zeros(outputs, np.int8))),
        ]
        biases = model.constant(rng.integers(-(10**5), 10**5, outputs).astype(np.int32))
        window = {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations, "group": groups}
        model.add("QLinearConv", *read, *y, biases, **window)
    return model


@pytest.mark.parametrize("width", [pytest.param(size, marks=pytest.mark.slow) for size in (1, 3, 4, 9)] + [17])
@pytest.mark.parametrize("core", [None, "cortex-m4f", "cortex-m55d"])
def test_a_convolution_of_any_form_stays_in_its_memory_and_gives_the_bits_of_onnxruntime(
    core: Core | None, width: int, host_gcc: None, tmp_path: Path
) -> None:
    rng = np.random.default_rng(width)
    made = windows(rng, width).deployed()
    inputs = rng.integers(-128, 128, (4, 6, 7, width)).astype(np.int8)
    wanted = run_one_at_a_time(made.onnx, inputs)
    forms = [generate(made, core, form=Form(code)).source for code in get_args(Code)]
    for source in (*forms, generate(made, core, form=Form(arena_bytes=ROOM)).source):
        assert np.array_equal(run_sanitised(source, made, (inputs + np.int16(128)).astype(np.uint8), tmp_path), wanted)


def depthwise(channels: int) -> torch.nn.Conv2d:
    return torch.nn.Conv2d(channels, channels, 3, padding=1, groups=channels)


@pytest.mark.parametrize("deep", [False, True], ids=["one layer", "two layers, one over its input"])
def test_some_lanes_are_stored_with_helium_and_no_more(deep: bool, qemu: None, tmp_path: Path) -> None:
    """GCC 12 left out what fills a row of sixteen values, and stored four where a row of nine ends with one."""
    torch.manual_seed(0)
    layers = [depthwise(3)]
    if deep:
        layers = [torch.nn.Conv2d(3, 64, 1), depthwise(64), torch.nn.Conv2d(64, 16, 1), depthwise(16)]
    between = [module for layer in layers for module in (layer, torch.nn.ReLU())]
    images = np.random.default_rng(0).integers(0, 256, (8, 3, 13, 9), dtype=np.uint8)
    last = torch.nn.Linear(117 * layers[-1].out_channels, 4)
    network = torch.nn.Sequential(*between, torch.nn.Flatten(), last).eval()
    made = deploy(network, (3, 13, 9), precision="int8", calibration=images)
    target = McuTarget.model_validate(read_yaml(CONFIGS / "target" / "ensemble_e8_hp.yaml"))
    firmware = CQemuBackend().build(made, target, Constraints(), tmp_path)
    assert firmware.board_elf is not None
    found = QemuBoard().run(
        firmware.board_elf, target, made.encode(images), output_dtype=np.int8, output_count=made.num_classes
    )
    assert np.array_equal(found.outputs, made.run(images))


@pytest.mark.parametrize("width", [2, 3, 6, 13])
def test_short_rows_are_taken_as_one_with_helium(width: int, qemu: None, tmp_path: Path) -> None:
    def layer(kernel: int, stride: int = 1, dilation: int = 1) -> torch.nn.Conv2d:
        return torch.nn.Conv2d(3, 3, kernel, stride, dilation * (kernel // 2), dilation, groups=3)

    torch.manual_seed(0)
    large = [torch.nn.Conv2d(3, 24, 1), torch.nn.Conv2d(24, 3, 1)]  # so that the arena has room for the copies
    layers = [*large, layer(3), layer(5), layer(3, dilation=2), layer(3, stride=2), layer(5, stride=2)]
    between = [module for one in layers for module in (one, torch.nn.ReLU())]
    shape = (3, 90, width)  # more rows than one copy holds
    images = np.random.default_rng(0).integers(0, 256, (4, *shape), dtype=np.uint8)
    network = torch.nn.Sequential(*between, torch.nn.Flatten()).eval()
    made = deploy(network, shape, precision="int8", calibration=images)
    assert "#define NET_SHORT_ROWS" in generate(made, "cortex-m55d").source
    target = McuTarget.model_validate(read_yaml(CONFIGS / "target" / "ensemble_e8_hp.yaml"))
    firmware = CQemuBackend().build(made, target, Constraints(), tmp_path)
    assert firmware.board_elf is not None
    sizes = {"output_dtype": np.dtype(np.int8), "output_count": made.num_classes}
    found = QemuBoard().run(firmware.board_elf, target, made.encode(images), **sizes)  # type: ignore[arg-type]
    assert np.array_equal(found.outputs, made.run(images))


@pytest.mark.parametrize(("defined", "lowest", "highest"), [("NET", -30, -2), ("NET_WIDE_SCALES", -40, 24)])
def test_integers_round_as_float32_does(
    defined: str, lowest: int, highest: int, host_gcc: None, tmp_path: Path
) -> None:
    parts = [(SOURCES / name).read_text() for name in ("common.c", "requantise.c")]
    body = "for (int i = 0; i < n; i++) y[i] = saturate(requantise(x[i], factor_of(s[i])) + zero_point(0));"
    text = "\n".join([*parts, f"void all(const int32_t *x, const float *s, int8_t *y, int n) {{ {body} }}"])
    (tmp_path / "round.c").write_text(text)
    argv = [
        "gcc",
        "-O2",
        "-shared",
        "-fPIC",
        "-DNET_INTEGER_ROUNDING",
        f"-D{defined}",
        "round.c",
        "-o",
        "round.so",
        "-lm",
    ]
    subprocess.run(argv, cwd=tmp_path, check=True)
    rng, count = np.random.default_rng(0), 1_000_000
    scales = np.exp(rng.uniform(np.log(2.0**lowest), np.log(0.96 * 2.0**highest), count)).astype(np.float32)
    scales[::3] = 2.0 ** rng.integers(lowest, highest, len(scales[::3]))  # whose ties are exact
    sums = np.clip(rng.normal(0, 90, count) / scales, -(2**31), 2**31 - 1).astype(np.int32)
    ties = np.rint((rng.integers(-128, 128, len(sums[::2])) + 0.5) / scales[::2].astype(np.float64))
    sums[::2] = np.clip(ties, -(2**31), 2**31 - 1)
    sums[::5] = rng.integers(-(2**31), 2**31, len(sums[::5]))
    found = np.zeros(count, np.int8)
    library = ctypes.CDLL(str(tmp_path / "round.so"))
    library.all(*(ctypes.c_void_p(array.ctypes.data) for array in (sums, scales, found)), count)
    wanted = np.rint(sums.astype(np.float32) * scales).clip(-128, 127)
    assert len(np.unique(wanted)) == 256
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("name", ["attention", "plain"])
@pytest.mark.parametrize("code", get_args(Code))
def test_a_network_without_a_floating_point_unit_gives_the_same_bits(
    code: Code, name: str, host_gcc: None, tmp_path: Path
) -> None:
    made = deployed_network(name, "int8")
    images = np.random.default_rng(1).integers(0, 256, (300, 3, 12, 12), dtype=np.uint8)
    found = run_on_host(made, images, tmp_path, "cortex-m0plus", "-DNET_INTEGER_ROUNDING", form=Form(code))
    assert np.array_equal(found, made.run(images))


OPERATIONS = """
static float as_float(real x) { return ldexpf((float)x.value, x.exponent); }
static real as_real(float x) { return times(x != 0.0f, bits_of(x)); }
void all(const float *a, const float *b, const float *s, const int32_t *n, float *y, int count) {
    for (int i = 0; i < count; i++, y += 6) {
        y[4] = (float)nearest(as_real(a[i]));
        y[5] = (float)nearest(sum_of((real){0, 0}, (real){n[i], i & 3}));
        y[0] = as_float(sum_of(as_real(a[i]), as_real(b[i])));
        y[1] = as_float(sum_of(times(n[i], bits_of(s[i])), as_real(a[i])));
        y[2] = as_float(quotient(as_real(a[i]), as_real(b[i])));
        y[3] = as_float(quotient(as_real(b[i]), (real){n[i] < 0 ? -n[i] : n[i] + 1, 0}));
    }
}
"""


def test_floats_in_software_round_as_float32_does(host_gcc: None, tmp_path: Path) -> None:
    parts = [(SOURCES / name).read_text() for name in ("common.c", "requantise.c")]
    (tmp_path / "real.c").write_text("\n".join([*parts, OPERATIONS]))
    argv = ["gcc", "-O2", "-shared", "-fPIC", "-DNET_INTEGER_ROUNDING", "real.c", "-o", "real.so", "-lm"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    rng, count = np.random.default_rng(0), 500_000

    def floats(low: int, high: int) -> npt.NDArray[np.float32]:
        found = np.ldexp(rng.uniform(1, 2, count), rng.integers(low, high, count)) * rng.choice([-1, 1], count)
        found[::4] = np.round(found[::4])  # whole numbers and their sums often lie on ties
        return found.astype(np.float32)

    a, b, s = floats(-30, 14), floats(-30, 14), np.abs(floats(-30, 5))
    b[b == 0], s[s == 0] = 1, 1
    n = rng.integers(-255, 256, count).astype(np.int32)
    found = np.zeros((count, 6), np.float32)
    library = ctypes.CDLL(str(tmp_path / "real.so"))
    library.all(*(ctypes.c_void_p(array.ctypes.data) for array in (a, b, s, n, found)), count)
    fused = np.float64(n) * s  # exact: 9 and 24 bits
    exact = np.float32(np.longdouble(fused) + np.longdouble(a))  # 64 bits, then 24: twice rounded, but for ties only
    by = np.where(n < 0, -n, n + 1).astype(np.float32)
    wanted = np.stack([a + b, exact, a / b, b / by, np.rint(a), np.float32(n << (np.arange(count) & 3))], axis=1)
    assert np.array_equal(found, wanted)


MEANS = """
void all(const int *n, const float *scales, const int8_t *x, int8_t *y, int count) {
    for (int i = 0; i < count; i++, n += 5, scales += 2, x += 64, y += 64) {
        const struct pool one = {.channels = 1, .in_h = 8, .in_w = 8, .out_h = n[0], .out_w = n[0], .kernel_h = n[1],
            .kernel_w = n[1], .stride_h = n[2], .stride_w = n[2], .dilation_h = 1, .dilation_w = 1, .pad_top = n[3],
            .pad_left = n[3], .x_zero = n[4] >> 1, .y_zero = -n[4] / 3, .whole_windows = n[4] & 1,
            .x_scale = scales[0], .y_scale = scales[1]};
        average_pool(&one, x, y);
    }
}
"""


def in_integers_and_floats(folder: Path, kernels: str, text: str, arrays: Sequence[npt.NDArray[Any]]) -> list[Any]:
    """Return what `all` of a C text writes, without a floating-point unit and with one; a row of 64 for each input."""
    parts = [(SOURCES / name).read_text() for name in ("common.c", "requantise.c", kernels)]
    (folder / "all.c").write_text("\n".join([*parts, text]))
    found = []
    for name in ("integers", "floats"):
        defined = ["-DNET_INTEGER_ROUNDING"] if name == "integers" else []
        argv = ["gcc", "-O2", "-shared", "-fPIC", *defined, "all.c", "-o", f"{name}.so", "-lm"]
        subprocess.run(argv, cwd=folder, check=True)
        count = len(arrays[0])
        found.append(np.zeros((count, 64), np.int8))
        pointers = (ctypes.c_void_p(one.ctypes.data) for one in (*arrays, found[-1]))
        ctypes.CDLL(str(folder / f"{name}.so")).all(*pointers, count)
    assert len(np.unique(found[0])) == 256
    return found


def test_means_in_integers_are_those_in_floats(host_gcc: None, tmp_path: Path) -> None:
    rng, count = np.random.default_rng(0), 20_000
    kernel, stride = rng.integers(1, 9, count), rng.integers(1, 4, count)
    pad = np.minimum(rng.integers(0, 2, count), kernel - 1)
    sides = (8 + 2 * pad - kernel) // stride + 1
    numbers = np.stack([sides, kernel, stride, pad, rng.integers(-128, 128, count)], axis=1).astype(np.int32)
    scales = np.exp(rng.uniform(-12, 3, (count, 2))).astype(np.float32)
    ratios = np.exp(rng.uniform(-2, 3, count)).astype(np.float32)
    ratios[::3], ratios[1::3] = 1, np.round(ratios[1::3] * 8) / 8  # with them sums lie on ties, or next to one
    scales[:, 1] = scales[:, 0] / np.maximum(ratios, np.float32(0.125))
    x = rng.integers(-128, 128, (count, 64), dtype=np.int8)
    assert np.array_equal(*in_integers_and_floats(tmp_path, "pooling.c", MEANS, (numbers, scales, x)))


PRODUCTS = """
void all(const int *zeros, const float *scales, const int8_t *a, const int8_t *b, int8_t *y, int count) {
    for (int i = 0; i < count; i++, zeros += 3, a += 64, b += 64, y += 64) {
        const struct pairs one = {.counts = {1, 1, 64}, .steps_a = {0, 0, 1}, .steps_b = {0, 0, 1},
            .scale_a = scales[i], .zero_a = zeros[0], .zero_b = zeros[1], .fixed = zeros[2]};
        mul(&one, a, b, y);
    }
}
"""


def test_products_in_integers_are_those_in_floats(host_gcc: None, tmp_path: Path) -> None:
    rng, count = np.random.default_rng(0), 40_000
    zeros = rng.integers(-128, 128, (count, 3), dtype=np.int32)
    scales = np.exp(rng.uniform(-12, 0, count)).astype(np.float32)
    scales[::3] = 2.0 ** rng.integers(-12, 1, len(scales[::3]))  # products lie on ties
    scales[1::3] = 1 / (2 * rng.integers(3, 2000, len(scales[1::3])))  # or next to one
    a, b = rng.integers(-128, 128, (2, count, 64), dtype=np.int8)
    assert np.array_equal(*in_integers_and_floats(tmp_path, "elementwise.c", PRODUCTS, (zeros, scales, a, b)))


def test_no_name_of_the_model_reaches_the_c() -> None:
    deployed = deployed_network("attention", "int8")
    made = generate(deployed)
    assert "squeeze" in [deployed.in_words(name) for name in made.weights]
    assert not [name for name in (*made.weights, "squeeze", "excite", "_quant") if name in made.source]


def test_an_operator_without_a_kernel_is_named() -> None:
    model = Model(np.random.default_rng(0), (4, 3, 3))
    model.add("Abs", "image")
    with pytest.raises(ToolchainError, match="int8 Abs has no kernel"):
        generate(model.deployed())
