import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from automcu_ray.core.errors import ConfigError, ToolchainError
from automcu_ray.problem.target import Constraints, Core, McuTarget
from automcu_ray.runtime.config_files import names
from automcu_ray.testing.backend_contract import BackendContract
from automcu_ray.testing.networks import NETWORKS, deployed_network
from backends.base import Backend, Firmware
from backends.c_qemu import linker
from backends.c_qemu.backend import CQemuBackend
from backends.c_qemu.cgen import generate
from backends.c_qemu.choice import Optimise
from backends.c_qemu.form import CODE_NOTES, Form
from backends.c_qemu.gcc_flags import COMPILE_FLAGS, CORE_FLAGS
from backends.c_qemu.harness import FIRMWARE
from backends.programs import Runner
from backends.source_fingerprint import SHARED, digest
from tests.backends.conftest import read_target

pytestmark = pytest.mark.thorough

Least = partial(CQemuBackend, arena="least")  # whose sizes follow from the network alone

TABLE = (
    "Memory region  Used Size  Region Size  %age Used\n  FLASH:  3000 B  64 KB  4.58%\n  RAM:  2100 B  20 KB  10.25%\n"
)
CALLGRAPH = 'graph: { title: "net.c"\nnode: { title: "net" label: "net\\nnet.c:1:6\\n%d bytes (static)" }\n}\n'
SECTIONS = ".net_code 700 0\n.weights 900 0\n.arena 400 0\n.io 442 0\n.stack 1024 0\n"


@pytest.mark.usefixtures("gcc")
class TestCQemu(BackendContract):
    def make(self) -> Backend:
        return Least()


class FakeRun:
    """Answers for gcc, ld and size, and remembers every command."""

    def __init__(
        self, link_errors: str = "", compile_exit: int = 0, frame_bytes: int = 64, table: str = TABLE, sizes: str = ""
    ) -> None:
        self.commands: list[list[str]] = []
        self.table, self.sizes = table, sizes or SECTIONS
        self.link_errors, self.compile_exit, self.frame_bytes = link_errors, compile_exit, frame_bytes

    def __call__(self, argv: Sequence[str], *, timeout_s: float, cwd: Path) -> subprocess.CompletedProcess[str]:
        self.commands.append(list(argv))
        if argv[0].endswith("size"):
            return subprocess.CompletedProcess(argv, 0, self.sizes, "")
        if argv[-1].endswith(".elf"):
            (cwd / argv[-1]).write_bytes(b"")
            return subprocess.CompletedProcess(argv, 0, self.table, self.link_errors)
        if "net.c" in argv:
            (cwd / "net.ci").write_text(CALLGRAPH % self.frame_bytes)
        for name in argv[argv.index("-c") + 1 :]:
            if name.startswith("/"):
                (cwd / Path(name).with_suffix(".o").name).write_bytes(b"")
        error = "net.c:1:1: error: no\n" if self.compile_exit else ""
        return subprocess.CompletedProcess(argv, self.compile_exit, "", error)


@pytest.fixture(autouse=True)
def own_scratch(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("scratch")
    monkeypatch.setattr("backends.c_qemu.harness.scratch_folder", lambda: folder)
    return folder


def build_plain(backend: CQemuBackend, target: McuTarget, folder: Path, **limits: float) -> Firmware:
    return backend.build(deployed_network("plain", "int8"), target, Constraints(**limits), folder)


def test_commands_for_a_cortex_m3(tmp_path: Path) -> None:
    run = FakeRun()
    made = build_plain(Least(run=run), read_target("stm32f103"), tmp_path)
    compile_net, compile_harness, link, size, compile_other_harness, link_for_emulator = run.commands
    assert compile_net[:4] == ["arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb", "-mfloat-abi=soft"]
    assert compile_net[-4:] == ["-c", "net.c", "-o", "net.o"]
    assert compile_harness[-1].endswith("uart_none.c")
    assert {"-Wl,--gc-sections,--print-memory-usage", "-Wl,-Map=net.map", "-Tnet.ld"} <= {*link}
    assert compile_other_harness[-1].endswith("uart_cmsdk.c") and "-DUART_BASE=0x40004000u" in compile_other_harness
    assert "-Temulated.ld" in link_for_emulator and link_for_emulator[-1] == "emulated.elf"
    assert size == ["arm-none-eabi-size", "-A", "net.elf"]
    assert made.report.ram_bytes == 2100 and made.report.flash_bytes == 3000


def test_the_linker_script_has_the_limits_as_lengths(tmp_path: Path, target: McuTarget) -> None:
    limits = Constraints(ram_kb=2.5, flash_kb=3)
    Least(stack_bytes=600, run=FakeRun()).build(deployed_network("plain", "int8"), target, limits, tmp_path)
    script = (tmp_path / "net.ld").read_text()
    assert "ORIGIN = 0x8000000, LENGTH = 3072" in script
    assert "ORIGIN = 0x20000000, LENGTH = 2560" in script
    assert "_input_start + 432;" in script and ". += 5;" in script and ". += 600;" in script
    assert "@" not in script


def test_a_second_link_is_for_the_emulator_and_does_not_ship(gcc: None, tmp_path: Path) -> None:
    target, made = read_target("rp2350"), deployed_network("viewed", "int8")
    need = Least().build(made, target, Constraints(), tmp_path).report
    exact = Constraints(ram_kb=need.ram_bytes / 1024, flash_kb=need.flash_bytes / 1024)
    firmware = Least().build(made, target, exact, tmp_path)  # the emulator's serial port is a longer program
    assert firmware.report.feasible and firmware.report.ram_bytes == need.ram_bytes
    assert firmware.elf == tmp_path / "net.elf" and firmware.board_elf == tmp_path / "emulated.elf"
    firmware.collect(tmp_path / "shipped")
    assert (tmp_path / "shipped" / "firmware.elf").read_bytes() == (tmp_path / "net.elf").read_bytes()
    assert [path.name for path in (tmp_path / "shipped").glob("emulated*")] == ["emulated.ld"]  # for the check, no ELF
    assert "ORIGIN = 0x10000000, LENGTH = 4194304" in (tmp_path / "emulated.ld").read_text()


def test_a_chip_that_qemu_models_runs_its_own_firmware(gcc: None, tmp_path: Path, target: McuTarget) -> None:
    firmware = Least().build(deployed_network("viewed", "int8"), target, Constraints(), tmp_path)
    assert firmware.emulated_elf is None and firmware.board_elf == firmware.elf


def test_the_stack_grows_with_what_the_deepest_calls_could_need(tmp_path: Path, target: McuTarget) -> None:
    for frame, stack_bytes in ((504, 1024), (508, 1024), (512, 1024), (516, 1032), (3000, 3512)):
        run = FakeRun(frame_bytes=frame)  # 256 bytes are for the harness, and 256 are never to be touched
        build_plain(Least(run=run), target, tmp_path)
        assert f". += {stack_bytes};" in (tmp_path / "net.ld").read_text()


def test_a_compiler_that_leaves_no_call_graph_is_an_error(tmp_path: Path, target: McuTarget) -> None:
    with pytest.raises(ToolchainError, match=r"should have written net\.ci"):
        build_plain(Least(run=lambda argv, **_: subprocess.CompletedProcess(argv, 0, "", "")), target, tmp_path)


def test_a_compiler_that_prints_rubbish_for_its_version_is_an_error() -> None:
    for said in ("", "\x1b[31m rubbish", "9" * 41):
        backend = Least(run=lambda argv, said=said, **_: subprocess.CompletedProcess(argv, 0, said, ""))
        with pytest.raises(ToolchainError, match="should say a version"):
            backend.version()


def test_another_linker_is_another_version() -> None:
    def said_by(linker: str) -> str:
        said = {"-dumpfullversion": "12.2.1\n", "-Wl,--version": f"GNU ld (2.40-2+18+b1) {linker}\nCopyright\n"}
        run: Runner = lambda argv, **_: subprocess.CompletedProcess(argv, 0, said[argv[1]], "")  # noqa: E731
        return Least(run=run).version()

    assert "GNU ld (2.40-2+18+b1) 2.40" in said_by("2.40") != said_by("2.41")


DECIDE = (
    "tracing onnx_rewrites equivalents moving_equivalents graph_editor tables footprint "
    "repair graph lowering peak_memory scratch export torch_network toolchain"
).split()


@pytest.mark.parametrize("module", DECIDE)
def test_a_change_in_what_decides_a_report_makes_old_verdicts_worthless(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (part,) = (one for one in SHARED if one.__name__.rpartition(".")[2] == module)
    before = digest.__wrapped__(*SHARED)
    (tmp_path / f"{module}.py").write_text(f"{Path(str(part.__file__)).read_text()}# changed\n")
    monkeypatch.setattr(part, "__file__", str(tmp_path / f"{module}.py"))
    assert digest.__wrapped__(*SHARED) != before


def test_the_harness_is_compiled_once_for_many_candidates(tmp_path: Path, target: McuTarget) -> None:
    run = FakeRun()
    for _ in range(3):
        build_plain(Least(run=run), target, tmp_path)
    assert sum("main.c" in " ".join(command) and "-c" in command for command in run.commands) == 1


def test_an_overflow_becomes_a_violation_with_layer_and_bytes(tmp_path: Path, target: McuTarget) -> None:
    run = FakeRun(link_errors="ld: region `RAM' overflowed by 52 bytes\n")
    made = build_plain(Least(run=run), target, tmp_path, ram_kb=2)
    (violation,) = made.report.violations
    assert (violation.resource, violation.found_bytes, violation.limit_bytes) == ("ram", 2100, 2048)
    assert violation.where == "node0_quant"  # 8 x 12 x 12, the largest at the peak
    assert violation.message == (
        "ram needs 2100 bytes, 52 more than the limit of 2048; "
        "the largest part is the output of node0_quant (1152 bytes)."
    )
    assert made.elf is None and not (tmp_path / "net.elf").exists()


def test_an_undefined_symbol_is_an_error_and_not_a_verdict(tmp_path: Path, target: McuTarget) -> None:
    run = FakeRun(link_errors="main.c: undefined reference to `net'\n")
    with pytest.raises(ToolchainError, match="undefined reference"):
        build_plain(Least(run=run), target, tmp_path)


@pytest.mark.parametrize(
    ("table", "sizes", "message"),
    [
        ("rubbish", "", "memory usage"),
        ("  FLASH:  3000 B  64 KB  4.58%\n", "", "memory usage"),
        (TABLE.replace("2100", "9" * 5000), "", "memory usage"),
        (TABLE, "rubbish", "should print the firmware's sections"),
        (TABLE, SECTIONS.replace(".net_code 700 0\n", ""), "should print the firmware's sections"),
        (TABLE, SECTIONS.replace("400", "4000"), "contradict each other"),
        (TABLE, SECTIONS.replace("900", "9000"), "contradict each other"),
        (TABLE.replace("2100", "21000"), "", "contradicts itself"),
    ],
)
def test_rubbish_from_linker_or_size_is_an_error_and_never_a_zero(
    table: str, sizes: str, message: str, tmp_path: Path
) -> None:
    backend = Least(run=FakeRun(table=table, sizes=sizes))
    with pytest.raises(ToolchainError, match=message):
        backend.build(deployed_network("plain", "int8"), read_target("stm32f103"), Constraints(), tmp_path)


def test_c_that_does_not_compile_is_an_error_with_its_first_line(tmp_path: Path, target: McuTarget) -> None:
    with pytest.raises(ToolchainError, match=r"net\.c:1:1: error: no"):
        build_plain(Least(run=FakeRun(compile_exit=1)), target, tmp_path)


def test_the_rest_of_a_region_is_the_harness() -> None:
    ram, flash = linker.usage(
        {"RAM": 2100, "FLASH": 3000},
        {".arena": 400, ".io": 442, ".stack": 1024, ".net_code": 700, ".weights": 900},
    )
    assert ram.data_bss_bytes == 2100 - 400 - 442 - 1024 == 234
    assert flash.runtime_bytes == 3000 - 700 - 900 == 1400


def test_the_arena_and_the_weights_are_in_the_report(gcc: None, tmp_path: Path, target: McuTarget) -> None:
    report = build_plain(Least(stack_bytes=1000), target, tmp_path).report
    assert report.ram is not None and report.flash is not None
    assert (
        report.ram.arena_bytes == 1152 + 27 + 3
    )  # 8x12x12, over which the pool writes its 8x6x6; a window of the stem
    assert report.ram.io_bytes == 432 + 5
    assert report.ram.stack_bytes == 1000
    assert report.flash.weights_bytes > 8 * 3 * 9 + 8 * 9 + 8 * 8 + 5 * 72
    assert report.macs is None and report.parameters is None and report.instructions is None


@pytest.mark.parametrize("core", CORE_FLAGS)
def test_everything_compiles_without_warnings_for_every_core(gcc: None, core: Core, tmp_path: Path) -> None:
    def compile_all(*argv: str) -> None:
        gcc = ["arm-none-eabi-gcc", *CORE_FLAGS[core], *COMPILE_FLAGS, "-Werror", "-c"]
        done = CQemuBackend().run([*gcc, *argv], timeout_s=60, cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    files = [str(path) for path in sorted(FIRMWARE.glob("*.c"))]
    compile_all("-Wshadow", "-DUART_BASE=0x40011000u", "-DGUARD_BYTES=256u", *files)
    for name in NETWORKS:
        int8, float32 = deployed_network(name, "int8"), deployed_network(name, "float32")
        for code in (generate(int8, core), generate(int8, core, form=Form("small")), generate(float32, core)):
            (tmp_path / "net.c").write_text(code.source)
            compile_all("net.c")


def one_daily_for_each_core() -> list[Any]:
    """Every target; all but the first of each core are slow."""
    cores = {name: read_target(name).core for name in names("target")}
    first = {core: name for name, core in reversed(cores.items())}
    return [pytest.param(name, marks=() if first[core] == name else pytest.mark.slow) for name, core in cores.items()]


@pytest.mark.parametrize("name", one_daily_for_each_core())
def test_every_target_of_the_project_links(gcc: None, name: str, tmp_path: Path) -> None:
    target = read_target(name)
    made = Least().build(deployed_network("viewed", "int8"), target, Constraints(), tmp_path)
    assert made.report.feasible and made.elf is not None
    assert (made.board_elf is not made.elf) == (target.emulator is not None and not target.emulator.same_chip)


def test_float32_needs_more_of_everything(gcc: None, tmp_path: Path, target: McuTarget) -> None:
    small, large = (
        Least().build(deployed_network("attention", kind), target, Constraints(), tmp_path).report
        for kind in ("int8", "float32")
    )
    assert small.ram is not None and large.ram is not None
    assert large.ram.arena_bytes > 3 * small.ram.arena_bytes  # 4 times the tensors; scratch is for int8 alone


@pytest.mark.parametrize("name", ["stm32f405", "stm32f103", "rp2040"])
def test_auto_is_the_fastest_form_that_fits(gcc: None, name: str, tmp_path: Path) -> None:
    target, made = read_target(name), deployed_network("plain", "int8")

    def built(optimise: Optimise, flash_bytes: int | None = None) -> Firmware:
        limit = Constraints() if flash_bytes is None else Constraints(flash_kb=flash_bytes / 1024)
        return Least(optimise=optimise).build(made, target, limit, tmp_path)

    sizes = {form: built(form).report.flash_bytes or 0 for form in ("speed", "size", "auto")}
    assert sizes["auto"] == sizes["speed"] > sizes["size"] + 1000
    found, at = [], sizes["speed"]
    while (report := built("auto", at).report).feasible:
        assert report.flash_bytes is not None and report.flash_bytes <= at
        found.append((report.notes, report.flash_bytes))
        at = report.flash_bytes - 1
    notes = {note: form for form, note in CODE_NOTES.items()}
    assert len(found) > 2
    assert [notes[note] for (note,), _ in found[1:]] == ["lean", "narrow", "small"][-len(found) + 1 :]
    assert found[0] == ((), sizes["speed"]) and found[-1] == ((CODE_NOTES["small"],), sizes["size"])
    neither = built("auto", sizes["size"] - 1).report
    assert not neither.feasible and neither.flash_bytes == sizes["size"]
    assert not built("speed", sizes["speed"] - 1).report.feasible


def test_a_form_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match="one of speed, size, auto, found 'fast'"):
        CQemuBackend(optimise="fast")  # type: ignore[arg-type]
