"""The backend for ST's tool, against a stand-in that reads the ONNX file and writes what the real one writes."""

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from automcu_ray.core.errors import ToolchainError, ToolMissingError
from automcu_ray.core.feasibility import Rung
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.precision import Precision
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.problem.task import Task
from automcu_ray.sizing.footprint import footprint, min_ram_bytes
from automcu_ray.testing.backend_contract import TOO_SMALL, BackendContract
from automcu_ray.testing.networks import deployed_network
from backends.base import Backend, Firmware
from backends.programs import LOG, Completed, run_program
from backends.stedgeai.backend import StEdgeAiBackend, find_tool
from backends.toolchain import Toolchain
from tests.backends.stedgeai import fake_stedgeai

pytestmark = pytest.mark.toolchain

# int8 weights of Plain (stem, depthwise, pointwise, head) and its int32 biases
WEIGHTS = 8 * 3 * 9 + 8 * 9 + 8 * 8 + 5 * 72 + 4 * (8 + 8 + 8 + 5)
LARGEST = 8 * 12 * 12  # the stem's output, which the stand-in counts twice
RUNTIME_FLASH, RUNTIME_RAM = 12_168, 1_608  # of tests/backends/stedgeai/fake_stedgeai.py


def install(folder: Path, name: str) -> Path:
    """Put the stand-in under a name into a folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f"#!{sys.executable}\n{Path(fake_stedgeai.__file__).read_text()}")
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def tool(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with ST's tool and a compiler, and nothing of what this machine may have."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "arm-none-eabi-gcc").write_text("#!/bin/sh\necho 12.3.1\n")
    (folder / "arm-none-eabi-gcc").chmod(0o755)
    scratch = tmp_path_factory.mktemp("scratch")
    monkeypatch.setattr("backends.stedgeai.backend.scratch_folder", lambda: scratch)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    for name in ("STEDGEAI_CORE_DIR", "FAKE_STEDGEAI"):
        monkeypatch.delenv(name, raising=False)
    return install(folder, "stedgeai")


@pytest.fixture
def build(target: McuTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Firmware]:
    def run(backend: Backend | None = None, mode: str = "", precision: Precision = "int8") -> Firmware:
        monkeypatch.setenv("FAKE_STEDGEAI", mode)
        made = deployed_network("plain", precision)
        return (backend or StEdgeAiBackend()).build(made, target, Constraints(), tmp_path)

    return run


class TestStEdgeAi(BackendContract):
    builds_elf = False

    def make(self) -> Backend:
        return StEdgeAiBackend()


def test_figures_are_those_of_the_tool(build: Callable[..., Firmware]) -> None:
    report = build().report
    assert report.ram is not None and report.flash is not None
    assert report.ram.model_dump() == {
        "arena_bytes": 2 * LARGEST,
        "io_bytes": 0,
        "stack_bytes": 0,
        "data_bss_bytes": RUNTIME_RAM,
        "total_bytes": 2 * LARGEST + RUNTIME_RAM,
        "spare_bytes": 0,
    }
    assert report.flash.model_dump() == {
        "code_bytes": 3_152,
        "weights_bytes": WEIGHTS + 4,  # as linked
        "runtime_bytes": RUNTIME_FLASH - 3_152,
        "total_bytes": RUNTIME_FLASH + WEIGHTS + 4,
    }
    assert (report.feasible, report.rung, report.operators) == (True, Rung.VENDOR, ("Conv2D", "Gemm"))
    assert (report.macs, report.instructions, report.stack_used_bytes) == (None, None, None)
    assert any("stack" in note for note in report.notes)


def test_code_report_and_model_are_for_the_users_project(build: Callable[..., Firmware], tmp_path: Path) -> None:
    made = build()
    names = "network.c network.h network_data.c network_data.h network_generate_report.txt network.onnx"
    assert {path.name for path in made.sources} == {*names.split()}
    made.collect(tmp_path / "bundle")
    assert (tmp_path / "bundle" / "network.c").read_text() == "/* network.c */\n"


def test_commands_name_target_and_integer_input(build: Callable[..., Firmware], tmp_path: Path) -> None:
    build(StEdgeAiBackend(optimization="ram"))
    commands = [line for line in (tmp_path / LOG).read_text().splitlines() if line.startswith("$ ")]
    assert [line.split()[2] for line in commands] == ["analyze", "generate"]
    for part in (
        "--model network.onnx --type onnx --name network --target stm32f4",
        "--input-data-type int8 --output-data-type int8",
        "--optimization ram --compression none",
        "--workspace workspace --output output",
    ):
        assert part in commands[0]


def test_a_network_that_does_not_fit_is_not_generated(target: McuTarget, tmp_path: Path) -> None:
    made = StEdgeAiBackend().build(deployed_network("plain", "int8"), target, TOO_SMALL, tmp_path)
    assert made.sources == () and "generate" not in (tmp_path / LOG).read_text()
    ram, flash = made.report.violations
    assert (ram.rung, ram.found_bytes, ram.limit_bytes) == (Rung.VENDOR, 2 * LARGEST + RUNTIME_RAM, 2048)
    assert [deployed_network("plain", "int8").in_words(one.where) for one in (ram, flash)] == ["stem.0", "head"]
    assert "1864 more than the limit of 2048" in ram.message


def test_float32_is_taken_as_it_is(build: Callable[..., Firmware], tmp_path: Path) -> None:
    report = build(precision="float32").report
    assert report.feasible and "--input-data-type" not in (tmp_path / LOG).read_text()


def test_unsupported_operators_are_a_violation_that_names_them(build: Callable[..., Firmware]) -> None:
    made = build(mode="unsupported")  # over two lines, and with exit status 0
    (violation,) = made.report.violations
    assert (made.report.feasible, made.elf, made.sources) == (False, None, ())
    assert (violation.rung, violation.resource) == (Rung.CONVERT, "operator")
    assert violation.where == "ConvInteger, MatMulInteger" and "WARNING" not in violation.message
    (violation,) = build(mode="order").report.violations
    assert (violation.resource, violation.where) == ("operator", "")
    assert "Order of dimensions of input" in violation.message


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("internal", "INTERNAL ERROR: 'NoneType' object has no attribute 'shape'"),
        ("tool_error", "TOOL ERROR: Weights are incompatible"),
        ("rubbish", "should leave network_analyze_report.txt"),
        ("fails_in_silence", r"failed \(3\): silent"),
        ("cut_off", "cannot read the report"),
        ("no_compiler", "arm-none-eabi-gcc on PATH"),
        ("another_model", "should be about 'network', found 'other'"),
        ("json_disagrees", "weights in text and JSON should be one number"),
        ("generate_grows", "analyze other sizes"),
    ],
)
def test_a_tool_that_breaks_is_an_error_and_no_verdict(mode: str, said: str, build: Callable[..., Firmware]) -> None:
    assert build().report.feasible  # whose figures are not taken for new ones
    with pytest.raises(ToolchainError, match=said):
        build(mode=mode)


def test_a_tool_that_hangs_is_killed(build: Callable[..., Firmware]) -> None:
    with pytest.raises(ToolchainError, match=r"should end within 0\.5 s"):
        build(StEdgeAiBackend(timeout_s=0.5), "hang")


def test_a_tool_that_fills_the_disk_is_stopped(build: Callable[..., Firmware]) -> None:
    with pytest.raises(ToolchainError, match=r"File too large|at most \d+ bytes"):
        build(StEdgeAiBackend(run=functools.partial(run_program, disk_bytes=1 << 20)), "fills_the_disk")


def test_remarks_that_do_not_stop_the_tool_are_notes(build: Callable[..., Firmware]) -> None:
    report = build(mode="remark").report
    assert report.feasible and "E: stem layer - number of I/O tensor is not coherent: 0/1" in report.notes


def test_validation_is_asked_for_and_noted(build: Callable[..., Firmware], tmp_path: Path) -> None:
    made = build(StEdgeAiBackend(validate=True))
    assert any("X-cross #1 100.00% 0.001408418" in note for note in made.report.notes)
    assert "--mode host" in (tmp_path / "validate" / LOG).read_text()
    assert all(path.is_file() for path in made.sources)


def test_links_among_the_outputs_are_not_followed(build: Callable[..., Firmware], tool: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    line = f"    os.symlink({str(secret)!r}, output / 'network_config.h')\n"
    marked = tool.read_text().replace("    other = {**found", f"{line}    other = {{**found")
    assert line in marked
    tool.write_text(marked)
    assert "network_config.h" not in {path.name for path in build().sources}


def test_a_machine_without_the_tool_is_told_where_to_get_it(
    build: Callable[..., Firmware], tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tool.parent))
    tool.unlink()
    backend = StEdgeAiBackend()
    assert backend.missing_programs() == ("stedgeai",)
    assert "st.com" in backend.how_to_install() and "STEDGEAI_CORE_DIR" in backend.how_to_install()
    with pytest.raises(ToolMissingError, match="stedgeai"):
        build()
    (tool.parent / "arm-none-eabi-gcc").unlink()
    assert backend.missing_programs() == ("stedgeai", "arm-none-eabi-gcc")
    assert "gcc-arm-none-eabi" in backend.how_to_install()


def test_the_installers_folder_and_the_older_name_are_found(
    tool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Callable[..., Firmware]
) -> None:
    assert find_tool() == str(tool)
    tool.unlink()
    assert find_tool() is None
    older = install(tool.parent, "stm32ai")
    assert find_tool() == str(older)
    assert build().report.feasible
    log = (tmp_path / LOG).read_text()
    assert "--series stm32f4 --allocate-inputs --allocate-outputs" in log and "--target" not in log
    core = tmp_path / "ST" / "4.0"
    installed = install(core / "Utilities" / "linux", "stedgeai")
    monkeypatch.setenv("STEDGEAI_CORE_DIR", str(core))
    assert find_tool() == str(installed)


def test_the_version_says_what_decides_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    version = StEdgeAiBackend().version()
    assert version.startswith("ST Edge AI Core v2.2.0-77777 0badc0de, arm-none-eabi-gcc 12.3.1, balanced, ours ")
    assert StEdgeAiBackend(optimization="time").version() != version
    assert StEdgeAiBackend(validate=True).version() != version
    monkeypatch.setenv("FAKE_STEDGEAI", "no_version")
    with pytest.raises(ToolchainError, match="should say its version, found 'what"):
        StEdgeAiBackend().version()


@pytest.mark.parametrize("flood", ["\n" * (1 << 20), " " * (1 << 20), ("\n" + " " * 1000) * 1000])
def test_a_flood_of_blanks_takes_no_time(flood: str, target: McuTarget, tmp_path: Path) -> None:
    def run(argv: Sequence[str], *, timeout_s: float, cwd: Path) -> Completed:
        return Completed(list(argv), 1, f"one {flood} two", flood)

    with pytest.raises(ToolchainError, match=r"failed \(1\): (one|two)"):
        StEdgeAiBackend(run=run).build(deployed_network("plain", "int8"), target, Constraints(), tmp_path)


@pytest.mark.parametrize(
    ("name", "suits"),
    [("stm32f405", True), ("stm32h723", True), ("stm32wb55", True), ("rp2040", False), ("nrf52840", False)],
)
def test_only_stm32_suits(name: str, suits: bool, digits_task: Task) -> None:
    reason = StEdgeAiBackend().unsuitable(digits_task.replace(target=digits_task.target.replace(name=name)))
    assert (reason == "") == suits and (suits or name in reason)


def test_what_is_foreseen_is_sound_for_another_planner(digits_task: Task) -> None:
    spec = digits_task.space.sample(Random(1)).spec
    assert spec is not None
    graph = digits_task.space.graph(spec)
    ours, floor = footprint(graph, "int8"), min_ram_bytes(graph, "int8")
    assert floor < ours.ram_lower_bound_bytes  # which counts input and output beside the activations

    def refused(ram_bytes: int, flash_bytes: int) -> dict[str, int | None]:
        limits = Constraints(ram_kb=ram_bytes / 1024, flash_kb=flash_bytes / 1024)
        task = digits_task.replace(constraints=limits)
        return {one.resource: one.over_bytes for one in StEdgeAiBackend().check_bounds(graph, task)}

    assert refused(floor, ours.flash_lower_bound_bytes) == {}
    assert refused(floor - 1, ours.flash_lower_bound_bytes - 2) == {"ram": 1, "flash": 2}


def test_a_refusal_names_the_layers_of_a_spec(digits_task: Task, tmp_path: Path) -> None:
    task = digits_task.replace(constraints=Constraints(ram_kb=2, flash_kb=8))
    spec = ArchitectureSpec.model_validate({"backbone": [{"type": "conv", "out_channels": 32}]})
    report = Toolchain(task, "stedgeai", {}, tmp_path).check(Candidate(spec=spec, hash="abc"))
    assert {v.resource: v.where for v in report.violations} == {"ram": "layer_1.conv", "flash": "head.linear"}
    assert [path.name for path in (tmp_path / "abc").iterdir()] == [LOG]
