"""What `vela` and `executorch` share: a program in their own environment is fed an int8 graph, and checked."""

import shutil
from abc import abstractmethod
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation, over_limit
from automcu_ray.deploy import onnx_graph
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.problem.task import Task
from backends import int8_graph
from backends.base import Backend, Firmware
from backends.int8_graph import Int8Graph, read_int8_graph
from backends.programs import LOG, cpu_seconds
from backends.source_fingerprint import SHARED, digest
from backends.venvs.environment import FOREIGN, Environment

PROBE, ANSWERS = "probe.npy", "answers.int8"  # beside the graph: what goes into the program and comes out
PROBES = 8
MAX_MEAN_STEPS = 2.0  # of 256: 0.7 is the largest seen, a wrong layer is off by tens
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Compiled:
    """What a tool made of a network: its need in bytes, what else it says, and the files that ship."""

    ram_bytes: int
    flash_bytes: int
    notes: tuple[str, ...]
    sources: tuple[Path, ...]


class VenvBackend(Backend):
    """A toolchain of Python packages in an environment of its own, fed by a program in `foreign/`.

    The program writes the network in the toolchain's form, with the weights and scales that were scored, and what that
    file answers to some inputs: answers far from onnxruntime's are an error. No firmware is built, and nothing runs on
    a board. RAM and Flash are the network's share alone, without the runtime and the application. `products` are the
    files and folders that a build leaves.
    """

    environment: ClassVar[Environment]
    program: ClassVar[str]
    products: ClassVar[tuple[str, ...]]
    measures = frozenset({"ram", "flash", "operators", "notes"})
    on_demand = True

    def missing_programs(self) -> tuple[str, ...]:
        return () if self.environment.ready else self.programs

    def how_to_install(self) -> str:
        return self.environment.how_to_make

    def prepare(self) -> None:
        self.environment.ensure()

    def unsuitable(self, task: Task) -> str:
        return "" if task.precision == "int8" else f"{self.name} is handed int8 networks, not {task.precision}"

    def version(self) -> str:
        ours = digest(Path(__file__).parent, int8_graph, *SHARED)
        return f"{', '.join(self.environment.requirements.read_text().split())}, ours {ours}"

    def build(self, deployed: DeployedNetwork, target: McuTarget, constraints: Constraints, workdir: Path) -> Firmware:
        start = cpu_seconds()
        graph = read_int8_graph(deployed)
        self.environment.ensure()
        steps = self._hand_over(deployed, graph, target, workdir)
        converted = cpu_seconds()
        made = self.compile(target, workdir)
        seconds = {Rung.CONVERT: converted - start, Rung.VENDOR: cpu_seconds() - converted}
        violations = judge(made, graph, target, constraints)
        same = f"the written network answers {PROBES} inputs within {steps} of 256 steps of onnxruntime"
        report = FeasibilityReport(
            feasible=not violations,
            backend=self.name,
            rung=Rung.VENDOR,
            ram_bytes=made.ram_bytes,
            flash_bytes=made.flash_bytes,
            operators=onnx_graph.operators(deployed.onnx),
            violations=violations,
            notes=(*made.notes, same),
            seconds_by_rung={str(rung): value for rung, value in seconds.items()},
        )
        return Firmware(report, None, made.sources if report.feasible else (), workdir)

    @abstractmethod
    def arguments(self, target: McuTarget) -> tuple[str, ...]:
        """Return what the program is told beside its folder."""

    @abstractmethod
    def compile(self, target: McuTarget, workdir: Path) -> Compiled:
        """Return the figures of what the program has left in `workdir`, compiled where that is still to be done.

        Raises:
            ToolchainError: the tool broke, or said what cannot be read.
        """

    def python(self, argv: list[str], workdir: Path) -> str:
        """Run the environment's Python to its end and return what it said on stdout.

        Raises:
            ToolchainError: it failed; its last line is quoted.
        """
        done = self.run([str(self.environment.python), *argv], timeout_s=TIMEOUT_S, cwd=workdir)
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or ["silent"]
            raise ToolchainError(f"{self.name} refused the network: {said[-1][:300]}. Log: {workdir / LOG}.")
        return done.stdout

    def _hand_over(self, deployed: DeployedNetwork, graph: Int8Graph, target: McuTarget, workdir: Path) -> int:
        """Run the program; return the largest difference between its answers and onnxruntime's."""
        for leftover in (workdir / name for name in (ANSWERS, *self.products)):  # nothing old may pass for an answer
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink(missing_ok=True)
        images = probes(deployed.input_shape)
        graph.write(workdir)
        np.save(workdir / PROBE, deployed.encode(images))
        self.python([str(FOREIGN / self.program), ".", *self.arguments(target)], workdir)
        wanted, path = deployed.run(images), workdir / ANSWERS
        if path.is_symlink() or not path.is_file():
            raise ToolchainError(f"{path.name} should hold the answers, found none.")
        if (size := path.stat().st_size) != wanted.size:
            raise ToolchainError(f"{path.name} should hold int8 answers of shape {wanted.shape}, found {size} bytes.")
        answers = np.frombuffer(path.read_bytes(), np.int8, wanted.size).reshape(wanted.shape)
        steps = np.abs(answers.astype(int) - wanted)
        if steps.mean() > MAX_MEAN_STEPS:
            raise ToolchainError(
                f"what {self.name} wrote should answer as onnxruntime does, found {steps.mean():.1f} of 256 steps "
                f"between them, on average. Log: {workdir / LOG}."
            )
        return int(steps.max())


def probes(shape: tuple[int, int, int]) -> npt.NDArray[np.uint8]:
    """Return images (PROBES, C, H, W) that are the same every time: noise, of less and less contrast."""
    noise = np.random.default_rng(0).integers(0, 256, (PROBES, *shape))
    contrast = np.linspace(1, 0.1, PROBES)[:, None, None, None]
    return np.asarray((noise - 128) * contrast + 128, np.uint8)


def judge(made: Compiled, graph: Int8Graph, target: McuTarget, constraints: Constraints) -> tuple[Violation, ...]:
    """Return what does not fit, RAM first."""
    sizes = {name: prod(tensor.shape) for name, tensor in graph.tensors.items()}
    live = {node.name: sum(sizes[name] for name in {*node.inputs, node.output}) for node in graph.nodes}
    held = {name: values.nbytes for name, values in graph.constants.items()}
    weights = {
        node.name: held.get(f"{node.output}/weight", 0) + held.get(f"{node.output}/bias", 0) for node in graph.nodes
    }
    rows: tuple[tuple[Literal["ram", "flash"], int, int, dict[str, int], str], ...] = (
        ("ram", made.ram_bytes, constraints.ram_limit_bytes(target), live, "input and output"),
        ("flash", made.flash_bytes, constraints.flash_limit_bytes(target), weights, "the weights"),
    )
    found = []
    for resource, need, limit, parts, what in rows:
        if need > limit:
            where, size = max(parts.items(), key=lambda item: item[1])
            part = f"; the largest part is {what} of {where} ({size} bytes)."
            found.append(over_limit(Rung.VENDOR, resource, where, need, limit, part=part))
    return tuple(found)
