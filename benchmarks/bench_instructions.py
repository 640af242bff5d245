"""How well instructions are estimated without building anything: random networks, half teach, half judge.

    python benchmarks/bench_instructions.py --specs 200 --shape 3x32x32 --core cortex-m4f
    python benchmarks/bench_instructions.py --write    # fits all cores anew, into automcu_ray/sizing/instructions.json
    python benchmarks/bench_instructions.py --seed 1   # judges the model that ships by networks it has not seen
    python benchmarks/bench_instructions.py --seed 2 --keep counts.jsonl   # keeps what was counted, a network a line
    python benchmarks/bench_instructions.py --kept counts.jsonl --write    # fits to that, counts nothing

Many networks are linked into one firmware, and one QEMU runs them all: every layer of every network is counted.
"""

import argparse
import contextlib
import dataclasses
import json
import tempfile
import time
from collections.abc import Sequence
from math import prod
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from pydantic import TypeAdapter

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import DeployedNetwork, deploy
from automcu_ray.deploy.torch_network import Network
from automcu_ray.deploy.tracing import shift_norms
from automcu_ray.networks.graph import Graph, Shape
from automcu_ray.problem.target import BYTES_PER_KB, Constraints, Core, Emulator, McuTarget
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config import compose
from automcu_ray.sizing.footprint import footprint
from automcu_ray.sizing.instruction_features import BESIDE_BYTES
from automcu_ray.sizing.instruction_model import SHIPPED, InstructionModel, fit, shipped
from backends.boards.machines import find_machine
from backends.boards.qemu import QemuBoard
from backends.c_qemu import backend as c_qemu
from backends.c_qemu import gcc_flags
from backends.c_qemu.cgen import generate
from backends.c_qemu.form import Form
from backends.c_qemu.gnu_tools import GCC
from backends.c_qemu.linker import Layout

BATCH = 25  # networks of one firmware
MACHINES: dict[Core, tuple[str, str]] = {  # the machine that knows a core's instructions, and a target with that core
    "cortex-m0plus": ("mps2-an385", "rp2040"),
    "cortex-m3": ("mps2-an385", "stm32f103"),
    "cortex-m4f": ("mps2-an386", "stm32f405"),
    "cortex-m7d": ("mps2-an500", "stm32f767"),
    "cortex-m33f": ("mps2-an505", "stm32u575"),
    "cortex-m55d": ("mps3-an547", "ensemble_e8_hp"),
}
MAX_RAM_BYTES, MAX_FLASH_BYTES, MAX_MACS = 64 << 10, 128 << 10, 30_000_000


class Counted(NamedTuple):
    """A network and the instructions of each of its operators, in the order of its graph."""

    graph: Graph
    instructions: tuple[int, ...]


def random_networks(shape: Shape, count: int, seed: int) -> list[tuple[Graph, DeployedNetwork]]:
    """Return distinct random networks of moderate size, with random weights, as they would be deployed."""
    config, rng = compose({}), Random(seed)
    task = Task(dataset="random", input_shape=shape, num_classes=10, target=config.target, constraints=Constraints())
    noise = np.random.default_rng(0).integers(0, 256, (8, *shape), dtype=np.uint8)
    made: dict[str, tuple[Graph, DeployedNetwork]] = {}
    while len(made) < count:
        candidate = task.space.sample(rng)
        assert candidate.structure is not None
        graph = task.graph(candidate.structure)
        found = footprint(graph, "int8")
        sizes = found.ram_lower_bound_bytes < MAX_RAM_BYTES and found.flash_lower_bound_bytes < MAX_FLASH_BYTES
        if not sizes or found.macs > MAX_MACS or candidate.hash in made:
            continue
        torch.manual_seed(0)
        network = Network(graph)
        shift_norms(network)
        with contextlib.suppress(ToolchainError):  # an operator that does not become int8
            made[candidate.hash] = graph, deploy(network, shape, precision="int8", calibration=noise)
    return list(made.values())


def count(
    networks: Sequence[tuple[Graph, DeployedNetwork]], core: Core, ram_bytes: int, keep: Path | None = None
) -> list[Counted]:
    """Return what QEMU counts, layer by layer; networks that cannot be built are left out."""
    target, found = emulated(core), []
    for start in range(0, len(networks), BATCH):
        with tempfile.TemporaryDirectory() as folder:
            made = _batch(networks[start : start + BATCH], target, ram_bytes, Path(folder))
        found += made
        if keep:
            with keep.open("a") as file:
                file.writelines(
                    json.dumps([core, dataclasses.asdict(one.graph), one.instructions]) + "\n" for one in made
                )
    return found


def kept(files: Sequence[Path]) -> dict[Core, list[Counted]]:
    """Return what was counted and kept, by core."""
    found: dict[Core, list[Counted]] = {}
    for line in (line for file in files for line in file.read_text().splitlines()):
        core, graph, instructions = json.loads(line)
        read = TypeAdapter(Graph).validate_python(graph)
        found.setdefault(core, []).append(Counted(read, tuple(instructions)))
    return found


def _batch(
    networks: Sequence[tuple[Graph, DeployedNetwork]], target: McuTarget, ram_bytes: int, workdir: Path
) -> list[Counted]:
    backend, objects, calls, placed = c_qemu.CQemuBackend(), [], [], []
    marks = 0
    for at, (graph, deployed) in enumerate(networks):
        try:
            form = Form(arena_bytes=max(0, ram_bytes - BESIDE_BYTES - prod(graph.input_shape) - deployed.num_classes))
            source, nodes = generate(deployed, target.core, form=form).with_marks
        except ToolchainError:
            continue
        objects.append(compiled(backend, target, f"net_{at}", source, workdir))
        calls.append(f"    net_{at}(input, (char *)output + {4 * marks});")
        placed.append((graph, deployed, nodes, marks))
        marks += 2 + len(nodes)
    elf = linked(backend, target, calls, objects, int(np.prod(networks[0][1].input_shape)), 4 * marks, workdir)
    image = np.random.default_rng(1).integers(0, 256, (1, *networks[0][1].input_shape), dtype=np.uint8)
    board = QemuBoard()
    run = board.run(elf, target, placed[0][1].encode(image), output_dtype=np.uint32, output_count=marks)
    ticks, found = run.outputs[0].astype(np.int64), []
    for graph, deployed, nodes, first in placed:
        hook, *spent = np.diff(ticks[first : first + 2 + len(nodes)]).tolist()
        of: dict[str, int] = {}
        for node, each in zip(nodes, spent, strict=True):
            layer = deployed.in_words(node)
            of[layer] = of.get(layer, 0) + (board.instructions(each - hook, target) or 0)
        found.append(Counted(graph, tuple(of.get(op.name, 0) for op in graph.ops)))
        if unknown := of.keys() - {op.name for op in graph.ops}:
            print("layers that are no operators:", sorted(unknown))
    return found


def compiled(backend: c_qemu.CQemuBackend, target: McuTarget, name: str, source: str, workdir: Path) -> str:
    """Compile a network's C, its function under another name; return the object's file name."""
    (workdir / f"{name}.c").write_text(source)
    flags = [*gcc_flags.CORE_FLAGS[target.core], *gcc_flags.COMPILE_FLAGS, f"-Dnet={name}"]
    _ran(backend, [GCC, *flags, "-w", "-c", f"{name}.c", "-o", f"{name}.o"], workdir)
    return f"{name}.o"


def linked(
    backend: c_qemu.CQemuBackend,
    target: McuTarget,
    calls: Sequence[str],
    objects: Sequence[str],
    input_bytes: int,
    output_bytes: int,
    workdir: Path,
) -> Path:
    """Link networks into one firmware whose `net` calls them in turn; return its ELF."""
    declared = "\n".join(f"void {call.split('(')[0].strip()}(const void *, void *);" for call in calls)
    body = "\n".join(calls)
    (workdir / "all.c").write_text(f"{declared}\nvoid net(const void *input, void *output) {{\n{body}\n}}\n")
    _ran(backend, [GCC, *gcc_flags.CORE_FLAGS[target.core], "-O2", "-c", "all.c"], workdir)
    _ran(backend, [GCC, "-r", "-nostdlib", *objects, "all.o", "-o", "batch_net.o"], workdir)
    machine = find_machine(MACHINES[target.core][0])
    layout = Layout(
        flash_origin=machine.flash.origin,
        flash_bytes=machine.flash.size_bytes,
        ram_origin=machine.ram.origin,
        ram_bytes=machine.ram.size_bytes,
        start_origin=machine.flash.origin if machine.start is None else machine.start,
        input_bytes=input_bytes,
        output_bytes=output_bytes,
        stack_bytes=16 << 10,
    )
    backend._link("batch_net", target.core, machine.uart, layout, workdir, "batch_net")
    return workdir / "batch_net.elf"


def emulated(core: Core) -> McuTarget:
    """Return a target of a core, on the machine that knows its instructions."""
    machine, name = MACHINES[core]
    return compose({"target": name}).target.replace(
        core=core, emulator=Emulator(machine=machine, source="this benchmark")
    )


def _ran(backend: c_qemu.CQemuBackend, argv: list[str], workdir: Path) -> None:
    done = backend.run(argv, timeout_s=200, cwd=workdir)
    if done.returncode:
        raise ToolchainError(done.stderr[:2000])


def judge(model: InstructionModel, counted: Sequence[Counted]) -> tuple[float, float]:
    """Return the median and the 95th percentile of the error, in percent."""
    off = [abs(model.estimate(one.graph) / sum(one.instructions) - 1) * 100 for one in counted]
    return float(np.median(off)), float(np.percentile(off, 95))


def _shape(text: str) -> Shape:
    channels, height, width = map(int, text.split("x"))
    return channels, height, width


def main() -> None:
    """Count, fit on one half, judge on the other; `--write` fits all cores on all networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--specs", type=int, default=100, help="for each shape; half teach, half judge")
    parser.add_argument("--shape", action="append", help="channels x height x width; default 1x8x8 and 3x32x32")
    parser.add_argument("--core", action="append", choices=list(MACHINES), help="default: all")
    parser.add_argument("--ram-kb", type=int, default=64, help="that a firmware may take; 0: as little as can be")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="keep what all networks teach")
    parser.add_argument("--keep", type=Path, help="append what is counted, a network a line")
    parser.add_argument("--kept", type=Path, nargs="+", help="take what was counted from such files")
    given = parser.parse_args()
    shapes = [_shape(text) for text in given.shape or ("1x8x8", "3x32x32")]
    torch.set_num_threads(1)
    ram_bytes = given.ram_kb * BYTES_PER_KB
    started_s = time.perf_counter()
    known, networks = kept(given.kept or ()), {}
    if not given.kept:
        networks = {shape: random_networks(shape, given.specs, given.seed) for shape in shapes}
        print(f"{sum(map(len, networks.values()))} networks in {time.perf_counter() - started_s:.0f} s")
    costs: dict[str, dict[str, float]] = json.loads(SHIPPED.read_text()) if SHIPPED.exists() else {}
    for core in given.core or (list(known) if given.kept else MACHINES):
        counted = known.get(core) or [
            one for shape in shapes for one in count(networks[shape], core, ram_bytes, given.keep)
        ]
        teach, unseen = counted[::2], counted[1::2]
        model = fit([one.graph for one in teach], [one.instructions for one in teach], core, ram_bytes)
        median, p95 = judge(model, unseen)
        print(f"{core}: {len(unseen)} unseen of {len(counted)}: median {median:.2f} %, p95 {p95:.2f} %", flush=True)
        median, p95 = judge(shipped(core).replace(ram_bytes=ram_bytes), counted)
        print(f"{core}: the model that ships, on all of them: median {median:.2f} %, p95 {p95:.2f} %", flush=True)
        if given.write:
            graphs, instructions = [one.graph for one in counted], [one.instructions for one in counted]
            costs[core] = fit(graphs, instructions, core, ram_bytes).costs
            SHIPPED.write_text(json.dumps(costs, indent=1) + "\n")
    print(f"{time.perf_counter() - started_s:.0f} s")


if __name__ == "__main__":
    main()
