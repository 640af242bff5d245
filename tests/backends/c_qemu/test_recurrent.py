"""Recurrent networks at int8 are near the float ones, and their C gives onnxruntime's bits."""

import ctypes
import dataclasses
import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import DeployedNetwork, deploy, deploy_traced, normalize
from automcu_ray.deploy.step_network import in_steps, run_steps
from automcu_ray.deploy.tracing import trace
from automcu_ray.problem.target import Constraints, Core
from automcu_ray.signals.front_end import AudioWindow, SampleWindow, windows
from automcu_ray.signals.spectrum import Spectrum
from backends.boards.qemu import QemuBoard
from backends.c_qemu.backend import CQemuBackend
from backends.c_qemu.cgen import generate
from backends.c_qemu.form import Form
from tests.backends.conftest import read_target
from tests.backends.host import FLAGS, run_on_host, run_sanitised
from tests.backends.recurrent_networks import NETWORKS, SHAPE

CORES: tuple[Core | None, ...] = (None, "cortex-m4f", "cortex-m55d")


def signals(count: int) -> NDArray[np.uint8]:
    """Noise that wanders: what is read last depends on what was read long before."""
    steps = np.random.default_rng(0).normal(0, 30, (count, *SHAPE)).cumsum(axis=3) + 128
    return steps.clip(0, 255).astype(np.uint8)


def reset_first(network: torch.nn.Module) -> DeployedNetwork:
    """A network whose GRU multiplies its reset gate with the state, as other frameworks have it."""
    model = onnx.load_from_string(trace(network, SHAPE))
    for node in model.graph.node:
        for attribute in [one for one in node.attribute if one.name == "linear_before_reset"]:
            attribute.i = 0
    return deploy_traced(model.SerializeToString(), SHAPE, precision="int8", calibration=signals(64))


@pytest.mark.parametrize("name", [*NETWORKS, "GRU, reset first"])
def test_it_is_near_the_float_network_and_bit_equal_in_c(name: str, host_gcc: None, tmp_path: Path) -> None:
    torch.manual_seed(1)
    batch = signals(64)
    if name in NETWORKS:
        network = NETWORKS[name]().eval()
        made = deploy(network, SHAPE, precision="int8", calibration=batch)
        with torch.no_grad():
            wanted = network(torch.from_numpy(normalize(batch))).numpy()
    else:
        made = reset_first(NETWORKS["GRU"]())
        wanted = made.as_float.run(batch)
    found = made.run(batch)
    core = CORES[len(name) % 3]
    assert np.array_equal(run_sanitised(generate(made, core).source, made, batch, tmp_path), found)
    assert len(np.unique(found, axis=0)) > 50
    real = (found.astype(np.float32) - (made.output_zero_point or 0)) * (made.output_scale or 0)
    assert np.abs(real - wanted).mean() < 0.03 * wanted.std()


def test_a_board_gives_the_bits_of_onnxruntime_with_weights_once(qemu: None, tmp_path: Path) -> None:
    torch.manual_seed(2)
    made = deploy(NETWORKS["GRU, both ways, two layers"](), SHAPE, precision="int8", calibration=signals(64))
    target, batch = read_target("stm32f405"), signals(64)
    firmware = CQemuBackend().build(made, target, Constraints(), tmp_path)
    run = QemuBoard().run(
        firmware.board_elf, target, made.encode(batch), output_dtype=np.int8, output_count=made.num_classes
    )
    assert np.array_equal(run.outputs, made.run(batch))


def test_weights_and_tables_are_there_once_however_many_steps_and_layers_there_are() -> None:
    def arrays(steps: int) -> list[tuple[str, str]]:
        batch = signals(8)[..., np.arange(steps) % 12]
        torch.manual_seed(2)
        network = NETWORKS["LSTM, two layers, its state"]()
        source = generate(deploy(network, (6, 1, steps), precision="int8", calibration=batch)).source
        return re.findall(r"static const (int\w+) \w+\[(\d+)\]", source)

    assert arrays(12) == arrays(60)
    assert arrays(12).count(("int16_t", "256")) == 2
    assert arrays(12).count(("int8_t", str(4 * 8 * (8 + 6)))) == 1


@pytest.mark.parametrize("core", CORES)
def test_small_code_gives_the_same_bits(core: Core | None, host_gcc: None, tmp_path: Path) -> None:
    torch.manual_seed(3)
    made = deploy(NETWORKS["LSTM, two layers, its state"](), SHAPE, precision="int8", calibration=signals(32))
    options = () if core else ("-DNET_INTEGER_ROUNDING",)
    found = run_on_host(made, signals(32), tmp_path, core, *options, form=Form("small"))
    assert np.array_equal(found, made.run(signals(32)))


def test_float32_is_there_as_well(host_gcc: None, tmp_path: Path) -> None:
    torch.manual_seed(4)
    network = NETWORKS["GRU with a start"]().eval()
    made = deploy(network, SHAPE, precision="float32", calibration=signals(8))
    with torch.no_grad():
        wanted = network(torch.from_numpy(normalize(signals(8)))).numpy()
    assert np.abs(run_on_host(made, signals(8), tmp_path) - wanted).max() < 1e-5


SENSOR = SampleWindow(
    names=tuple("abcdef"),
    units_per_count=(1.0,) * 6,
    factors=(1 << 16,) * 6,
    offsets=(0,) * 6,
    rate_hz=10,
    length=12,
)


@pytest.fixture(scope="module")
def stepping() -> DeployedNetwork:
    torch.manual_seed(5)
    network = NETWORKS["LSTM, two layers, its state"]()
    made = deploy(network, SHAPE, precision="int8", calibration=signals(32))
    return dataclasses.replace(made, front_end=SENSOR)


def test_a_stream_by_steps_gives_the_bits_of_windows(qemu: None, stepping: DeployedNetwork, tmp_path: Path) -> None:
    target = read_target("stm32f405")
    rng = np.random.default_rng(0)
    recording = (rng.normal(0, 30, (90, 6)).cumsum(axis=0) + 128).clip(0, 255).astype(np.int16)
    expected = windows(SENSOR, recording, 6)
    ends = [12 + 6 * number for number in range(len(expected))]
    firmware = CQemuBackend(stream="steps").build(stepping, target, Constraints(), tmp_path)
    parts = np.split(recording[: ends[-1]], ends[:-1])
    run = QemuBoard().stream(firmware.board_elf, target, parts, input_bytes=72, outputs=5)
    assert np.array_equal(run.outputs, stepping.run(expected)) and len(np.unique(run.outputs, axis=0)) > 8
    pictures = stepping.encode(expected)
    images = QemuBoard().run(firmware.board_elf, target, pictures, output_dtype=np.int8, output_count=5)
    assert np.array_equal(images.outputs, run.outputs), "net() is a window of steps"


class Rows(nn.Module):
    """A GRU that reads a picture of sound row by row."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer, self.head = nn.GRU(width, 6, batch_first=True), nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.layer(x.squeeze(1))[0][:, -1])
        return logits


@pytest.mark.parametrize(
    "spectrum",
    [
        Spectrum(rate_hz=8000, frame=240, hop=160, mels=20),
        Spectrum(features="mfcc", rate_hz=8000, frame=256, hop=256, mels=24, coefficients=10),
    ],
    ids=["log-mel", "MFCC"],
)
def test_sound_goes_by_steps_too_a_row_each(qemu: None, spectrum: Spectrum, tmp_path: Path) -> None:
    window = AudioWindow(spectrum=spectrum, frames=6)
    rng = np.random.default_rng(0)
    loudness = 10 ** rng.uniform(1, 4, 24).repeat(window.step)[:, None]
    recording = (rng.normal(size=loudness.shape) * loudness).clip(-32768, 32767).astype(np.int16)
    expected = windows(window, recording, 3 * window.step)
    torch.manual_seed(6)
    made = deploy(Rows(spectrum.width), (1, 6, spectrum.width), precision="int8", calibration=expected)
    made = dataclasses.replace(made, front_end=window)
    target = read_target("stm32f405")
    firmware = CQemuBackend(stream="steps").build(made, target, Constraints(), tmp_path)
    ends = [window.span + 3 * window.step * number for number in range(len(expected))]
    parts = np.split(recording[: ends[-1]], ends[:-1])
    size = 6 * spectrum.width
    run = QemuBoard().stream(firmware.board_elf, target, parts, input_bytes=size, outputs=5)
    assert np.array_equal(run.outputs, made.run(expected)) and len(np.unique(run.outputs, axis=0)) > 3
    assert "stream_window[NET_INPUT_BYTES / 6]" in (tmp_path / "stream.c").read_text()


def test_steps_are_those_of_onnxruntime_however_long_a_state_is_carried(
    stepping: DeployedNetwork, host_gcc: None, tmp_path: Path
) -> None:
    network = stepping.one_step()
    data = in_steps(stepping.encode(signals(4))).reshape(-1, 6)
    (tmp_path / "net.c").write_text(generate(stepping, form=Form(steps=True)).source)
    subprocess.run(["gcc", *FLAGS, "-std=c99", "-Wpedantic", "net.c", "-o", "net.so", "-lm"], cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "net.so"))
    for restart in (12, len(data)):
        found = np.zeros((len(data), 5), np.int8)
        for number, (step, answer) in enumerate(zip(data, found, strict=True)):
            values, logits = (ctypes.c_void_p(array.ctypes.data) for array in (step, answer))
            library.net_step(0, int(number % restart == 0), values, logits)
        assert np.array_equal(found, run_steps(network, data, restart))


@pytest.mark.parametrize(
    ("name", "why"),
    [("GRU, both ways, two layers", "goes backwards"), ("RNN, mean of steps", "more than what its recurrent layers")],
)
def test_what_cannot_go_by_steps_says_why(name: str, why: str) -> None:
    made = deploy(NETWORKS[name](), SHAPE, precision="int8", calibration=signals(8))
    with pytest.raises(ToolchainError, match=f"cannot go step by step: .*{why}"):
        made.one_step()
