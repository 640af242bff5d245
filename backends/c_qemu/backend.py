"""The open default: ONNX -> int8 C -> arm-none-eabi-gcc -> an ELF that QEMU runs. No account, no hardware."""

import dataclasses
import importlib.metadata
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from automcu_ray.core.errors import ConfigError, ToolchainError
from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation
from automcu_ray.core.memory_map import MemoryMap
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.deploy.onnx_graph import operators
from automcu_ray.networks.graph import Graph
from automcu_ray.problem.target import Constraints, Core, McuTarget, Uart
from automcu_ray.problem.task import Task
from automcu_ray.records.manifest import NetworkManifest
from automcu_ray.signals.front_end import FrontEnd
from automcu_ray.sizing import footprint
from backends.base import Backend, Firmware, Probe
from backends.boards.machines import find_machine
from backends.c_qemu import harness, linker, stack
from backends.c_qemu.cgen import NetworkCode, generate
from backends.c_qemu.choice import Arena, Choice, Optimise, Patches
from backends.c_qemu.form import Form
from backends.c_qemu.gcc_flags import COMPILE_FLAGS, CORE_FLAGS, LINK_FLAGS
from backends.c_qemu.gnu_tools import (
    COMPILE_TIMEOUT_S,
    GCC,
    LINK_TIMEOUT_S,
    SIZE,
    SIZE_TIMEOUT_S,
    gnu_versions,
    read_text,
    succeed,
)
from backends.c_qemu.handover.api import preparation
from backends.c_qemu.handover.package import package
from backends.c_qemu.harness import FIRMWARE
from backends.c_qemu.linker import Layout
from backends.c_qemu.stream.printing import stream_header, stream_source
from backends.programs import Completed, Runner, cpu_seconds, run_confined
from backends.source_fingerprint import SHARED, digest

PACKAGES = ("torch", "onnx", "onnxruntime", "emx-onnx-cgen")
Stream = Literal["window", "steps"]
PROBE = "probe_net"  # the network with marks between its layers; the linker script knows it by its end


class CQemuBackend(Backend):
    """C over a planned arena, compiled by GCC; the linker's regions give the verdict.

    For a task with a front end `stream.c` feeds the network from samples; all of it counts.

    `optimise` is for speed, for size (fewer bytes of code, several times the instructions), or `auto`: for speed, and
    where that does not fit the fastest form that does. Kernels that need more scratch than
    tensors leave take what the RAM limit leaves, as far as they are faster for it, unless `arena` is `least`.

    With `patches` on `auto` a network that needs too much RAM is tried with its first layers computed patch by patch;
    then the analytic rung refuses less, and sizes do not follow its bounds.

    With `stream` on `steps` a stream keeps a recurrent network's states, of two windows under way, in place of the
    window, and works out one step a sample; answers are those of the windows.

    The firmware holds network, serial harness and a stack of `stack_bytes`, or more where the network's deepest calls
    could need more. Parameters and MACs are left to the network's own description, latency to a real board.
    """

    name = "c_qemu"
    programs = (GCC, SIZE)
    measures = frozenset({"ram", "flash", "operators"})
    boards = ("qemu",)

    def __init__(
        self,
        *,
        stack_bytes: int = 1024,
        optimise: Optimise = "auto",
        arena: Arena = "fast",
        patches: Patches = "never",
        stream: Stream = "window",
        run: Runner = run_confined,
    ) -> None:
        super().__init__(run=run)
        asked = (("optimise", optimise, Optimise), ("arena", arena, Arena), ("patches", patches, Patches))
        for name, found, choices in (*asked, ("stream", stream, Stream)):
            if found not in get_args(choices):
                raise ConfigError(f"{name} should be one of {', '.join(get_args(choices))}, found {found!r}.")
        self.stack_bytes, self.optimise, self.patches = stack_bytes, optimise, patches
        self.arena, self.stream = arena, stream
        self.follows_bounds = patches == "never"

    def version(self) -> str:
        packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
        ours = digest(FIRMWARE.parent, *SHARED)
        options = f"stack {self.stack_bytes} B, {self.optimise}, arena {self.arena}, patches {self.patches}"
        return f"{packages}, {gnu_versions(self.run)}, ours {ours}, {options}, stream by {self.stream}"

    def unsuitable(self, task: Task) -> str:
        return "" if task.target.core in CORE_FLAGS else f"GCC for Arm does not build for {task.target.core}"

    def check_bounds(self, graph: Graph, task: Task) -> tuple[Violation, ...]:
        if self.patches == "never" or task.precision != "int8":
            return footprint.check_bounds(graph, task)
        bounds = footprint.in_patches(graph, task.precision)
        return footprint.check(bounds, task.ram_limit_bytes, task.flash_limit_bytes)

    def build(self, deployed: DeployedNetwork, target: McuTarget, constraints: Constraints, workdir: Path) -> Firmware:
        choice = Choice(
            deployed,
            target.core,
            constraints.ram_limit_bytes(target),
            optimise=self.optimise,
            arena=self.arena,
            patches=self.patches,
            build=partial(self._build, deployed, target, constraints, workdir),
        )
        return choice.made(steps=self.stream == "steps" and fed_by(deployed) is not None)

    def _build(
        self, deployed: DeployedNetwork, target: McuTarget, constraints: Constraints, workdir: Path, form: Form
    ) -> Firmware:
        """Return the firmware in one form."""
        start = cpu_seconds()
        code = generate(deployed, target.core, form=form)
        texts, front_end = {"net.c": code.source, "net.h": code.header}, fed_by(deployed)
        if front_end is not None:
            texts |= {
                "stream.c": stream_source(front_end, steps=form.steps),
                "stream.h": stream_header(front_end, steps=form.steps),
            }
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
        seconds = {str(Rung.CONVERT): converted - start, str(Rung.LINK): cpu_seconds() - converted}
        report = report.replace(seconds_by_rung=seconds, notes=form.notes if deployed.precision == "int8" else ())
        around = [workdir / "net.ld", *harness.sources(target.uart, target.boot)]
        if emulated is not None and target.emulator is not None:  # with these a bundle can be checked anywhere
            kind = find_machine(target.emulator.machine).uart.kind
            around += [workdir / "emulated.ld", FIRMWARE / f"uart_{kind}.c"]
        return Firmware(report, elf, (*sources, *around), workdir, emulated)

    def package(self, folder: Path, deployed: DeployedNetwork, task: Task, manifest: NetworkManifest) -> None:
        build = {
            "core_flags": CORE_FLAGS[task.target.core],
            "compile_flags": COMPILE_FLAGS,
            "harness_flags": harness.flags(fed_by(dataclasses.replace(deployed, front_end=task.front_end)) is not None),
            "link_flags": LINK_FLAGS,
        }
        gcc = gnu_versions(self.run).split()[1].rstrip(",")
        package(folder, deployed, task, manifest, build, gcc=gcc, run=self.run)

    def preparation(self, deployed: DeployedNetwork, task: Task) -> str:
        front_end = fed_by(dataclasses.replace(deployed, front_end=task.front_end))
        return preparation(deployed, front_end, task.learning.kind)

    def profiled(
        self, deployed: DeployedNetwork, target: McuTarget, built: FeasibilityReport, workdir: Path
    ) -> Probe | None:
        form = Form.of(built.notes)
        if target.emulator is None or deployed.precision != "int8" or form.steps:
            return None
        code = generate(deployed, target.core, form=form)
        source, nodes = code.with_marks
        (workdir / f"{PROBE}.c").write_text(source)
        self._compile(target.core, workdir, [PROBE])
        layout = self._layout(deployed, target, Constraints(), workdir, [PROBE])
        there = dataclasses.replace(layout, output_bytes=4 * (2 + len(nodes)))
        return Probe(self._link_for_machine(PROBE, target, there, workdir, PROBE), nodes, code.weights)

    def memory_map(self, deployed: DeployedNetwork, target: McuTarget, built: FeasibilityReport) -> MemoryMap | None:
        return generate(deployed, target.core, form=Form.of(built.notes)).memory

    def _compile(self, core: Core, workdir: Path, units: Sequence[str]) -> None:
        for unit in units:
            flags = [*CORE_FLAGS[core], *COMPILE_FLAGS, "-fcallgraph-info=su"]
            argv = [GCC, *flags, "-c", f"{unit}.c", "-o", f"{unit}.o"]
            succeed(self.run(argv, timeout_s=COMPILE_TIMEOUT_S, cwd=workdir))

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
        calls = "".join(read_text(workdir / f"{unit}.ci") for unit in units)
        return Layout(
            flash_origin=target.flash.origin,
            flash_bytes=constraints.flash_limit_bytes(target),
            ram_origin=target.main_ram.origin,
            ram_bytes=constraints.ram_limit_bytes(target),
            start_origin=linker.start_origin(target),
            input_bytes=channels * height * width * value_bytes,
            output_bytes=deployed.num_classes * value_bytes,
            stack_bytes=max(self.stack_bytes, stack.bound_bytes(calls) + stack.GUARD_BYTES),
            stream="stream" in units,
            boot=target.boot,
        )

    def _link(
        self, name: str, core: Core, uart: Uart, layout: Layout, workdir: Path, network: str = "net"
    ) -> Completed:
        """Write `<name>.ld`, link `<name>.elf`, and return what the linker says; an overflow is no error."""
        (workdir / f"{name}.ld").write_text(layout.script(FIRMWARE / "link.ld"))
        flags = [*CORE_FLAGS[core], *LINK_FLAGS, f"-Wl,-Map={name}.map", f"-T{name}.ld"]
        units = [f"{unit}.o" for unit in (network, *(["stream"] if layout.stream else []))]
        around = harness.objects(core, uart, layout.boot, stream=layout.stream, run=self.run)
        argv = [GCC, *flags, *units, *around, "-lm", "-o", f"{name}.elf"]
        done = self.run(argv, timeout_s=LINK_TIMEOUT_S, cwd=workdir)
        if complaints := linker.complaints(done.stderr):
            raise ToolchainError(f"the linker failed: {complaints[0]}. Log: {workdir}.")
        return succeed(done)

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
            boot=None,
        )
        if over := linker.overflows(self._link(name, target.core, machine.uart, there, workdir, network).stderr):
            raise ToolchainError(f"{target.emulator.machine} is smaller than {target.name}: {over} bytes over.")
        return workdir / f"{name}.elf"

    def _judge(
        self, deployed: DeployedNetwork, code: NetworkCode, target: McuTarget, layout: Layout, workdir: Path
    ) -> FeasibilityReport:
        done = self._link("net", target.core, target.uart, layout, workdir)
        sizes = succeed(self.run([SIZE, "-A", "net.elf"], timeout_s=SIZE_TIMEOUT_S, cwd=workdir)).stdout
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
                linker.violation(region, size, limits[region], code)
                for region, size in sorted(over.items(), reverse=True)
            ),
        )


def fed_by(deployed: DeployedNetwork) -> FrontEnd | None:
    """Return what makes the input of samples in the firmware: at int8 alone, for its pixels are whole numbers."""
    return deployed.front_end if deployed.precision == "int8" else None
