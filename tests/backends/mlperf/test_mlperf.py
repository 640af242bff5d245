"""MLPerf Tiny's firmware in QEMU: its protocol line by line, the pin of energy mode, and the public runner itself."""

import re
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from automcu_ray.core.errors import ConfigError, ToolchainError
from automcu_ray.problem.target import Constraints
from automcu_ray.testing.networks import deployed_network
from backends.boards.base import Port
from backends.boards.qemu import QemuBoard
from backends.c_qemu.backend import CQemuBackend
from backends.c_qemu.handover import api
from backends.mlperf.build import build
from backends.mlperf.kit import write_pictures, write_scripts
from backends.mlperf.runner import run_runner
from tests.backends.conftest import read_target

RUNNER = Path(__file__).parents[4] / "shared" / "peers" / "mlperf-tiny" / "runner"
DEPLOYED = deployed_network("plain", "int8")
PICTURES = np.random.default_rng(5).integers(0, 256, (25, *DEPLOYED.input_shape), dtype=np.uint8)


@pytest.fixture(scope="module")
def sources(qemu: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a bundle's `src`."""
    work = tmp_path_factory.mktemp("mlperf")
    CQemuBackend().build(DEPLOYED, read_target("stm32f407"), Constraints(), work)
    made = work / "src"
    made.mkdir()
    (made / "net.c").write_bytes((work / "net.c").read_bytes())
    (made / "net.h").write_text(api.header((work / "net.h").read_text(), DEPLOYED, None))
    (made / "net_api.c").write_text(api.source(DEPLOYED, None, ()))
    return made


def ask(port: Port, command: str) -> list[str]:
    port.write(f"{command}%".encode())
    return bytes(port.read_until(b"m-ready\r\n", 1 << 14)).decode().split("\r\n")[:-2]


def send(port: Port, picture: np.ndarray) -> list[str]:
    data = picture.transpose(1, 2, 0).tobytes()
    assert ask(port, f"db load {len(data)}") == [f"m-[Expecting {len(data)} bytes]"]
    return [line for at in range(0, len(data), 31) for line in ask(port, f"db {data[at : at + 31].hex()}")]


def scores_of(lines: list[str]) -> np.ndarray:
    return np.array([float(one) for one in re.fullmatch(r"m-results-\[(.*)\]", lines[-1])[1].split(",")])  # type: ignore[index]


@pytest.mark.parametrize("name", ["stm32f407", pytest.param("rp2040", marks=pytest.mark.thorough)])
def test_a_picture_sent_in_the_protocol_is_classified_as_onnxruntime_does(
    name: str, sources: Path, tmp_path: Path
) -> None:
    target = read_target(name)
    elf = build(sources, target, tmp_path / "build", emulated=True)
    with QemuBoard(timeout_s=20).connect(elf, target) as port:
        said = bytes(port.read_until(b"m-ready\r\n", 1 << 12)).decode()
        assert re.fullmatch(r"m-timestamp-mode-performance\r\nm-lap-us-\d+\r\nm-init-done\r\nm-ready\r\n", said)
        assert ask(port, "name") == ["m-name-dut-[automcu]"] and "m-model-[ic01]" in ask(port, "profile")
        for picture in PICTURES[:2]:
            assert send(port, picture) == ["m-load-done"]
            for lines in (ask(port, "infer 3 1"), ask(port, "infer 1")):  # the input outlives an inference
                exact = DEPLOYED.run(picture[None])[0].astype(float) * DEPLOYED.output_scale
                wanted = np.exp(exact - exact.max()) / np.exp(exact - exact.max()).sum()
                np.testing.assert_allclose(scores_of(lines), wanted, atol=2e-6)
        assert lines[:3] == ["m-warmup-start-10", "m-warmup-done", "m-infer-start-1"]
        shown = "".join(ask(port, "db print")).replace("m-buffer-", "").replace("-", "")
        assert bytes.fromhex(shown) == PICTURES[1].transpose(1, 2, 0).tobytes()
        laps = [int(ask(port, "timestamp")[0].removeprefix("m-lap-us-")) for _ in range(2)]
        assert laps[0] < laps[1]


def test_wild_commands_are_refused_and_the_next_one_is_answered(sources: Path, tmp_path: Path) -> None:
    target = read_target("stm32f407")
    elf = build(sources, target, tmp_path / "build", emulated=True)
    with QemuBoard(timeout_s=20).connect(elf, target) as port:
        port.read_until(b"m-ready\r\n", 1 << 12)
        wild = ["nonsense", "", "db", "db load 0", "db load 99999999999", "db load -1", "db zz", "db load 433",
                "infer 0", "infer 1 -1", "infer x", "a" * 500]  # fmt: skip
        for command in wild:
            assert [line[:3] for line in ask(port, command)] == ["e-["], command
        assert send(port, PICTURES[0]) == ["m-load-done"]
        assert ask(port, "db ff") == ["e-[No bytes are expected]"]
        assert scores_of(ask(port, "results")).shape == (5,)


def test_in_energy_mode_the_pin_falls_twice_an_inference_and_no_time_is_printed(sources: Path, tmp_path: Path) -> None:
    target = read_target("stm32f407")
    pin = target.timing_pin
    assert pin is not None
    elf = build(sources, target, tmp_path / "build", energy=True, emulated=True)
    argv = ["qemu-system-arm", "-machine", "netduinoplus2", "-kernel", str(elf), "-display", "none", "-monitor", "none"]
    log = tmp_path / "unimplemented.log"  # QEMU has no such pins, and notes what is written to them
    argv += ["-icount", "shift=0", "-serial", "stdio", "-d", "unimp", "-D", str(log)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as qemu:
        assert qemu.stdin is not None and qemu.stdout is not None
        watchdog = threading.Timer(30, qemu.kill)
        watchdog.start()
        try:
            said = [qemu.stdout.readline().decode() for _ in range(3)]  # a byte that comes before the boot is lost
            qemu.stdin.write(b"infer 1 0%")
            qemu.stdin.flush()
            said += [qemu.stdout.readline().decode() for _ in range(6)]
        finally:
            qemu.kill()
            watchdog.cancel()
    assert said[0] == "m-timestamp-mode-energy\r\n" and not [line for line in said if "lap" in line]
    assert said[6] == "m-infer-done\r\n"
    offset = f"offset {pin.low.address & 0x3FF:#x}"
    written = [int(line.rsplit("value ", 1)[1].rstrip(")\n"), 16) for line in log.read_text().splitlines()
               if "GPIOA" in line and "write" in line and re.sub("0x0*", "0x", line).find(offset) > 0]  # fmt: skip
    falls, rises = pin.low.value, pin.high.value
    assert written == [rises, *[falls, rises] * 3]  # at the start, then one for the boot and two for the inference


def test_energy_mode_wants_a_pin_and_a_model_that_classifies(sources: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="timing_pin"):
        build(sources, read_target("rp2040"), tmp_path / "a", energy=True, emulated=True)
    with pytest.raises(ConfigError, match="known: ic01"):
        build(sources, read_target("stm32f407"), tmp_path / "b", model='x"')


def test_what_is_no_runner_is_told(stm32f405: object, tmp_path: Path) -> None:
    target = read_target("stm32f407")
    with pytest.raises(ConfigError, match="mlcommons/tiny"):
        run_runner(tmp_path, tmp_path, "accuracy", QemuBoard(), tmp_path, target, tmp_path / "w")


@pytest.mark.slow
def test_the_public_runner_unmodified_measures_accuracy_and_performance(sources: Path, tmp_path: Path) -> None:
    if not RUNNER.is_dir():
        pytest.skip("needs ../shared/peers/mlperf-tiny")
    target, labels = read_target("stm32f407"), np.arange(len(PICTURES)) % 5
    outputs = DEPLOYED.run(PICTURES)
    labels[:18] = outputs[:18].argmax(axis=1)  # most are right, and every class is there
    elf = build(sources, target, tmp_path / "build", emulated=True)
    write_pictures(PICTURES, labels, 5, tmp_path / "kit" / "datasets" / "ic01")
    write_scripts(tmp_path / "kit", "ic01", 500)
    board = QemuBoard(timeout_s=60, icount_shift=3)
    told = run_runner(RUNNER, tmp_path / "kit", "accuracy", board, elf, target, tmp_path / "accuracy")
    ours = float(np.mean(outputs.argmax(axis=1) == labels))
    assert float(np.mean([one.right for one in told.answers])) == ours and len(told.answers) == len(PICTURES)
    assert any(f"Top 1% = {100 * ours:2.1f}" in line for line in told.said)
    quick = run_runner(RUNNER, tmp_path / "kit", "performance", board, elf, target, tmp_path / "performance")
    throughput = [one.throughput for one in quick.answers]
    assert len(throughput) == 5 and any("Median throughput is" in line for line in quick.said)
    assert len({round(one, 2) for one in throughput if one}) == 1  # instructions, which are the same every time


def test_a_runner_that_fails_says_its_last_line(tmp_path: Path, sources: Path) -> None:
    target = read_target("stm32f407")
    elf = build(sources, target, tmp_path / "build", emulated=True)
    (tmp_path / "runner").mkdir()
    (tmp_path / "runner" / "main.py").write_text("raise SystemExit('no luck')")
    with pytest.raises(ToolchainError, match="no luck"):
        run_runner(tmp_path / "runner", tmp_path, "accuracy", QemuBoard(), elf, target, tmp_path / "w")
