"""The toolchain actor: answers the rungs that need a toolchain, in a process of its own."""

import contextlib
import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation
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
from backends.programs import LOG, cpu_seconds

CALIBRATION_IMAGES = 8  # sizes hardly depend on the ranges, so noise will do before training


class Toolchain:
    """One backend for one task. The supervisor makes named Ray actors of it.

    A verdict before training is about random weights and shifts: sizes then differ from a trained network's by a few
    dozen bytes (the compiler folds a constant here and there), and finalists come back with trained ones. Logs stay
    in `<folder>/<candidate hash>/`; sources and objects of mere checks are deleted.
    """

    def __init__(self, task: Task, backend: str, options: dict[str, Any], folder: Path) -> None:
        torch.set_num_threads(1)  # actors share the cores; OpenMP threads would fight for them
        make = plugins.load("backend", BACKENDS, backend)
        self.backend: Backend = make(**plugins.check_options("backend", backend, make, options))
        self.task = task
        self.folder = folder

    def check(self, candidate: Candidate) -> FeasibilityReport:
        """Return the verdict on a spec or a cell: convert, compile and link.

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
            report = self.build(deployed, workdir).report
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
