"""The open default: ONNX -> int8 C -> arm-none-eabi-gcc -> an ELF that QEMU runs. No account, no hardware."""

import dataclasses
import functools
import importlib.metadata
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from automcu_ray.core.errors import ConfigError, ToolchainError
from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation, over_limit
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.deploy.onnx_graph import operators
from automcu_ray.problem.target import Constraints, Core, McuTarget, Uart
from automcu_ray.problem.task import Task
from automcu_ray.records.manifest import NetworkManifest
from automcu_ray.signals.front_end import FrontEnd
from backends.base import Backend, Firmware, Probe
from backends.boards.machines import find_machine
from backends.c_qemu import linker, stack
from backends.c_qemu.cgen import NetworkCode, generate
from backends.c_qemu.gcc_flags import COMPILE_FLAGS, CORE_FLAGS, LINK_FLAGS
from backends.c_qemu.handover.api import preparation
from backends.c_qemu.handover.package import package
from backends.c_qemu.linker import Layout
from backends.c_qemu.planner import largest_at_peak
from backends.c_qemu.stream.printing import stream_header, stream_source
from backends.programs import OUTPUT_BYTES, Completed, Runner, cpu_seconds, run_confined, scratch_folder
from backends.source_fingerprint import SHARED, digest

PACKAGES = ("torch", "onnx", "onnxruntime", "emx-onnx-cgen")
GCC, SIZE = "arm-none-eabi-gcc", "arm-none-eabi-size"
COMPILE_TIMEOUT_S, LINK_TIMEOUT_S, SIZE_TIMEOUT_S = 200.0, 60.0, 30.0  # before the gate, 300 s, kills the actor
FIRMWARE = Path(__file__).parent / "firmware"
Optimise = Literal["speed", "size", "auto"]
SMALL_NOTE = "The C is optimised for size."
PROBE = "probe_net"  # the network with marks between its layers; the linker script knows it by its end


class CQemuBackend(Backend):
    """C over a planned arena, compiled by GCC; the linker's regions give the verdict.

    For a task with a front end `stream.c` feeds the network from samples; all of it counts.

    `optimise` is for speed, for size (fewer bytes of code, several times the instructions), or `auto`: for speed, and
    for size where only that fits.

    The firmware holds network, serial harness and a stack of `stack_bytes`, or more where the network's deepest calls
    could need more. Parameters and MACs are left to the network's own description, latency to a real board.
    """

    name = "c_qemu"
    programs = (GCC, SIZE)
    measures = frozenset({"ram", "flash", "operators"})
    boards = ("qemu",)

    def __init__(self, *, stack_bytes: int = 1024, optimise: Optimise = "auto", run: Runner = run_confined) -> None:
        super().__init__(run=run)
        if optimise not in get_args(Optimise):
            raise ConfigError(f"optimise should be one of {', '.join(get_args(Optimise))}, found {optimise!r}.")
        self.stack_bytes, self.optimise = stack_bytes, optimise

    def version(self) -> str:
        packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
        ours = digest(FIRMWARE.parent, *SHARED)
        return f"{packages}, {self._gnu_versions}, ours {ours}, stack {self.stack_bytes} B, {self.optimise}"

    @functools.cached_property
    def _gnu_versions(self) -> str:
        said = []
        for asked, pattern in (("-dumpfullversion", r"[\w.+-]{1,40}"), ("-Wl,--version", r"[\w.+() -]{1,80}")):
            done = self.run([GCC, asked], timeout_s=SIZE_TIMEOUT_S, cwd=scratch_folder())
            line = (_succeed(done).stdout.splitlines() or [""])[0].strip()
            if not re.fullmatch(pattern, line):
                raise ToolchainError(f"{GCC} {asked} should say a version, found {line[:80]!r}.")
            said.append(line)
        return f"{GCC} {said[0]}, {said[1]}"

    def build(self, deployed: DeployedNetwork, target: McuTarget, constraints: Constraints, workdir: Path) -> Firmware:
        made = self._build(deployed, target, constraints, workdir, self.optimise == "size")
        if made.report.feasible or self.optimise != "auto" or deployed.precision != "int8":
            return made
        again = self._build(deployed, target, constraints, workdir, True)
        spent, more = made.report.seconds_by_rung, again.report.seconds_by_rung
        seconds = {rung: spent[rung] + more[rung] for rung in more}
        return dataclasses.replace(again, report=again.report.replace(seconds_by_rung=seconds))

    def _build(
        self, deployed: DeployedNetwork, target: McuTarget, constraints: Constraints, workdir: Path, small: bool
    ) -> Firmware:
        start = cpu_seconds()
        code = generate(deployed, target.core, small=small)
        texts, front_end = {"net.c": code.source, "net.h": code.header}, fed_by(deployed)
        if front_end is not None:
            texts |= {"stream.c": stream_source(front_end), "stream.h": stream_header(front_end)}
        sources = [workdir / name for name in texts]
        for path, text in zip(sources, texts.values(), strict=True):
            path.write_text(text)
        units = [path.stem for path in sources if path.suffix == ".c"]
        converted = cpu_seconds()
        self._compile(target.core, workdir, units)
        layout = self._layout(deployed, target, constraints, workdir, units)
        report = self._judge(deployed, code, target, layout, workdir)
        elf, emulated = None, None
        if report.feasible:
            elf, emulated = workdir / "net.elf", self._link_for_emulator(target, layout, workdir)
        else:
            (workdir / "net.elf").unlink(missing_ok=True)  # nobody may flash what does not fit
        seconds = {Rung.CONVERT: converted - start, Rung.LINK: cpu_seconds() - converted}
        about = {"notes": (SMALL_NOTE,)} if small and deployed.precision == "int8" else {}
        report = report.replace(seconds_by_rung={str(k): v for k, v in seconds.items()}, **about)
        parts = ("main.c", "startup.c", "harness.h", f"uart_{target.uart.kind}.c")
        harness = [workdir / "net.ld", *(FIRMWARE / name for name in parts)]
        if emulated is not None and target.emulator is not None:  # with these a bundle can be checked anywhere
            kind = find_machine(target.emulator.machine).uart.kind
            harness += [workdir / "emulated.ld", FIRMWARE / f"uart_{kind}.c"]
        return Firmware(report, elf, (*sources, *harness), workdir, emulated)

    def package(self, folder: Path, deployed: DeployedNetwork, task: Task, manifest: NetworkManifest) -> None:
        build = {
            "core_flags": CORE_FLAGS[task.target.core],
            "compile_flags": COMPILE_FLAGS,
            "harness_flags": _harness_flags(
                fed_by(dataclasses.replace(deployed, front_end=task.front_end)) is not None
            ),
            "link_flags": LINK_FLAGS,
        }
        gcc = self._gnu_versions.split()[1].rstrip(",")
        package(folder, deployed, task, manifest, build, gcc=gcc, run=self.run)

    def preparation(self, deployed: DeployedNetwork, task: Task) -> str:
        return preparation(deployed, fed_by(dataclasses.replace(deployed, front_end=task.front_end)))

    def profiled(
        self, deployed: DeployedNetwork, target: McuTarget, built: FeasibilityReport, workdir: Path
    ) -> Probe | None:
        if target.emulator is None or deployed.precision != "int8":
            return None
        code = generate(deployed, target.core, small=SMALL_NOTE in built.notes)
        source, nodes = code.with_marks
        (workdir / f"{PROBE}.c").write_text(source)
        self._compile(target.core, workdir, [PROBE])
        layout = self._layout(deployed, target, Constraints(), workdir, [PROBE])
        there = dataclasses.replace(layout, output_bytes=4 * (2 + len(nodes)))
        return Probe(self._link_for_machine(PROBE, target, there, workdir, PROBE), nodes, code.weights)

    def _compile(self, core: Core, workdir: Path, units: Sequence[str]) -> None:
        for unit in units:
            flags = [*CORE_FLAGS[core], *COMPILE_FLAGS, "-fcallgraph-info=su"]
            argv = [GCC, *flags, "-c", f"{unit}.c", "-o", f"{unit}.o"]
            _succeed(self.run(argv, timeout_s=COMPILE_TIMEOUT_S, cwd=workdir))

    def _layout(
        self,
        deployed: DeployedNetwork,
        target: McuTarget,
        constraints: Constraints,
        workdir: Path,
        units: Sequence[str],
    ) -> Layout:
        channels, height, width = deployed.input_shape
        value_bytes = deployed.output_dtype.itemsize
        calls = "".join(_read(workdir / f"{unit}.ci") for unit in units)
        return Layout(
            flash_origin=target.flash.origin,
            flash_bytes=constraints.flash_limit_bytes(target),
            ram_origin=target.main_ram.origin,
            ram_bytes=constraints.ram_limit_bytes(target),
            start_origin=target.flash.origin,
            input_bytes=channels * height * width * value_bytes,
            output_bytes=deployed.num_classes * value_bytes,
            stack_bytes=max(self.stack_bytes, stack.bound_bytes(calls) + stack.GUARD_BYTES),
            stream="stream" in units,
        )

    def _link(
        self, name: str, core: Core, uart: Uart, layout: Layout, workdir: Path, network: str = "net"
    ) -> Completed:
        """Write `<name>.ld`, link `<name>.elf`, and return what the linker says; an overflow is no error."""
        (workdir / f"{name}.ld").write_text(layout.script(FIRMWARE / "link.ld"))
        flags = [*CORE_FLAGS[core], *LINK_FLAGS, f"-Wl,-Map={name}.map", f"-T{name}.ld"]
        units = [f"{unit}.o" for unit in (network, *(["stream"] if layout.stream else []))]
        argv = [GCC, *flags, *units, *self._harness(core, uart, layout.stream), "-lm", "-o", f"{name}.elf"]
        done = self.run(argv, timeout_s=LINK_TIMEOUT_S, cwd=workdir)
        if complaints := linker.complaints(done.stderr):
            raise ToolchainError(f"the linker failed: {complaints[0]}. Log: {workdir}.")
        return _succeed(done)

    def _link_for_emulator(self, target: McuTarget, layout: Layout, workdir: Path) -> Path | None:
        """Return the same firmware at the addresses of the target's emulator; None where those are the target's."""
        if target.emulator is None or target.emulator.same_chip:
            return None
        return self._link_for_machine("emulated", target, layout, workdir)

    def _link_for_machine(
        self, name: str, target: McuTarget, layout: Layout, workdir: Path, network: str = "net"
    ) -> Path:
        """Return a firmware at the addresses of the target's emulator.

        Lengths are the machine's: its serial port's driver may be longer than the target's, and decides nothing.
        """
        assert target.emulator is not None, "there is a machine"
        machine = find_machine(target.emulator.machine)
        there = dataclasses.replace(
            layout,
            flash_origin=machine.flash.origin,
            flash_bytes=machine.flash.size_bytes,
            ram_origin=machine.ram.origin,
            ram_bytes=machine.ram.size_bytes,
            start_origin=machine.flash.origin if machine.start is None else machine.start,
        )
        if over := linker.overflows(self._link(name, target.core, machine.uart, there, workdir, network).stderr):
            raise ToolchainError(f"{target.emulator.machine} is smaller than {target.name}: {over} bytes over.")
        return workdir / f"{name}.elf"

    def _judge(
        self, deployed: DeployedNetwork, code: NetworkCode, target: McuTarget, layout: Layout, workdir: Path
    ) -> FeasibilityReport:
        done = self._link("net", target.core, target.uart, layout, workdir)
        sizes = _succeed(self.run([SIZE, "-A", "net.elf"], timeout_s=SIZE_TIMEOUT_S, cwd=workdir)).stdout
        used, over = linker.used_bytes(done.stdout), linker.overflows(done.stderr)
        limits = {"RAM": layout.ram_bytes, "FLASH": layout.flash_bytes}
        if over != {name: used[name] - limit for name, limit in limits.items() if used[name] > limit}:
            raise ToolchainError(f"the linker contradicts itself: used {used}, limits {limits}, over {over}.")
        ram, flash = linker.usage(used, linker.section_bytes(sizes))
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

    def _harness(self, core: Core, uart: Uart, stream: bool) -> list[str]:
        """Return start-up, harness and serial port as objects; compiled once for a core and port, and for streams."""
        folder = scratch_folder() / f"{core}-{uart.kind}-{uart.base:x}{'-stream' * stream}"
        names = ("startup", "main", f"uart_{uart.kind}")
        objects = [folder / f"{name}.o" for name in names]
        if not all(path.exists() for path in objects):
            folder.mkdir(exist_ok=True)
            flags = [
                *CORE_FLAGS[core],
                *COMPILE_FLAGS,
                f"-DUART_BASE={uart.base:#x}u",
                *_harness_flags(stream),
            ]
            files = [str(FIRMWARE / f"{name}.c") for name in names]
            _succeed(self.run([GCC, *flags, "-c", *files], timeout_s=COMPILE_TIMEOUT_S, cwd=folder))
        return [str(path) for path in objects]


def fed_by(deployed: DeployedNetwork) -> FrontEnd | None:
    """Return what makes the input of samples in the firmware: at int8 alone, for its pixels are whole numbers."""
    return deployed.front_end if deployed.precision == "int8" else None


def _harness_flags(stream: bool) -> list[str]:
    return [f"-DGUARD_BYTES={stack.GUARD_BYTES}u", *(["-DSTREAM"] if stream else [])]


def _violation(region: str, over: int, limit: int, code: NetworkCode) -> Violation:
    """Return the violation of a region, with the node, bytes and kind of what to shrink first."""
    where, size, what = "", 0, "the output"
    if region == "FLASH":
        (where, size), what = max(code.weights.items(), key=lambda item: item[1], default=("", 0)), "the weights"
    elif buffer := largest_at_peak(code.buffers):
        where, size = code.made_by[buffer.name], buffer.size_bytes
        what = "the scratch memory" if buffer.is_scratch else what
    part = f"; the largest part is {what} of {where or 'no layer'} ({size} bytes)."
    return over_limit(Rung.LINK, "ram" if region == "RAM" else "flash", where, limit + over, limit, part=part)


def _read(path: Path) -> str:
    """Return the text of a file that a program should have written, as much as is ever needed of it."""
    if not path.is_file():
        raise ToolchainError(f"{GCC} should have written {path.name}, found nothing. Log: {path.parent}.")
    with path.open(errors="replace") as file:
        return file.read(OUTPUT_BYTES)


def _succeed(done: Completed) -> Completed:
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        raise ToolchainError(f"{done.args[0]} failed ({done.returncode}): {errors[0] if errors else 'silent'}")
    return done
