import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from automcu_ray import plugins
from automcu_ray.errors import ToolchainError
from automcu_ray.target import Constraints, McuTarget
from backends import BACKENDS
from backends.base import Backend
from backends.c_qemu import COMPILE_FLAGS, CORE_FLAGS, FIRMWARE, CQemuBackend, usage
from backends.cgen import generate
from tests.backends.conftest import read_target
from tests.contracts.backend_contract import BackendContract
from tests.networks_for_export import NETWORKS, deployed_network

TABLE = (
    "Memory region  Used Size  Region Size  %age Used\n  FLASH:  3000 B  64 KB  4.58%\n  RAM:  2100 B  20 KB  10.25%\n"
)
SECTIONS = ".net_code 700 0\n.weights 900 0\n.arena 400 0\n.io 442 0\n.stack 1024 0\n"


@pytest.mark.usefixtures("gcc")
class TestCQemu(BackendContract):
    def make(self) -> Backend:
        return CQemuBackend()


class FakeRun:
    """Answers for gcc, ld and size, and remembers every command."""

    def __init__(self, link_errors: str = "", compile_exit: int = 0) -> None:
        self.commands: list[list[str]] = []
        self.link_errors, self.compile_exit = link_errors, compile_exit

    def __call__(self, argv: Sequence[str], *, timeout_s: float, cwd: Path) -> subprocess.CompletedProcess[str]:
        self.commands.append(list(argv))
        if argv[0].endswith("size"):
            return subprocess.CompletedProcess(argv, 0, SECTIONS, "")
        if "net.elf" in argv:
            (cwd / "net.elf").write_bytes(b"")
            return subprocess.CompletedProcess(argv, 0, TABLE, self.link_errors)
        for name in argv[argv.index("-c") + 1 :]:
            if name.startswith("/"):
                (cwd / Path(name).with_suffix(".o").name).write_bytes(b"")
        error = "net.c:1:1: error: no\n" if self.compile_exit else ""
        return subprocess.CompletedProcess(argv, self.compile_exit, "", error)


@pytest.fixture(autouse=True)
def own_scratch(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("scratch")
    monkeypatch.setattr("backends.c_qemu.scratch_folder", lambda: folder)
    return folder


def test_the_table_knows_the_backend() -> None:
    assert plugins.load("backend", BACKENDS, "c_qemu") is CQemuBackend


def test_commands_for_a_cortex_m3(tmp_path: Path) -> None:
    run = FakeRun()
    made = CQemuBackend(run=run).build(
        deployed_network("plain", "int8"), read_target("stm32f103"), Constraints(), tmp_path
    )
    compile_net, compile_harness, link, size = run.commands
    assert compile_net[:4] == ["arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb", "-mfloat-abi=soft"]
    assert compile_net[-4:] == ["-c", "net.c", "-o", "net.o"]
    assert compile_harness[-1].endswith("uart_none.c")
    assert "-Wl,--gc-sections,--print-memory-usage,-Map=net.map" in link
    assert size == ["arm-none-eabi-size", "-A", "net.elf"]
    assert made.report.ram_bytes == 2100 and made.report.flash_bytes == 3000


def test_the_linker_script_has_the_limits_as_lengths(tmp_path: Path, target: McuTarget) -> None:
    limits = Constraints(ram_kb=2.5, flash_kb=3)
    CQemuBackend(stack_bytes=512, run=FakeRun()).build(deployed_network("plain", "int8"), target, limits, tmp_path)
    script = (tmp_path / "link.ld").read_text()
    assert "ORIGIN = 0x8000000, LENGTH = 3072" in script
    assert "ORIGIN = 0x20000000, LENGTH = 2560" in script
    assert ". += 432;" in script and ". += 5;" in script and ". += 512;" in script
    assert "@" not in script


def test_the_harness_is_compiled_once_for_many_candidates(tmp_path: Path, target: McuTarget) -> None:
    run = FakeRun()
    for _ in range(3):
        CQemuBackend(run=run).build(deployed_network("plain", "int8"), target, Constraints(), tmp_path)
    assert sum("main.c" in " ".join(command) and "-c" in command for command in run.commands) == 1


def test_an_overflow_becomes_a_violation_with_layer_and_bytes(tmp_path: Path, target: McuTarget) -> None:
    run = FakeRun(link_errors="ld: region `RAM' overflowed by 52 bytes\n")
    made = CQemuBackend(run=run).build(deployed_network("plain", "int8"), target, Constraints(ram_kb=2), tmp_path)
    (violation,) = made.report.violations
    assert (violation.resource, violation.found_bytes, violation.limit_bytes) == ("ram", 2100, 2048)
    assert violation.where == "/stem/stem.0/Conv_quant"  # 8 x 12 x 12, the largest at the peak
    assert violation.message == (
        "ram needs 2100 bytes, 52 more than the limit of 2048; "
        "the largest part is the output of /stem/stem.0/Conv_quant (1152 bytes)."
    )
    assert made.elf is None and not (tmp_path / "net.elf").exists()


def test_an_undefined_symbol_is_an_error_and_not_a_verdict(tmp_path: Path, target: McuTarget) -> None:
    run = FakeRun(link_errors="main.c: undefined reference to `net'\n")
    with pytest.raises(ToolchainError, match="undefined reference"):
        CQemuBackend(run=run).build(deployed_network("plain", "int8"), target, Constraints(), tmp_path)


def test_c_that_does_not_compile_is_an_error_with_its_first_line(tmp_path: Path, target: McuTarget) -> None:
    with pytest.raises(ToolchainError, match=r"net\.c:1:1: error: no"):
        CQemuBackend(run=FakeRun(compile_exit=1)).build(
            deployed_network("plain", "int8"), target, Constraints(), tmp_path
        )


def test_the_rest_of_a_region_is_the_harness() -> None:
    ram, flash = usage(
        {"RAM": 2100, "FLASH": 3000},
        {".arena": 400, ".io": 442, ".stack": 1024, ".net_code": 700, ".weights": 900},
    )
    assert ram.data_bss_bytes == 2100 - 400 - 442 - 1024 == 234
    assert flash.runtime_bytes == 3000 - 700 - 900 == 1400


def test_the_arena_and_the_weights_are_in_the_report(gcc: None, tmp_path: Path, target: McuTarget) -> None:
    report = (
        CQemuBackend(stack_bytes=768).build(deployed_network("plain", "int8"), target, Constraints(), tmp_path).report
    )
    assert report.ram is not None and report.flash is not None
    assert report.ram.arena_bytes == 1152 + 288  # 8x12x12 into the pool's 8x6x6
    assert report.ram.io_bytes == 432 + 5
    assert report.ram.stack_bytes == 768
    assert report.flash.weights_bytes > 8 * 3 * 9 + 8 * 9 + 8 * 8 + 5 * 72
    assert report.macs is None and report.parameters is None and report.instructions is None


@pytest.mark.parametrize("core", CORE_FLAGS)
def test_everything_compiles_without_warnings_for_every_core(gcc: None, core: str, tmp_path: Path) -> None:
    run = CQemuBackend().run
    flags = [*CORE_FLAGS[core], *COMPILE_FLAGS, "-Werror", "-Wshadow", "-DUART_BASE=0x40011000u"]
    files = [str(path) for path in sorted(FIRMWARE.glob("*.c"))]
    done = run(["arm-none-eabi-gcc", *flags, "-c", *files], timeout_s=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in NETWORKS:
        for precision in ("int8", "float32"):
            (tmp_path / "net.c").write_text(generate(deployed_network(name, precision)).source)
            argv = ["arm-none-eabi-gcc", *CORE_FLAGS[core], *COMPILE_FLAGS, "-Werror", "-c", "net.c"]
            done = run(argv, timeout_s=60, cwd=tmp_path)
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["nrf52840", "rp2040", "stm32f103", "stm32f407", "stm32h723"])
def test_every_target_of_the_project_links(gcc: None, name: str, tmp_path: Path) -> None:
    made = CQemuBackend().build(deployed_network("viewed", "int8"), read_target(name), Constraints(), tmp_path)
    assert made.report.feasible and made.elf is not None


def test_float32_needs_more_of_everything(gcc: None, tmp_path: Path, target: McuTarget) -> None:
    small, large = (
        CQemuBackend().build(deployed_network("attention", kind), target, Constraints(), tmp_path).report
        for kind in ("int8", "float32")
    )
    assert small.ram is not None and large.ram is not None
    assert large.ram.arena_bytes == 4 * small.ram.arena_bytes
