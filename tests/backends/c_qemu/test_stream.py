"""A stream's C, on this computer and on the emulated board, beside the same integers in numpy."""

import ctypes
import dataclasses
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from automcu_ray.core.errors import BoardError, ToolchainError
from automcu_ray.deploy.export import DeployedNetwork, deploy
from automcu_ray.problem.target import Constraints
from automcu_ray.signals.front_end import AudioWindow, SampleWindow, windows
from automcu_ray.signals.spectrum import Spectrum
from backends.boards.qemu import QemuBoard
from backends.c_qemu.backend import CQemuBackend
from backends.c_qemu.stream.printing import stream_header, stream_source
from tests.backends.conftest import read_target
from tests.backends.host import FLAGS

MOTION = SampleWindow(
    names=("x", "y"),
    units_per_count=(0.01, 0.002),
    factors=(700, -90_000),
    offsets=(8_421_376, 3),
    rate_hz=50,
    length=7,
)
FRONT_ENDS: dict[str, AudioWindow | SampleWindow] = {
    "log-mel": AudioWindow(spectrum=Spectrum(rate_hz=8000, frame=240, hop=160, mels=20), frames=5),
    "MFCC": AudioWindow(
        spectrum=Spectrum(features="mfcc", rate_hz=16_000, frame=512, hop=512, mels=40, coefficients=13), frames=3
    ),
    "many narrow bands": AudioWindow(spectrum=Spectrum(rate_hz=4000, frame=256, hop=100, mels=60), frames=4),
    "samples": MOTION,
}


def noise(front_end: AudioWindow | SampleWindow, count: int) -> NDArray[np.int16]:
    """Samples (count, channels) between silence and clipping."""
    rng = np.random.default_rng(0)
    block = front_end.span // 2
    loudness = 10 ** rng.uniform(-1, 5, (count // block + 1, 1)).repeat(block, axis=0)[:count]
    loudness[: front_end.span] = 0
    found: NDArray[np.int16] = np.clip(rng.normal(size=(count, front_end.channels)) * loudness, -32768, 32767)
    return found.astype(np.int16)


def small_network(pictures: NDArray[np.uint8]) -> DeployedNetwork:
    """A trained-like network of ten classes for such pictures, at int8."""
    torch.manual_seed(0)
    _, channels, height, width = pictures.shape
    layers = nn.Conv2d(channels, 4, (min(height, 3), 3)), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    network = nn.Sequential(*layers, nn.Linear(4, 10))
    return deploy(network, (channels, height, width), precision="int8", calibration=pictures)


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_windows_equal_those_of_numpy_however_samples_come_in(host_gcc: None, name: str, tmp_path: Path) -> None:
    front_end = FRONT_ENDS[name]
    shape = front_end.window(noise(front_end, front_end.span)).shape
    size = int(np.prod(shape))
    (tmp_path / "net.h").write_text(f"#define NET_INPUT_BYTES {size}\nvoid net(const void *, void *);\n")
    (tmp_path / "stream.h").write_text(stream_header(front_end))
    echo = f"\nvoid net(const void *in, void *out) {{ memcpy(out, in, {size}); }}\n"
    (tmp_path / "stream.c").write_text(stream_source(front_end) + echo)
    checks = ("-fsanitize=undefined", "-fno-sanitize-recover=all")
    subprocess.run(["gcc", *FLAGS, *checks, "stream.c", "-o", "stream.so"], cwd=tmp_path, check=True)
    stream = ctypes.CDLL(str(tmp_path / "stream.so"))
    samples = noise(front_end, 6 * front_end.span)
    stream.stream_reset()
    seen, fed, rng = [], 0, np.random.default_rng(1)
    while fed < len(samples):
        count = min(len(samples) - fed, int(rng.integers(1, front_end.step + 9)))
        part = np.ascontiguousarray(samples[fed : fed + count])
        stream.stream_feed(ctypes.c_void_p(part.ctypes.data), count)
        fed += count
        out = np.zeros(size, np.int8)
        full = stream.stream_result(ctypes.c_void_p(out.ctypes.data))
        assert full == (fed >= front_end.span)
        if full:
            start = (fed - front_end.span) // front_end.step * front_end.step
            expected = front_end.window(samples[start:])
            assert (out.reshape(shape) == expected.astype(np.int16) - 128).all(), start
            seen.append(expected)
    assert len(seen) > 3 and np.ptp(np.stack(seen)) > 120, "pixels of every kind"


@pytest.mark.parametrize(("name", "board"), [("log-mel", "stm32f405"), ("samples", "stm32f405"), ("MFCC", "rp2040")])
def test_the_emulated_board_answers_a_recording_as_python_does(
    qemu: None, name: str, board: str, tmp_path: Path
) -> None:
    target = read_target(board)
    front_end = FRONT_ENDS[name]
    recording = noise(front_end, 3 * front_end.span)
    every = 3 * front_end.step
    expected = windows(front_end, recording, every)
    made = small_network(expected)
    plain = CQemuBackend().build(made, target, Constraints(), tmp_path)
    fed = dataclasses.replace(made, front_end=front_end)
    firmware = CQemuBackend().build(fed, target, Constraints(), tmp_path)
    assert (
        firmware.report.ram_bytes >= plain.report.ram_bytes and firmware.report.flash_bytes > plain.report.flash_bytes
    )
    assert {path.name for path in firmware.sources} >= {"stream.c", "stream.h"}
    ends = [front_end.span + every * index for index in range(len(expected))]
    parts = np.split(recording[: ends[-1]], ends[:-1])
    sizes = {"input_bytes": expected[0].nbytes, "outputs": made.num_classes}
    emulated = QemuBoard()
    run = emulated.stream(firmware.board_elf, target, parts, **sizes)
    assert (run.outputs == made.run(expected)).all() and run.instructions > 100
    pictures = emulated.run(firmware.board_elf, target, made.encode(expected), output_dtype=np.int8, output_count=10)
    assert (pictures.outputs == run.outputs).all()
    with pytest.raises(BoardError, match="BAD window"):
        emulated.stream(firmware.board_elf, target, [parts[0][:-1]], **sizes)


def test_more_channels_than_the_harness_has_room_for() -> None:
    wide = SampleWindow(
        names=("x",) * 33, units_per_count=(1,) * 33, factors=(1,) * 33, offsets=(1,) * 33, rate_hz=1, length=2
    )
    with pytest.raises(ToolchainError, match="at most 32 channels, found 33"):
        stream_source(wide)
