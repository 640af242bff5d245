"""The toolchain actor: answers the rungs that need a toolchain, in a process of its own."""

import contextlib
import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from automcu_ray.core.errors import BoardError, ToolchainError
from automcu_ray.core.feasibility import FeasibilityReport, LayerCost, Rung, Violation, too_slow
from automcu_ray.core.memory_map import MemoryMap
from automcu_ray.deploy.export import DeployedNetwork, deploy
from automcu_ray.deploy.torch_network import Network
from automcu_ray.deploy.tracing import shift_norms
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.runtime import plugins
from automcu_ray.sizing import repair
from automcu_ray.sizing.footprint import footprint
from backends import BACKENDS
from backends.base import Backend, Firmware
from backends.boards.base import Board, BoardRun
from backends.programs import LOG, cpu_seconds

CALIBRATION_IMAGES = 8  # sizes hardly depend on the ranges, so noise will do before training


class Toolchain:
    """One backend for one task. The supervisor makes named Ray actors of it.

    A verdict before training is about random weights and shifts: sizes then differ from a trained network's by a few
    dozen bytes (the compiler folds a constant here and there), and finalists come back with trained ones. Logs stay
    in `<folder>/<candidate hash>/`; sources and objects of mere checks are deleted.

    With an emulated `board` the network's instructions are counted as well, on one image: counts do not depend on what
    it shows. Trained weights can raise them by some per cent, where their scales need a wider rounding.
    """

    def __init__(
        self, task: Task, backend: str, options: dict[str, Any], folder: Path, board: Board | None = None
    ) -> None:
        torch.set_num_threads(1)  # actors share the cores; OpenMP threads would fight for them
        make = plugins.load("backend", BACKENDS, backend)
        self.backend: Backend = make(**plugins.check_options("backend", backend, make, options))
        self.task = task
        self.folder = folder
        self.board = board

    def check(self, candidate: Candidate) -> FeasibilityReport:
        """Return the verdict on a spec or a cell: convert, compile, link and, where there is a board, emulate.

        Raises:
            ToolchainError: the toolchain broke; that says nothing about the candidate's size.
        """
        assert candidate.structure is not None, "code is for a toolchain with a jail"
        started_s = cpu_seconds()
        graph = self.task.graph(candidate.structure)
        found = footprint(graph, self.task.precision)
        torch.manual_seed(0)
        network = Network(graph)
        shift_norms(network)
        try:
            deployed = deploy(network, self.task.input_shape, precision=self.task.precision, calibration=self.noise())
        except ToolchainError as error:
            refused = Violation(rung=Rung.CONVERT, resource="operator", message=str(error))
            name = self.backend.name
            return FeasibilityReport(feasible=False, backend=name, rung=Rung.CONVERT, violations=(refused,))
        seconds = {"convert": cpu_seconds() - started_s}
        report = self.judge(deployed, candidate.hash, seconds, parameters=found.parameters, macs=found.macs)
        if candidate.spec is None or not self.backend.follows_bounds:
            return report
        return repair.after_link(report, candidate.spec, self.task, self.backend.check_bounds)

    def judge(self, deployed: DeployedNetwork, name: str, spent: dict[str, float], **about: Any) -> FeasibilityReport:
        """Return the verdict on a deployed network; `spent` are the CPU seconds of rungs before, by rung."""
        workdir = self.folder / name
        try:
            report = self.emulate(self.build(deployed, workdir), deployed)
        finally:
            _keep_logs_only(workdir)  # a toolchain that broke may have left a lot
        rungs = [*spent, *report.seconds_by_rung]
        seconds = {rung: spent.get(rung, 0.0) + report.seconds_by_rung.get(rung, 0.0) for rung in rungs}
        return report.replace(**about, seconds_by_rung=seconds)

    def build(self, deployed: DeployedNetwork, workdir: Path) -> Firmware:
        """Return the firmware of a deployed network, built in `workdir`."""
        workdir.mkdir(parents=True, exist_ok=True)
        deployed = dataclasses.replace(deployed, front_end=self.task.front_end)
        try:
            firmware = self.backend.build(deployed, self.task.target, self.task.constraints, workdir)
        except ToolchainError as error:
            raise ToolchainError(deployed.in_words(str(error))) from error
        return dataclasses.replace(firmware, report=in_words_of_the_spec(firmware.report, deployed))

    def emulate(self, firmware: Firmware, deployed: DeployedNetwork) -> FeasibilityReport:
        """Return a firmware's report with its instructions, and a violation where these are too many.

        Raises:
            ToolchainError: the firmware did not answer, two times.
        """
        report, started_s = firmware.report, cpu_seconds()
        if self.board is None or firmware.board_elf is None or not report.feasible:
            return report
        try:
            run = self._run(firmware.board_elf, deployed, deployed.output_dtype, deployed.num_classes)
        except BoardError as error:
            raise ToolchainError(f"the emulated board failed: {error}") from error
        report = report.replace(rung=Rung.EMULATE, instructions=run.instructions, stack_used_bytes=run.stack_used_bytes)
        found, limit = run.instructions or 0, self.task.instructions_limit
        if limit is not None and found > limit:
            report = report.replace(feasible=False, violations=(self._too_slow(found, limit, deployed, firmware),))
        return report.replace(seconds_by_rung={**report.seconds_by_rung, str(Rung.EMULATE): cpu_seconds() - started_s})

    def profile(self, deployed: DeployedNetwork, built: FeasibilityReport, workdir: Path) -> tuple[LayerCost, ...]:
        """Return what each layer costs, in order, measured between layers; () where that cannot be measured.

        `built` is the report of its firmware.
        """
        probe = self.backend.profiled(deployed, self.task.target, built, workdir) if self.board is not None else None
        if probe is None or self.board is None:
            return ()
        marks = self._run(probe.elf, deployed, np.dtype(np.uint32), 2 + len(probe.nodes)).outputs[0]
        hook, *ticks = np.diff(marks.astype(np.int64)).tolist()  # two marks in a row: what a mark takes
        costs: dict[str, LayerCost] = {}
        for node, spent in zip(probe.nodes, ticks, strict=True):
            layer = deployed.in_words(node)
            known = costs.get(layer, LayerCost(layer=layer, instructions=0, weights_bytes=0))
            counted = self.board.instructions(max(0, spent - hook), self.task.target) or 0
            costs[layer] = known.replace(instructions=known.instructions + counted)
        for node, weights in probe.weights.items():
            layer = deployed.in_words(node)
            if layer in costs:
                costs[layer] = costs[layer].replace(weights_bytes=costs[layer].weights_bytes + weights)
        return tuple(costs.values())

    def memory_map(self, deployed: DeployedNetwork, built: FeasibilityReport) -> MemoryMap | None:
        """Return where the firmware's intermediate results lie, by layers; None where the backend does not know.

        `built` is the report of its firmware.
        """
        found = self.backend.memory_map(deployed, self.task.target, built)
        if found is None:
            return None
        words = deployed.in_words
        buffers = tuple(buffer.replace(layer=words(buffer.layer)) for buffer in found.buffers)
        return found.replace(steps=tuple(map(words, found.steps)), buffers=buffers)

    @retry(retry=retry_if_exception_type(BoardError), stop=stop_after_attempt(2), reraise=True)
    def _run(self, elf: Path, deployed: DeployedNetwork, dtype: npt.DTypeLike, count: int) -> BoardRun:
        assert self.board is not None, "there is a board to run on"
        inputs = deployed.encode(self.noise()[:1])
        return self.board.run(elf, self.task.target, inputs, output_dtype=dtype, output_count=count)

    def _too_slow(self, found: int, limit: int, deployed: DeployedNetwork, firmware: Firmware) -> Violation:
        """Return the violation that names the dearest layer; the profile that tells it costs a second compilation."""
        costs: tuple[LayerCost, ...] = ()
        with contextlib.suppress(BoardError, ToolchainError):  # what is refused is refused, with a layer or without
            costs = self.profile(deployed, firmware.report, firmware.workdir)
        if not costs:
            return too_slow("", found, limit)
        dearest = max(costs, key=lambda cost: cost.instructions)
        share = dearest.instructions / max(1, sum(cost.instructions for cost in costs))
        part = f"; the dearest layer is {dearest.layer} ({share:.0%} of them)"
        return too_slow(dearest.layer, found, limit, part=part)

    def noise(self) -> npt.NDArray[np.uint8]:
        """Return images for the ranges of activations before there are trained weights."""
        shape = (CALIBRATION_IMAGES, *self.task.input_shape)
        return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def in_words_of_the_spec(report: FeasibilityReport, deployed: DeployedNetwork) -> FeasibilityReport:
    """Return the report with layers named as the spec, or the code, names them, for people and proposers alike."""
    words = deployed.in_words
    violations = tuple(v.replace(where=words(v.where), message=words(v.message)) for v in report.violations)
    return report.replace(violations=violations, notes=tuple(map(words, report.notes)))


def _keep_logs_only(workdir: Path) -> None:
    """Delete all but the logs; what cannot be deleted stays, since the verdict counts more."""
    with contextlib.suppress(OSError):
        for path in list(workdir.iterdir()):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != LOG:
                with contextlib.suppress(OSError):
                    path.unlink()
