import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.problem.task import Task
from automcu_ray.testing.backend_contract import BackendContract
from automcu_ray.testing.networks import deployed_network
from backends.base import Backend, Firmware
from backends.c_qemu.backend import CQemuBackend
from backends.venvs.base import probes
from backends.venvs.environment import ENVIRONMENTS
from backends.venvs.vela import VelaBackend
from tests.backends.forms import FORMS, Enlarged, network_with
from tests.backends.random_networks import trained_network
from tests.backends.venvs.test_vela_summary import ON_ACCELERATOR, ON_BOTH, summary


class FakeVela:
    """Stands for both programs of the environment: writes answers, then a compiled file and a summary."""

    def __init__(self, deployed: DeployedNetwork, *, says: str = ON_ACCELERATOR, csv: str = summary()) -> None:
        self.deployed, self.says, self.csv = deployed, says, csv
        self.commands: list[list[str]] = []
        self.offset, self.exit_status = 0, 0

    def __call__(self, argv: Sequence[str], *, timeout_s: float, cwd: Path) -> subprocess.CompletedProcess[str]:
        self.commands.append(list(argv))
        if "ethosu.vela" not in argv:
            self.answer(cwd)
        elif not self.exit_status:
            (cwd / "vela").mkdir()
            (cwd / "vela" / "net_vela.tflite").write_bytes(bytes(3000))
            (cwd / "vela" / "net_summary_Ethos_U55_High_End_Embedded.csv").write_text(self.csv)
        return subprocess.CompletedProcess(argv, self.exit_status, self.says, "Traceback\nRuntimeError: no such luck\n")

    def answer(self, folder: Path) -> None:
        (folder / "net.tflite").write_bytes(b"model")
        answers = self.deployed.run(probes(self.deployed.input_shape)).astype(int) + self.offset
        answers.clip(-128, 127).astype(np.int8).tofile(folder / "answers.int8")


@pytest.fixture
def fake(look_ready: Callable[[str], None]) -> FakeVela:
    look_ready("vela")
    return FakeVela(deployed_network("plain", "int8"))


@pytest.fixture
def build(fake: FakeVela, target: McuTarget, tmp_path: Path) -> Callable[..., Firmware]:
    (tmp_path / "work").mkdir()

    def run(backend: VelaBackend | None = None, **limits: float) -> Firmware:
        return (backend or VelaBackend(run=fake)).build(fake.deployed, target, Constraints(**limits), tmp_path / "work")

    return run


def test_an_environment_that_is_not_there_comes_with_the_line_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOMCU_CACHE", str(tmp_path))
    assert VelaBackend().missing_programs() == ("virtual environment 'vela'",)
    assert VelaBackend().how_to_install() == "python -m backends.venvs vela"


def test_commands_for_an_ethos_u65(fake: FakeVela, build: Callable[..., Firmware]) -> None:
    fake.csv = summary(accelerator_configuration="Ethos_U65_256")
    build(VelaBackend(accelerator="ethos-u65-256", memory_mode="Dedicated_Sram", run=fake))
    write, compiled = fake.commands
    assert write[0] == compiled[0] == str(ENVIRONMENTS["vela"].python)
    assert write[1].endswith("foreign/write_tflite.py") and write[2:] == ["."]
    assert compiled[1:4] == ["-m", "ethosu.vela", "net.tflite"]
    assert compiled[compiled.index("--accelerator-config") + 1] == "ethos-u65-256"
    assert compiled[compiled.index("--memory-mode") + 1] == "Dedicated_Sram"
    assert "--system-config" not in compiled and "--show-cpu-operations" in compiled


def test_figures_are_in_the_report_and_estimates_are_called_so(fake: FakeVela, build: Callable[..., Firmware]) -> None:
    made = build()
    assert made.report.feasible and made.elf is None
    assert made.report.ram_bytes == 3088 and made.report.flash_bytes == 3000  # 3.015625 KB; the compiled file
    assert made.report.ram is None and made.report.flash is None and made.report.instructions is None
    notes = "\n".join(made.report.notes)
    assert "estimated by Vela, not measured: 5249 cycles, 0.010 ms at 500 MHz" in notes
    assert "SRAM 3088 bytes, DRAM 0 bytes, constants in Flash 1344 bytes" in notes
    assert "2 operators on the accelerator, 0 on the CPU" in notes
    assert "stm32f405 is taken to have an ethos-u55-128" in notes
    assert [path.name for path in made.sources] == [
        "net.tflite",
        "net_vela.tflite",
        "net_summary_Ethos_U55_High_End_Embedded.csv",
    ]


def test_operators_that_fall_back_are_named_with_the_reason(fake: FakeVela, build: Callable[..., Firmware]) -> None:
    fake.says = ON_BOTH
    made = build()
    assert "on the CPU: RESIZE_NEAREST_NEIGHBOR /up/Resize: unsupported scale-factor=3" in made.report.notes


def test_too_large_names_the_layer_and_the_bytes(fake: FakeVela, build: Callable[..., Firmware]) -> None:
    made = build(ram_kb=3, flash_kb=2)
    ram, flash = made.report.violations
    assert (ram.resource, ram.found_bytes, ram.limit_bytes, ram.over_bytes) == ("ram", 3088, 3072, 16)
    assert ram.where == "node0_quant"  # 3x12x12 in, 8x12x12 out: 1584 bytes
    assert "input and output of node0_quant (1584 bytes)" in ram.message
    assert (flash.resource, flash.over_bytes) == ("flash", 3000 - 2048)
    assert (
        deployed_network("plain", "int8").in_words(flash.where) == "head" and "(380 bytes)" in flash.message
    )  # 72 x 5, and 5 biases of 4
    assert made.sources == ()


def test_a_network_that_answers_otherwise_is_an_error(fake: FakeVela, build: Callable[..., Firmware]) -> None:
    fake.offset = 9
    with pytest.raises(ToolchainError, match=r"should answer as onnxruntime does, found \d\.\d of 256 steps"):
        build()


@pytest.mark.parametrize(
    "rubbish", [b"", b"PK\x03\x04garbage", b"\x93NUMPY\x01\x00" + b"(" * 9000, bytes(41), bytes(32)]
)
def test_rubbish_in_place_of_answers_is_an_error(
    fake: FakeVela, build: Callable[..., Firmware], rubbish: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "answer", lambda folder: (folder / "answers.int8").write_bytes(rubbish))
    with pytest.raises(ToolchainError, match=r"answers\.int8 should hold int8 answers of shape \(8, 5\)"):
        build()


def test_what_an_earlier_build_left_is_no_answer(
    fake: FakeVela, build: Callable[..., Firmware], monkeypatch: pytest.MonkeyPatch
) -> None:
    build()
    monkeypatch.setattr(fake, "answer", lambda folder: None)
    with pytest.raises(ToolchainError, match="found none"):
        build()


def test_a_refusal_is_an_error_with_its_last_line(fake: FakeVela, build: Callable[..., Firmware]) -> None:
    fake.exit_status = 1
    with pytest.raises(ToolchainError, match="vela refused the network: RuntimeError: no such luck"):
        build()


@pytest.mark.parametrize(
    "csv",
    [
        summary(network="other"),
        summary(accelerator_configuration="Ethos_U55_256"),
        summary() + summary().splitlines()[1],
        "",
    ],
)
def test_a_summary_of_something_else_is_an_error(fake: FakeVela, build: Callable[..., Firmware], csv: str) -> None:
    fake.csv = csv
    with pytest.raises(ToolchainError, match="summary"):
        build()


def test_only_int8_is_suitable(digits_task: Task) -> None:
    assert VelaBackend().unsuitable(digits_task) == ""
    assert "float32" in VelaBackend().unsuitable(digits_task.replace(precision="float32"))


def test_nothing_is_foreseen_for_a_compiler_that_needs_less_than_our_bounds(digits_task: Task) -> None:
    """Its files are smaller than the weights, its memory smaller than the largest map: neither is certain."""
    tight = digits_task.replace(constraints=Constraints(ram_kb=0.1, flash_kb=0.1))
    spec = ArchitectureSpec.model_validate({"backbone": [{"type": "conv", "out_channels": 32}]})
    graph = digits_task.space.graph(spec)
    assert CQemuBackend().check_bounds(graph, tight) and VelaBackend().check_bounds(graph, tight) == ()
    assert CQemuBackend().follows_bounds and not VelaBackend().follows_bounds


def test_options_are_part_of_the_version() -> None:
    assert VelaBackend().version() != VelaBackend(accelerator="ethos-u55-32").version()
    assert VelaBackend().version() != VelaBackend(optimise="Size").version()


@pytest.fixture
def vela() -> None:
    if VelaBackend().missing_programs():
        pytest.skip(f"needs Vela in an environment of its own: {VelaBackend().how_to_install()}")


@pytest.mark.usefixtures("vela")
class TestVela(BackendContract):
    builds_elf = False

    def make(self) -> Backend:
        return VelaBackend()


def test_a_real_fallback_is_named(vela: None, target: McuTarget, tmp_path: Path) -> None:
    report = VelaBackend().build(network_with(Enlarged(3)), target, Constraints(), tmp_path).report
    (on_cpu,) = [note for note in report.notes if note.startswith("on the CPU")]
    assert on_cpu.startswith("on the CPU: RESIZE_NEAREST_NEIGHBOR /form/Resize") and "scale-factor=3" in on_cpu


@pytest.mark.parametrize("name", ["attention", "plain", *FORMS])
def test_every_form_answers_as_onnxruntime_and_runs_on_the_accelerator(
    vela: None, name: str, target: McuTarget, tmp_path: Path
) -> None:
    made = network_with(FORMS[name]()) if name in FORMS else deployed_network(name, "int8")
    report = VelaBackend().build(made, target, Constraints(), tmp_path).report
    assert any(note.endswith("operators on the accelerator, 0 on the CPU") for note in report.notes)


def test_a_form_that_cannot_be_written_is_named(vela: None, target: McuTarget, tmp_path: Path) -> None:
    """Without its padding in the mean, and not what TensorFlow Lite calls SAME."""
    deployed = network_with(nn.AvgPool2d(3, 2, 1, count_include_pad=False))
    with pytest.raises(ToolchainError, match="TensorFlow Lite has no average pooling with"):
        VelaBackend().build(deployed, target, Constraints(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_random_networks_of_the_space_compile(vela: None, seed: int, target: McuTarget, tmp_path: Path) -> None:
    deployed = trained_network((1, 8, 8), seed, max_macs=3_000_000)
    report = VelaBackend().build(deployed, target, Constraints(), tmp_path).report
    assert report.feasible and any(note.endswith("operators on the accelerator, 0 on the CPU") for note in report.notes)
