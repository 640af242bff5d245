"""Paper 001's boards, whole up to the cable: vendors' tools and boards are stand-ins, all between them is real."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from automcu_ray.core.errors import BoardError, ToolchainError, ToolMissingError
from automcu_ray.problem.arena import ArenaTask
from automcu_ray.records.attempt import Observation
from automcu_ray.run.run_arena import compose
from automcu_ray.testing.networks import deployed_network
from backends.ai8x.backend import PROJECT, Ai8xBackend
from backends.arena import max78000, vendor
from backends.arena.esp32s3 import Esp32S3Rig
from backends.arena.max78000 import Max78000Rig, accelerated
from backends.arena.rigs import RIGS, rig_of
from backends.arena.stm32n6 import Stm32N6Rig, read_answers
from backends.boards.pool import BoardEntry, Pool
from backends.instruments.replay import save
from backends.instruments.trace import PowerTrace
from backends.programs import Completed
from backends.stedgeai.backend import OUTPUT, StEdgeAiBackend
from tests.backends.arena.desk import HOST, Desk
from tests.backends.stedgeai import fake_stedgeai
from trainables.arena.recording import objective, over_ceilings
from trainables.arena.workload import Workload, prepare, write_seed
from trainables.firmware import examine

DELAY_US, AMPERES, VOLTS = 20_000, 0.012, 3.3
LOADS = "  memcpy32((uint32_t *) 0x50400000, input_0, 64);\n"  # of ai8xize's main.c for 1x8x8
SMALL = ["workload.network.backbone=[{type: conv, out_channels: 4}, {type: max_pool}]", "workload.training.epochs=2"]


def task_of(name: str, *changes: str) -> ArenaTask:
    return compose(name, ("hil",), "agent", "openai", 0, [*SMALL, *changes], None).task


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    made = Desk(tmp_path / "desk")
    monkeypatch.setenv("PATH", f"{made.bin}:{os.environ['PATH']}")
    monkeypatch.setattr(vendor, "BOOT_DELAY_US", DELAY_US)
    for rig in (Max78000Rig, Esp32S3Rig):
        monkeypatch.setattr(rig, "delay_ticks", DELAY_US)
    yield made
    made.close()


def attempt(task: ArenaTask, workload: Workload, entry: BoardEntry, artifact: Path, folder: Path) -> Observation:
    pool = Pool([entry], folder / "locks")
    found = examine(task, workload, pool, 1, artifact, folder / "work")
    assert not found.infrastructure and pool.faults(entry.id) == [], found
    return found


@pytest.fixture
def accelerator(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Computes what stand-ins for the accelerator send: `network` is its integers' run, `port` where it listens."""
    told: dict[str, Any] = {"words": 64}
    server = socket.create_server(("127.0.0.1", 0))
    told["port"] = server.getsockname()[1]

    def serve() -> None:
        while True:
            try:
                line, _ = server.accept()
            except OSError:
                return
            with line:
                data = line.recv(4 * told["words"], socket.MSG_WAITALL)
                image = np.frombuffer(data, "<u4").astype(np.uint8).view(np.int8).reshape(1, 1, 8, 8)
                line.sendall(told["run"](image)[0].astype("<i4").tobytes())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield told
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def with_msdk(desk: Desk, folder: Path) -> tuple[str, str]:
    """Put the MSDK's tools on a desk; return what a task says of them."""
    (folder / "sdk").mkdir()
    (folder / "ai8x" / "assets" / "makefile").mkdir(parents=True)
    (folder / "ai8x" / "assets" / "makefile" / "Makefile").write_text("BOARD ?= ##__BOARD__##\n")
    desk.program("make", desk.builder(".", "-DINPUT_BYTES=64 -DOUTPUT_BYTES=40 -DBOOT_DELAY_TICKS=20000"))
    desk.program("openocd", desk.flasher('"$(echo "$*" | sed "s/.*program \\([^ ]*\\) verify.*/\\1/")"'))
    return f"rig.sdk={folder / 'sdk'}", f"rig.checkout={folder / 'ai8x'}"


def write_stand_in(folder: Path, port: int) -> None:
    """Write the C of an accelerator that asks the one at a port."""
    (folder / "weights.h").write_text(
        f"#define DATA 0x50400000\n#define WORDS 64\n#define OUTPUTS 10\n#define TESTER {port}\n"
    )
    for name in ("cnn.c", "cnn.h"):
        (folder / name).write_bytes((HOST / name).read_bytes())


@pytest.mark.thorough
@pytest.mark.usefixtures("sandbox")
def test_max78000_energy_from_the_projects_files_to_the_trace_of_its_current(
    desk: Desk, accelerator: dict[str, Any], tmp_path: Path
) -> None:
    task = task_of("max78000_energy", *with_msdk(desk, tmp_path), "feasibility.idle_seconds=0.05")
    save(PowerTrace(np.full(60 * 1000, AMPERES), 1000, VOLTS), tmp_path / "trace.npz")
    entry = BoardEntry(
        id="desk", runner="max78000", serial=desk.serial, probe_id="04170001", instrument="replay",
        instrument_options={"path": str(tmp_path / "trace.npz")},
    )  # fmt: skip
    workload = prepare(task, tmp_path / "workload")
    network, _ = max78000.convert(workload.seed, task.target, task.constraints)
    accelerator["run"] = network.run
    artifact = tmp_path / "artifact"
    artifact.mkdir()
    (artifact / "net.c").write_text(accelerated(LOADS, (1, 8, 8)))
    write_stand_in(artifact, accelerator["port"])
    found = attempt(task, workload, entry, artifact, tmp_path / "one")
    assert [check.name for check in found.checks] == ["files", "build", "fit", "flash", "run", "behaviour", "ceiling"]
    assert found.valid and found.figures.runs == 5 and found.figures.peak_amperes == AMPERES
    assert found.objective is not None and found.figures.seconds is not None
    assert found.objective == pytest.approx(AMPERES * VOLTS * found.figures.seconds / 5, rel=0.1)
    assert found.figures.seconds > 4 * 0.05  # the idle times are in it
    assert objective(task_of("max78000_peak"), found.figures) == AMPERES  # the same run by another objective
    log = next((tmp_path / "one").rglob("build.log")).read_text().splitlines()
    assert log == ["--no-builtin-rules", "--no-print-directory", "--jobs=2", "TARGET=MAX78000", "BOARD=EvKit_V1",
                   f"MAXIM_PATH={tmp_path / 'sdk'}"]  # fmt: skip
    assert "-DBOOT_DELAY_TICKS=20000" in next((tmp_path / "one").rglob("project.mk")).read_text()
    assert "adapter serial 04170001" in (desk.log / "openocd").read_text()

    accelerator["run"] = lambda image: network.run(image) + 1
    bare = entry.replace(instrument=None)  # what fails is not measured
    found = attempt(task, workload, bare, artifact, tmp_path / "two")
    assert not found.valid and found.checks[-1].detail == "5 of 5 outputs differ from the seed network's"

    (artifact / "net.c").write_text("void net(const char *in, int *out) { out[0] = in[0] }")
    found = attempt(task, workload, bare, artifact, tmp_path / "three")
    assert found.checks[-1].name == "build" and "error" in found.checks[-1].detail


@pytest.mark.thorough
@pytest.mark.training
@pytest.mark.usefixtures("sandbox")
def test_max78000_compress_from_network_yaml_to_the_share_of_images_that_its_board_answers_wrongly(
    desk: Desk, accelerator: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ai8xize is a stand-in: what the accelerator takes, and its integers, are those that we expect of it."""

    def ai8xize(self: Ai8xBackend, network: Any, placement: Any, target: Any, workdir: Path) -> Any:
        (workdir / PROJECT).mkdir()
        (workdir / PROJECT / "main.c").write_text(LOADS)
        write_stand_in(workdir / PROJECT, accelerator["port"])
        accelerator["run"] = network.run
        return (), ()

    monkeypatch.setattr(Ai8xBackend, "_generate", ai8xize)
    training = "{epochs: 12, batch_size: 32, learning_rate: 0.1}"
    task = task_of("max78000_compress", *with_msdk(desk, tmp_path), "workload.dataset=digits",
                   "feasibility.images=20", f"workload.training={training}")  # fmt: skip
    workload = prepare(task, tmp_path / "workload")
    write_seed(task, workload, tmp_path / "artifact", tmp_path / "tools")
    entry = BoardEntry(id="desk", runner="max78000", serial=desk.serial, probe_id="04170001")
    found = attempt(task, workload, entry, tmp_path / "artifact", tmp_path / "one")
    assert [check.name for check in found.checks] == ["files", "train", "build", "fit", "flash", "run", "behaviour"]
    assert found.valid and found.figures.runs == 20 and found.figures.accuracy is not None
    assert found.figures.accuracy >= 0.3 and found.objective == pytest.approx(1 - found.figures.accuracy)

    honest = accelerator["run"]
    monkeypatch.setattr(Ai8xBackend, "_generate", lambda *about: (ai8xize(*about), accelerator.update(
        run=lambda image: np.zeros_like(honest(image))))[0])  # fmt: skip
    found = attempt(task, workload, entry, tmp_path / "artifact", tmp_path / "two")
    assert not found.valid and found.checks[-1].name == "behaviour" and "0.3" in found.checks[-1].detail

    wide = "{type: conv, out_channels: 256}"
    halved = "{type: conv, out_channels: 32}, {type: max_pool}"
    layers = f"backbone: [{halved}, {halved}, {wide}, {wide}]"
    text = f"network: {{{layers}}}\ntraining: {training.replace('12', '1')}\n"
    (tmp_path / "artifact" / "network.yaml").write_text(text)
    found = attempt(task, workload, entry, tmp_path / "artifact", tmp_path / "three")
    assert found.checks[-1].name == "build" and "weight" in found.checks[-1].detail and "442" in found.checks[-1].detail


@pytest.mark.slow
@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(("name", "clients", "sample_hz"), [("esp32s3_contact", 80, 200), ("esp32s3_room", 150, 0)])
def test_esp32s3_from_sdkconfig_to_the_heat_of_its_run(
    name: str, clients: int, sample_hz: int, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "idf").mkdir()
    monkeypatch.setenv("IDF_TOOLS_PATH", str(desk.bin.parent))
    host, slave = os.openpty()
    ended, desk.boot_s = threading.Event(), 0.5  # the port is opened after the flasher: here nothing resets the chip

    def feel() -> None:
        for number in range(10_000):
            if ended.wait(0.01):
                return
            os.write(host, f"T {30 + min(number, 5)}.0\n".encode())

    warmth = threading.Thread(target=feel, daemon=True)
    task = task_of(name, f"rig.sdk={tmp_path / 'idf'}", "feasibility.random_inputs=20",
                   "feasibility.images=20", "feasibility.run_seconds=20", "rise_weight=2")  # fmt: skip
    flags = "-DINPUT_BYTES=64 -DOUTPUT_BYTES=10 -DBOOT_DELAY_TICKS=20000 -DROM_LOG='\"ESP-ROM:esp32s3-20210327\"'"
    build, flash = desk.builder("main", flags), desk.flasher('"$2/build/firmware.elf"').removeprefix("#!/bin/sh\n")
    desk.program("idf.py", build.replace("#!/bin/sh\n", f'#!/bin/sh\ncase "$*" in *flash) {flash} exit;; esac\n'))
    entry = BoardEntry(
        id="desk", runner="idf.py", serial=desk.serial, instrument="thermometer",
        instrument_options={"port": os.ttyname(slave), "ambient_c": 25.0},
    )  # fmt: skip
    workload = prepare(task, tmp_path / "workload")
    write_seed(task, workload, tmp_path / "artifact", tmp_path / "tools")
    (tmp_path / "artifact" / "artifact.yaml").write_text("sdkconfig: {CONFIG_PM_ENABLE: true}\n")
    warmth.start()
    try:
        found = attempt(task, workload, entry, tmp_path / "artifact", tmp_path / "one")
    finally:
        ended.set()
        warmth.join()
    figures = found.figures
    assert found.valid and figures.runs == 40 and figures.peak_celsius == pytest.approx(35, abs=5)
    assert figures.peak_rise_kelvin is not None and figures.seconds is not None
    assert found.objective == pytest.approx(2 * figures.peak_rise_kelvin + figures.seconds)
    hot = task.replace(feasibility=task.feasibility.replace(max_celsius=20))
    assert "the peak temperature in Celsius is 35, the ceiling 20" in over_ceilings(hot, figures)
    assert any("ESP-ROM" in line for line in found.serial) or len(found.serial) == 24
    log = next((tmp_path / "one").rglob("build.log")).read_text().splitlines()
    assert log[0] == "--project-dir" and log[2:] == ["--define-cache-entry", "IDF_TARGET=esp32s3", "build"]
    settings = next((tmp_path / "one").rglob("sdkconfig.defaults")).read_text().splitlines()
    assert settings[0] == "CONFIG_PM_ENABLE=y" and "CONFIG_ESP_CONSOLE_NONE=y" in settings[1:]
    cmake = next((tmp_path / "one").rglob("main/CMakeLists.txt")).read_text()
    assert f"-DCLIENTS={clients}" in cmake and f"-DSAMPLE_HZ={sample_hz}" in cmake and "main=app_main" in cmake


def test_what_ai8xize_loads_otherwise_is_refused() -> None:
    assert "(volatile uint32_t *)0x50400000" in accelerated(LOADS, (1, 8, 8))
    with pytest.raises(ToolchainError, match="2 times 64 words"):
        accelerated(LOADS, (5, 8, 8))


class FakeCore:
    """ST Edge AI Core and its loader: writes down what it is asked, and answers as the int8 network would."""

    def __init__(self, answers: Any = None, loads: bool = True) -> None:
        self.asked: list[list[str]] = []
        self.answers, self.loads = answers, loads

    def __call__(self, argv: Sequence[str], *, timeout_s: float, cwd: Path) -> Completed:
        self.asked.append(list(argv))
        if "validate" in argv and self.answers is not None:
            np.savez(cwd / OUTPUT / "network_val_io.npz", c_outputs_1=self.answers(np.load(cwd / "inputs.npy")))
        failed = not self.loads and "--build-config" in argv
        return subprocess.CompletedProcess(argv, int(failed), "", "no ST-LINK found" if failed else "")


def test_stm32n6_loads_and_validates_on_the_board_and_reads_its_answers(tmp_path: Path) -> None:
    core, task = (
        FakeCore(lambda inputs: np.arange(10).reshape(2, 1, 1, 5)),
        task_of("stm32n6_compress", f"rig.sdk={tmp_path}"),
    )
    rig, entry = Stm32N6Rig(task), BoardEntry(id="n6", runner="none", serial="/dev/ttyACM0", baud=921600)
    deployed = deployed_network("plain", "int8")
    tool, inputs = StEdgeAiBackend(neural_art="default", run=core), np.zeros((2, 3, 12, 12), np.int8)
    assert (
        rig.answers(tool, entry, deployed, inputs, tmp_path, run=core).tolist() == np.arange(10).reshape(2, 5).tolist()
    )
    loader, validate = core.asked
    assert loader[1:] == [str(tmp_path / "scripts/N6_scripts/n6_loader.py"), "--build-config", "N6-Nucleo-USART1"]
    assert validate[1] == "validate" and "--st-neural-art default" in " ".join(validate)
    assert validate[-6:] == ["--mode", "target", "--desc", "serial:/dev/ttyACM0:921600", "--valinput", "inputs.npy"]
    with pytest.raises(BoardError, match=r"n6_loader failed.*no ST-LINK found"):
        rig.answers(tool, entry, deployed, inputs, tmp_path, run=FakeCore(loads=False))
    with pytest.raises(ToolchainError, match="c_outputs_1"):
        read_answers(tmp_path / "nothing", 2, 10)


CORE = """#!{python}
import runpy, sys
from pathlib import Path
import numpy as np, onnxruntime
options = dict(zip(sys.argv[2:], sys.argv[3:]))
if options.get("--mode") == "target":
    network = onnxruntime.InferenceSession(options["--model"], providers=["CPUExecutionProvider"])
    (given,), encoded = network.get_inputs(), np.load(options["--valinput"])
    answers = [network.run(None, {{given.name: one[None].astype(np.float32) / 128}})[0] for one in encoded]
    np.savez(Path(options["--output"], "network_val_io.npz"), c_outputs_1=np.stack(answers))
    Path({log!r}).write_text(options["--desc"])
else:
    runpy.run_path({fake!r}, run_name="__main__")
"""


@pytest.mark.thorough
@pytest.mark.toolchain
@pytest.mark.training
def test_stm32n6_compress_from_network_yaml_to_the_share_of_images_that_its_board_answers_wrongly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ST's tool on PATH and the loader of its folder are stand-ins; the first answers as its ONNX file does."""
    core, loaded, asked = tmp_path / "core", tmp_path / "loaded", tmp_path / "asked"
    loader = f"#!/bin/sh\necho $* > {loaded}\n"
    tool = CORE.format(python=sys.executable, log=str(asked), fake=fake_stedgeai.__file__)
    for path, text in {
        core / "Utilities" / "linux" / "python": loader, core / "scripts" / "N6_scripts" / "n6_loader.py": "",
        tmp_path / "bin" / "stedgeai": tool, tmp_path / "bin" / "arm-none-eabi-gcc": "#!/bin/sh\necho 12.3.1\n",
    }.items():  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.delenv("STEDGEAI_CORE_DIR", raising=False)
    task = task_of("stm32n6_compress", f"rig.sdk={core}", "workload.dataset=digits", "feasibility.images=50",
                   "workload.training={epochs: 6, batch_size: 32, learning_rate: 0.1}")  # fmt: skip
    workload = prepare(task, tmp_path / "workload")
    write_seed(task, workload, tmp_path / "artifact", tmp_path / "tools")
    entry = BoardEntry(id="n6", runner="none", serial="/dev/ttyACM0", baud=921600)
    found = attempt(task, workload, entry, tmp_path / "artifact", tmp_path / "one")
    assert [check.name for check in found.checks] == ["files", "train", "build", "flash", "run", "behaviour"]
    assert found.objective is not None and found.figures.accuracy is not None and found.figures.runs == 50
    assert found.objective == pytest.approx(1 - found.figures.accuracy) and found.figures.accuracy >= 0.3
    assert "--build-config N6-Nucleo-USART1" in loaded.read_text() and asked.read_text() == "serial:/dev/ttyACM0:921600"
    loaded.unlink()
    (tmp_path / "artifact" / "network.yaml").write_text("network: {backbone: [{type: transformer}]}\n")
    found = attempt(task, workload, entry, tmp_path / "artifact", tmp_path / "two")
    assert found.checks[-1].name == "train" and not found.checks[-1].passed and not loaded.exists()


LACKING = {
    "qemu": ("qemu_speed", ["arm-none-eabi-gcc", "qemu-system-arm"]),
    "max78000": ("max78000_peak", ["make", "openocd", "MSDK", "ai8x-synthesis"]),
    "esp32s3": ("esp32s3_room", ["idf.py", "IDF_PATH"]),
    "stm32n6": ("stm32n6_compress", ["STM32_Programmer_CLI", "ST Edge AI Core"]),
}


@pytest.mark.parametrize("name", RIGS)
def test_a_machine_without_the_tools_says_in_one_line_all_that_is_missing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for variable in ("MAXIM_PATH", "IDF_PATH", "STEDGEAI_CORE_DIR"):
        monkeypatch.delenv(variable, raising=False)
    task, wanted = LACKING[name]
    with pytest.raises(ToolMissingError) as told:
        rig_of(task_of(task)).require()
    assert all(word in str(told.value) for word in wanted) and "\n" not in str(told.value)
