"""The open default: ONNX -> int8 C -> arm-none-eabi-gcc -> an ELF that QEMU runs. No account, no hardware."""

import functools
import hashlib
import importlib.metadata
import inspect
from pathlib import Path
from typing import Literal

from automcu_ray import export, network, onnx_graph
from automcu_ray.errors import ToolchainError
from automcu_ray.export import DeployedNetwork
from automcu_ray.feasibility import FeasibilityReport, FlashUsage, RamUsage, Rung, Violation
from automcu_ray.onnx_graph import operators
from automcu_ray.target import Constraints, Core, McuTarget
from backends import linker
from backends.base import Backend, Firmware
from backends.cgen import NetworkCode, generate
from backends.planner import largest_at_peak
from backends.programs import Completed, Runner, cpu_seconds, run_program, scratch_folder

PACKAGES = ("torch", "onnxruntime", "emx-onnx-cgen")
GCC, SIZE = "arm-none-eabi-gcc", "arm-none-eabi-size"
FIRMWARE = Path(__file__).parent / "firmware"
CORE_FLAGS: dict[Core, tuple[str, ...]] = {
    "cortex-m0plus": ("-mcpu=cortex-m0plus", "-mthumb", "-mfloat-abi=soft"),
    "cortex-m3": ("-mcpu=cortex-m3", "-mthumb", "-mfloat-abi=soft"),
    "cortex-m4f": ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
    "cortex-m7f": ("-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-d16"),
    "cortex-m33f": ("-mcpu=cortex-m33", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"),
}
COMPILE_FLAGS = ("-std=gnu11", "-O2", "-ffunction-sections", "-fdata-sections", "-Wall", "-Wextra")
LINK_FLAGS = (
    "-nostartfiles",
    "--specs=nano.specs",
    "--specs=nosys.specs",
    "-Wl,--gc-sections,--print-memory-usage,-Map=net.map",
    "-Wl,--noinhibit-exec",  # an ELF too large is still measured, then removed
)


class CQemuBackend(Backend):
    """C by emx-onnx-cgen over a planned arena, compiled by GCC; the linker's regions give the verdict.

    The firmware holds network, serial harness and a stack of `stack_bytes`. Parameters and MACs are left to the
    network's own description, latency to a real board.
    """

    name = "c_qemu"
    programs = (GCC, SIZE)
    measures = frozenset({"ram", "flash", "operators"})
    boards = ("qemu",)

    def __init__(self, *, stack_bytes: int = 1024, run: Runner = run_program) -> None:
        super().__init__(run=run)
        self.stack_bytes = stack_bytes

    def version(self) -> str:
        packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
        return f"{packages}, {GCC} {self._gcc_version}, ours {_own_version()}, stack {self.stack_bytes} B"

    @functools.cached_property
    def _gcc_version(self) -> str:
        return _succeed(self.run([GCC, "-dumpfullversion"], timeout_s=60, cwd=scratch_folder())).stdout.strip()

    def build(self, deployed: DeployedNetwork, target: McuTarget, constraints: Constraints, workdir: Path) -> Firmware:
        start = cpu_seconds()
        code = generate(deployed)
        sources = (workdir / "net.c", workdir / "net.h")
        for path, text in zip(sources, (code.source, code.header), strict=True):
            path.write_text(text)
        converted = cpu_seconds()
        self._compile(target.core, workdir)
        report = self._link(deployed, code, target, constraints, workdir)
        seconds = {Rung.CONVERT: converted - start, Rung.LINK: cpu_seconds() - converted}
        report = report.model_copy(update={"seconds_by_rung": {str(k): v for k, v in seconds.items()}})
        elf = workdir / "net.elf"
        if not report.feasible:
            elf.unlink(missing_ok=True)  # nobody may flash what does not fit
        parts = ("main.c", "startup.c", "harness.h", f"uart_{target.uart.kind}.c")
        harness = [workdir / "link.ld", *(FIRMWARE / name for name in parts)]
        return Firmware(report, elf if report.feasible else None, (*sources, *harness), workdir)

    def _compile(self, core: Core, workdir: Path) -> None:
        argv = [GCC, *CORE_FLAGS[core], *COMPILE_FLAGS, "-fstack-usage", "-c", "net.c", "-o", "net.o"]
        _succeed(self.run(argv, timeout_s=300, cwd=workdir))

    def _link(
        self,
        deployed: DeployedNetwork,
        code: NetworkCode,
        target: McuTarget,
        constraints: Constraints,
        workdir: Path,
    ) -> FeasibilityReport:
        limits = {
            "RAM": constraints.ram_limit_bytes(target),
            "FLASH": constraints.flash_limit_bytes(target),
        }
        script = _link_script(deployed, target, limits, self.stack_bytes)
        (workdir / "link.ld").write_text(script)
        objects = self._harness(target)
        flags = [*CORE_FLAGS[target.core], *LINK_FLAGS, "-Tlink.ld"]
        done = self.run([GCC, *flags, "net.o", *objects, "-lm", "-o", "net.elf"], timeout_s=120, cwd=workdir)
        if complaints := linker.complaints(done.stderr):
            raise ToolchainError(f"the linker failed: {complaints[0]}. Log: {workdir}.")
        _succeed(done)
        sizes = _succeed(self.run([SIZE, "-A", "net.elf"], timeout_s=60, cwd=workdir)).stdout
        used, over = linker.used_bytes(done.stdout), linker.overflows(done.stderr)
        if over != {name: used[name] - limit for name, limit in limits.items() if used[name] > limit}:
            raise ToolchainError(f"the linker contradicts itself: used {used}, limits {limits}, over {over}.")
        ram, flash = usage(used, linker.section_bytes(sizes))
        return FeasibilityReport(
            feasible=not over,
            backend=self.name,
            rung=Rung.LINK,
            ram_bytes=ram.total_bytes,
            flash_bytes=flash.total_bytes,
            ram=ram,
            flash=flash,
            operators=operators(deployed.onnx),
            violations=tuple(
                _violation(region, size, limits[region], code) for region, size in sorted(over.items(), reverse=True)
            ),
        )

    def _harness(self, target: McuTarget) -> list[str]:
        """Return start-up, harness and serial port as objects; compiled once for a core and port."""
        folder = scratch_folder() / f"{target.core}-{target.uart.kind}-{target.uart.base:x}"
        names = ("startup", "main", f"uart_{target.uart.kind}")
        objects = [folder / f"{name}.o" for name in names]
        if not all(path.exists() for path in objects):
            folder.mkdir(exist_ok=True)
            flags = [*CORE_FLAGS[target.core], *COMPILE_FLAGS, f"-DUART_BASE={target.uart.base:#x}u"]
            files = [str(FIRMWARE / f"{name}.c") for name in names]
            _succeed(self.run([GCC, *flags, "-c", *files], timeout_s=60, cwd=folder))
        return [str(path) for path in objects]


@functools.cache
def _own_version() -> str:
    """Return a digest of our own way from a graph to an ELF: a change there makes old verdicts worthless."""
    files = [path for path in sorted(FIRMWARE.parent.rglob("*")) if path.suffix in (".py", ".c", ".h", ".ld")]
    files += [Path(inspect.getfile(module)) for module in (export, network, onnx_graph)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:8]


def usage(used: dict[str, int], sections: dict[str, int]) -> tuple[RamUsage, FlashUsage]:
    """Return the parts of RAM and Flash; the rest of a region's total is the harness, the C library and padding.

    Args:
        used: bytes used in the regions RAM and FLASH, as the linker says.
        sections: bytes of the sections of `firmware/link.ld`.
    """
    arena, io, stack = (sections.get(name, 0) for name in (".arena", ".io", ".stack"))
    code, weights = (sections.get(name, 0) for name in (".net_code", ".weights"))
    ram, flash = used["RAM"], used["FLASH"]
    return (
        RamUsage(
            arena_bytes=arena,
            io_bytes=io,
            stack_bytes=stack,
            data_bss_bytes=ram - arena - io - stack,
            total_bytes=ram,
        ),
        FlashUsage(
            code_bytes=code,
            weights_bytes=weights,
            runtime_bytes=flash - code - weights,
            total_bytes=flash,
        ),
    )


def _violation(region: str, over: int, limit: int, code: NetworkCode) -> Violation:
    resource: Literal["ram", "flash"] = "ram" if region == "RAM" else "flash"
    where, size, what = _culprit(resource, code)
    return Violation(
        rung=Rung.LINK,
        resource=resource,
        where=where,
        found_bytes=limit + over,
        limit_bytes=limit,
        message=f"{resource} needs {limit + over} bytes, {over} more than the limit of {limit}; "
        f"the largest part is {what} of {where or 'no layer'} ({size} bytes).",
    )


def _culprit(resource: Literal["ram", "flash"], code: NetworkCode) -> tuple[str, int, str]:
    """Return node, bytes and kind of what to shrink first."""
    if resource == "flash":
        where, size = max(code.weights.items(), key=lambda item: item[1], default=("", 0))
        return where, size, "the weights"
    buffer = largest_at_peak(code.buffers)
    if buffer is None:
        return "", 0, "the output"
    return code.made_by[buffer.name], buffer.size_bytes, "the output"


def _link_script(deployed: DeployedNetwork, target: McuTarget, limits: dict[str, int], stack_bytes: int) -> str:
    channels, height, width = deployed.input_shape
    value_bytes = deployed.output_dtype.itemsize
    values = {
        "FLASH_ORIGIN": f"{target.flash.origin:#x}",
        "FLASH_BYTES": limits["FLASH"],
        "RAM_ORIGIN": f"{target.main_ram.origin:#x}",
        "RAM_BYTES": limits["RAM"],
        "INPUT_BYTES": channels * height * width * value_bytes,
        "OUTPUT_BYTES": deployed.num_classes * value_bytes,
        "STACK_BYTES": stack_bytes,
    }
    script = (FIRMWARE / "link.ld").read_text()
    for name, value in values.items():
        script = script.replace(f"@{name}@", str(value))
    return script


def _succeed(done: Completed) -> Completed:
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        raise ToolchainError(f"{done.args[0]} failed ({done.returncode}): {errors[0] if errors else 'silent'}")
    return done
