"""MAX78000 and MAX78002: a checkout of Analog Devices' ai8x-synthesis turns a network into C for their accelerator."""

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from automcu_ray.core.errors import ConfigError, ToolchainError, ToolMissingError
from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.deploy.onnx_graph import operators
from automcu_ray.networks import operator_limits
from automcu_ray.networks.graph import Graph
from automcu_ray.problem import accelerator
from automcu_ray.problem.accelerator import Accelerator
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.problem.task import Task
from backends.ai8x import files, float_graph, limits, report
from backends.ai8x.integers import IntegerNetwork, quantise
from backends.ai8x.limits import Refused
from backends.ai8x.network import Layer
from backends.ai8x.network import layers as hardware_layers
from backends.ai8x.placement import Placement, place
from backends.base import Backend, Firmware
from backends.programs import Runner, cpu_seconds, run_program, scratch_folder
from backends.source_fingerprint import SHARED, digest

PROJECT = "project"
NEEDED_MODULES = "numpy, torch, yaml, rich, onnx, xxhash, git, github"
TIMEOUT_S = 280.0


class Ai8xBackend(Backend):
    """YAML, checkpoint and sample input for ai8xize; what it generates is a project with a known-answer test.

    The verdict is about the accelerator's own memories. The generated C is not compiled, so RAM and Flash of the core
    are not measured (None); Flash has one sound bound, for the weights lie in it until they are loaded. What `place`
    finds no room for is refused here, before the tool is asked, which might have room for it at other places.

    What the accelerator computes differs a little from onnxruntime's int8: see `convert`.

    `checkout` is the absolute path of ai8x-synthesis, `python` an interpreter with what its requirements.txt lists.
    """

    name = "ai8x"
    programs = ("ai8xize.py",)
    measures = frozenset({"notes", "operators"})

    def __init__(self, *, checkout: str | None = None, python: str = sys.executable, run: Runner = run_program) -> None:
        super().__init__(run=run)
        self.checkout = Path(checkout).expanduser() if checkout else None
        self.python = str(Path(python).expanduser())
        on_path = Path(self.python).name == self.python
        for path in (self.checkout, None if on_path else Path(self.python)):  # workers run in folders of their own
            if path is not None and not path.is_absolute():
                raise ConfigError(f"backend {self.name!r} needs absolute paths, found {str(path)!r}.")

    def missing_programs(self) -> tuple[str, ...]:
        found = self.checkout is not None and (self.checkout / "ai8xize.py").is_file()
        interpreter = () if shutil.which(self.python) else (self.python,)
        return interpreter if found else (*self.programs, *interpreter)

    def how_to_install(self) -> str:
        return (
            "git clone https://github.com/analogdevicesinc/ai8x-synthesis; pip install -r its requirements.txt into an "
            "environment of its own; --set backend.checkout=PATH --set backend.python=PATH/bin/python"
        )

    def unsuitable(self, task: Task) -> str:
        if task.target.accelerator is None:
            return f"target {task.target.name!r} has no accelerator; take --target max78000 or max78002"
        if task.learning.metric != "accuracy":
            return f"its own integers are judged by accuracy alone, and the metric here is {task.learning.metric}"
        return "" if task.precision == "int8" else f"the accelerator computes in int8, not {task.precision}"

    def version(self) -> str:
        lines = f"import {NEEDED_MODULES}\nprint(numpy.__version__, torch.__version__)"
        done = self.run([self.python, "-c", lines], timeout_s=120, cwd=scratch_folder())
        found = re.fullmatch(r"(\d+)(\.\S+) (\S+)", done.stdout.strip())
        if done.returncode != 0 or found is None:
            said = (done.stderr.strip().splitlines() or ["no versions"])[-1][:200]
            raise ToolMissingError(
                f"backend {self.name!r} needs {NEEDED_MODULES} in {self.python}: {said}. {self.how_to_install()}"
            )
        if int(found[1]) > 1:
            raise ToolMissingError(
                f"ai8xize needs numpy below 2 (later ones overflow where it shifts), {self.python} has "
                f"{found[1]}{found[2]}. {self.how_to_install()}"
            )
        tool = digest(self._tool(), self._tool().parent / "izer")
        ours = digest(Path(__file__).parent, accelerator, operator_limits, *SHARED)
        return f"ai8x-synthesis {tool}, numpy {found[1]}{found[2]}, torch {found[3]}, ours {ours}"

    def check_bounds(self, graph: Graph, task: Task) -> tuple[Violation, ...]:
        if reason := self.unsuitable(task):
            return (Violation(rung=Rung.ANALYTIC, resource="operator", message=reason),)
        try:
            place_all(graph, task.target, task.constraints)
        except Refused as error:
            return error.violations
        return ()

    def build(self, deployed: DeployedNetwork, target: McuTarget, constraints: Constraints, workdir: Path) -> Firmware:
        start = cpu_seconds()
        about = FeasibilityReport(
            feasible=False, backend=self.name, rung=Rung.CONVERT, operators=operators(deployed.onnx)
        )
        try:
            network, placement = convert(deployed, target, constraints)
        except Refused as error:
            found = tuple(violation.replace(rung=Rung.CONVERT) for violation in error.violations)
            return Firmware(about.replace(violations=found), None, (), workdir)
        converted = cpu_seconds()
        refused, notes = self._generate(network, placement, target, workdir)
        seconds = {str(Rung.CONVERT): converted - start, str(Rung.VENDOR): cpu_seconds() - converted}
        report = about.replace(
            feasible=not refused, rung=Rung.VENDOR, violations=refused, notes=notes, seconds_by_rung=seconds
        )
        sources = (workdir / PROJECT, *(workdir / name for name in files.NAMES))
        return Firmware(report, None, () if refused else sources, workdir)

    def accuracy(
        self, deployed: DeployedNetwork, task: Task, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64]
    ) -> float | None:
        return convert(deployed, task.target, task.constraints)[0].accuracy(images, labels)

    def _generate(
        self, network: IntegerNetwork, placement: Placement, target: McuTarget, workdir: Path
    ) -> tuple[tuple[Violation, ...], tuple[str, ...]]:
        """Run ai8xize; return its refusal, or the memory in use, one line each. Its known answers must be ours."""
        sample = np.random.default_rng(0).integers(-128, 128, network.layers[0].in_shape).astype(np.int8)
        files.write(workdir, network, placement, sample)
        chip = _accelerator(target)
        options = {
            "--device": chip.name,
            "--prefix": PROJECT,
            "--test-dir": ".",
            "--timer": "0",
            "--config-file": files.DESCRIPTION,
            "--checkpoint-file": files.CHECKPOINT,
            "--sample-input": files.SAMPLE,
        }
        argv = [self.python, str(self._tool()), *(part for pair in options.items() for part in pair)]
        argv += ["--overwrite", "--softmax", "--avg-pool-rounding", "--no-version-check", "--no-progress"]
        argv += ["--no-deduplicate-weights"]  # equal weights are kept twice, so that sizes can be foreseen
        assets = workdir / "assets"  # looked for in the current folder
        assets.unlink(missing_ok=True)
        assets.symlink_to(self._tool().parent / "assets", target_is_directory=True)
        try:
            done = self.run(argv, timeout_s=TIMEOUT_S, cwd=workdir)
        finally:
            assets.unlink()
        if done.returncode != 0:
            return (report.refusal(done.stderr, [layer.name for layer in network.layers]),), ()
        zero = [files.weight_key(at) for at, layer in enumerate(network.values) if not np.any(layer.weights)]
        report.check_warnings(done.stderr, zero)
        use = report.memory_use(report.read_text(workdir / PROJECT / "main.c"))
        if (use.weight_bytes, use.weight_limit_bytes) != (placement.weight_bytes, chip.weight_memory.total_bytes):
            raise ToolchainError(
                f"ai8xize states {use}, where {placement.weight_bytes} bytes of weights were expected."
            )
        ours = network.run(sample[None])[0]
        expected = report.known_answer(report.read_text(workdir / PROJECT / "sampleoutput.h"), len(ours))
        if not np.array_equal(expected, ours):
            raise ToolchainError(f"ai8xize expects {expected[:4]}... of the sample input, not {ours[:4]}...")
        return (), (
            f"weight memory: {use.weight_bytes:,} of {use.weight_limit_bytes:,} bytes",
            f"bias memory: {use.bias_bytes:,} of {use.bias_limit_bytes:,} bytes",
            f"data memory: {placement.data_bytes:,} of {chip.data_memory.total_bytes:,} bytes",
            f"layers: {len(network.layers)} of {chip.max_layers.value}",
        )

    def _tool(self) -> Path:
        if self.checkout is None or self.missing_programs():
            raise ToolMissingError(f"backend {self.name!r} needs a checkout of ai8x-synthesis. {self.how_to_install()}")
        return self.checkout / "ai8xize.py"


def convert(deployed: DeployedNetwork, target: McuTarget, constraints: Constraints) -> tuple[IntegerNetwork, Placement]:
    """Return a network as the accelerator computes it, and where it lies there.

    Its scales and roundings are not those of onnxruntime's int8; `IntegerNetwork.accuracy` says what that costs.

    Raises:
        Refused: an operator or a size that the accelerator does not have.
        ToolchainError: the network's ONNX cannot be read, or its values not be brought into 8 bits.
    """
    source = float_graph.read(deployed)
    layers, placement = place_all(source.graph, target, constraints)
    return quantise(layers, source), placement


def place_all(graph: Graph, target: McuTarget, constraints: Constraints) -> tuple[tuple[Layer, ...], Placement]:
    """Return the hardware layers of a network and where they lie.

    Raises:
        Refused: the accelerator's limits, or those of the user on Flash, are exceeded, or `place` found no room.
    """
    chip = _accelerator(target)
    limits.check_operators(graph, chip)
    layers = hardware_layers(graph)
    placement = place(layers, graph.input_shape, chip)
    need, limit = placement.weight_bytes + placement.bias_bytes, constraints.flash_limit_bytes(target)
    if need > limit:
        heaviest = max(layers, key=lambda layer: layer.weight_bytes).name
        what = f"flash: weights and biases alone need {need:,} bytes, most of them at {heaviest}; the limit"
        raise limits.too_large("flash", heaviest, need, limit, what, "is")
    return layers, placement


def _accelerator(target: McuTarget) -> Accelerator:
    if target.accelerator is None:
        raise ToolchainError(f"target {target.name!r} has no accelerator.")
    return target.accelerator
