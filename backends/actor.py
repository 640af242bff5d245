"""The toolchain actor: answers the rungs that need a toolchain, in a process of its own."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from automcu_ray import plugins
from automcu_ray.errors import ToolchainError
from automcu_ray.export import DeployedNetwork, deploy
from automcu_ray.feasibility import FeasibilityReport, Rung, Violation
from automcu_ray.footprint import footprint
from automcu_ray.network import Network, spec_names
from automcu_ray.spec import ArchitectureSpec
from automcu_ray.task import Task
from backends import BACKENDS
from backends.base import Backend, Firmware
from backends.programs import LOG, cpu_seconds

CALIBRATION_IMAGES = 8  # sizes hardly depend on the ranges, so noise will do before training


class Toolchain:
    """One backend for one task. The supervisor makes named Ray actors of it.

    A verdict before training is about random weights. Sizes are all but independent of values (the compiler folds a
    constant here and there), and finalists come back with trained ones. Logs stay in `<folder>/<candidate hash>/`;
    sources and objects of mere checks are deleted.
    """

    def __init__(self, task: Task, backend: str, options: dict[str, Any], folder: Path) -> None:
        torch.set_num_threads(1)  # actors share the cores; OpenMP threads would fight for them
        make = plugins.load("backend", BACKENDS, backend)
        self.backend: Backend = make(**plugins.check_options("backend", backend, make, options))
        self.task = task
        self.folder = folder

    def version(self) -> str:
        """Return the versions that decide a verdict."""
        return f"{self.backend.name} ({self.backend.version()})"

    def check(self, spec: ArchitectureSpec, candidate_hash: str) -> FeasibilityReport:
        """Return the verdict on a spec: convert, compile and link.

        Raises:
            ToolchainError: the toolchain broke; that says nothing about the candidate's size.
        """
        started_s = cpu_seconds()
        graph = self.task.space.graph(spec)
        found = footprint(graph, self.task.precision)
        torch.manual_seed(0)
        try:
            deployed = self._deploy(Network(graph))
        except ToolchainError as error:
            return self._not_convertible(str(error))
        seconds = cpu_seconds() - started_s
        workdir = self.folder / candidate_hash
        report = self.build(deployed, workdir).report
        _keep_logs_only(workdir)
        by_rung = {**report.seconds_by_rung}
        by_rung["convert"] = by_rung.get("convert", 0.0) + seconds
        about = {"parameters": found.parameters, "macs": found.macs, "seconds_by_rung": by_rung}
        return report.model_copy(update=about)

    def build(self, deployed: DeployedNetwork, workdir: Path) -> Firmware:
        """Return the firmware of a deployed network, built in `workdir`."""
        workdir.mkdir(parents=True, exist_ok=True)
        firmware = self.backend.build(deployed, self.task.target, self.task.constraints, workdir)
        return dataclasses.replace(firmware, report=_in_words_of_the_spec(firmware.report))

    def _deploy(self, network: Network) -> DeployedNetwork:
        shape = (CALIBRATION_IMAGES, *self.task.input_shape)
        noise = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        return deploy(network, self.task.input_shape, precision=self.task.precision, calibration=noise)

    def _not_convertible(self, message: str) -> FeasibilityReport:
        violation = Violation(rung=Rung.CONVERT, resource="operator", message=spec_names(message))
        return FeasibilityReport(feasible=False, backend=self.backend.name, rung=Rung.CONVERT, violations=(violation,))


def _in_words_of_the_spec(report: FeasibilityReport) -> FeasibilityReport:
    """Return the report with layers named as the spec names them, for people and proposers alike."""
    violations = tuple(
        v.model_copy(update={"where": spec_names(v.where), "message": spec_names(v.message)}) for v in report.violations
    )
    return report.model_copy(update={"violations": violations})


def _keep_logs_only(workdir: Path) -> None:
    for path in workdir.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOG:
            path.unlink()
