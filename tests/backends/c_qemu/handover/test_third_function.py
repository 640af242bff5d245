"""`net_estimate` and `net_score`: what a user's program is told, beside the same answers in Python."""

import dataclasses
import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from automcu_ray.core.learning import Learning, Target
from automcu_ray.deploy.export import DeployedNetwork, deploy
from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.search_space import Space
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.precision import Precision
from automcu_ray.testing.networks import CLASSES, deployed_network, images
from backends.c_qemu.cgen import generate
from backends.c_qemu.handover import api, projects
from backends.c_qemu.stream.printing import stream_header, stream_source
from tests.backends.c_qemu.handover.test_handover import STRICT
from tests.backends.c_qemu.test_stream import MOTION, noise
from tests.backends.conftest import read_target

HOSTILE = 'gyro "x" */ #error'
VALUES = Learning(
    kind="regression",
    metric="mae",
    loss="mse",
    targets=tuple(
        Target(name=f"{HOSTILE} {at}", mean=10.0**at, deviation=0.3 + at, trivial_mae=1.0) for at in range(CLASSES)
    ),
)
ANOMALY = Learning(kind="anomaly", metric="auc", loss="mse")


def autoencoder(shape: tuple[int, int, int], pictures: NDArray[np.uint8], precision: Precision) -> DeployedNetwork:
    """A network with a bottleneck of two values, whose outputs are as many as its inputs."""
    space = Space(input_shape=shape, num_classes=math.prod(shape), reconstructs=True)
    layers = [{"type": "pointwise", "out_channels": 4}]
    spec = ArchitectureSpec.model_validate({"backbone": layers, "head": {"positions": 2, "code": 2, "decoder": 8}})
    torch.manual_seed(0)
    network = Network(space.graph(spec)).eval()
    return deploy(network, shape, precision=precision, calibration=pictures)


def built(folder: Path, made: DeployedNetwork, told: api.Told, precision: Precision) -> Path:
    """Compile a bundle's sources strictly, with its host program, for this computer; return the program."""
    code, front_end = generate(made), made.front_end
    (folder / "src").mkdir()
    files = {"net.h": api.header(code.header, made, front_end, told)}
    files["net_api.c"] = api.source(made, front_end, (), told)
    if front_end is not None:
        files |= {"stream.h": stream_header(front_end), "stream.c": stream_source(front_end)}
    for name, text in files.items():
        (folder / "src" / name).write_text(text)
    (folder / "src" / "net.c").write_text(code.source)
    kind = told.learning.kind
    about: dict[str, Any] = {
        "kind": kind,
        "verb": api.VERBS[kind],
        "stream": front_end is not None,
        "precision": precision,
    }
    about |= {"told": "mae 0.5000", "test_images": 3, "test_figures": {"mae": 0.5}, "trivial_figures": {"mae": 1.0}}
    about |= {"ram_bytes": 1, "flash_bytes": 1, "ram_limit_bytes": 1, "flash_limit_bytes": 1, "instructions": 1}
    about |= {"board": None, "channels": 1, "core_flags": [], "has_weights": True, "num_classes": made.num_classes}
    about["anomaly"] = {"threshold": 0.5, "found": 0.5, "false_alarms": 0.1, "anomalies": 3, "normal": 4}
    names = [target.name for target in told.learning.targets]
    projects.write(folder, read_target("stm32f405"), inputs="", names=names, about=about)
    for language, sources in {"c99": ["net_api.c", "net.c"], "c++11": ["net_api.c"]}.items():
        flags = ["-x", "c++"] if language == "c++11" else []
        lenient = ["-w"] if precision == "float32" else []  # emx-onnx-cgen's own C: docs/bundle.md
        argv = ["gcc", *STRICT, *lenient, f"-std={language}", *flags, "-fsyntax-only", *sources]
        subprocess.run(argv, cwd=folder / "src", check=True)
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1", "-w"]
    sources = [str(path) for path in (folder / "src").glob("*.c")]
    argv = ["gcc", *checks, "-Isrc", "examples/host/main.c", *sources, "-lm", "-o", "answer"]
    subprocess.run(argv, cwd=folder, check=True)
    return folder / "answer"


def said(program: Path, given: bytes) -> list[list[str]]:
    done = subprocess.run([program], input=given, capture_output=True, check=True)
    return [line.split(" ") for line in done.stdout.decode().splitlines()]


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_values_come_in_their_own_units(host_gcc: None, precision: Precision, tmp_path: Path) -> None:
    made = deployed_network("plain", precision)
    program = built(tmp_path, made, api.Told(VALUES), precision)
    for picture in images(4)[2:]:
        (line,) = said(program, b"P6 12 12 255\n" + picture.transpose(1, 2, 0).tobytes())
        wanted = VALUES.answers(made.values(picture[None]), picture[None])[0]
        words = " ".join(line)
        for target in VALUES.targets:
            head, _, words = words.partition(f"{target.name} ")
            assert not head.strip(), "each value behind its name, whatever that holds"
            value, _, words = words.partition(" ")
            at = VALUES.targets.index(target)
            assert float(value) == pytest.approx(wanted[at], rel=1e-5, abs=1e-5)
    readme = (tmp_path / "README.md").read_text()
    assert "estimates 5 values" in readme and "net_estimate(pixels" in readme and "mae 1.0000" in readme


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_a_score_is_pythons_and_the_threshold_decides(host_gcc: None, precision: Precision, tmp_path: Path) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (8, 1, 6, 6), dtype=np.uint8)
    made = autoencoder((1, 6, 6), pictures, precision)
    scores = ANOMALY.answers(made.values(pictures), pictures)
    least = float(np.sort(scores)[3:5].mean())
    program = built(tmp_path, made, api.Told(ANOMALY, least), precision)
    for picture, score in zip(pictures, scores, strict=True):
        ((word, value),) = said(program, b"P5 6 6 255\n" + picture.tobytes())
        assert float(value) == pytest.approx(score, rel=1e-5)
        assert word == ("anomaly" if score >= least else "normal")
    header = (tmp_path / "src" / "net.h").read_text()
    assert "#define NET_OUTPUTS 36" in header and "NET_CLASSES" not in header and "largest wins" not in header


def test_a_stream_is_scored_window_by_window(host_gcc: None, tmp_path: Path) -> None:
    samples = noise(MOTION, MOTION.span + 20)
    windows = np.stack([MOTION.window(samples[at:]) for at in range(21)])
    made = dataclasses.replace(autoencoder(windows.shape[1:], windows, "int8"), front_end=MOTION)
    scores = ANOMALY.answers(made.values(windows), windows)
    program = built(tmp_path, made, api.Told(ANOMALY, float(np.median(scores)) + 1e-9), "int8")
    lines = said(program, samples.tobytes())
    assert [float(value) for _, value in lines] == pytest.approx(scores.tolist(), rel=1e-5)
    assert {word for word, _ in lines} == {"anomaly", "normal"}
