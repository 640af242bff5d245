"""The toolchain for generated code: built and exported in a jail, then asked what every candidate is asked."""

import time
from pathlib import Path
from typing import Any

from automcu_ray.config import JailConfig
from automcu_ray.errors import ToolchainError
from automcu_ray.export import DeployedNetwork, deploy_traced
from automcu_ray.feasibility import FeasibilityReport, Rung, Violation
from automcu_ray.foreign_onnx import check_foreign, network_hash
from automcu_ray.open_code import CodeError, screen
from automcu_ray.record import Candidate
from automcu_ray.task import Task
from backends.actor import Toolchain
from trainables.jail.client import Jail
from trainables.jail.conversation import CandidateError


class CodeToolchain(Toolchain):
    """A Toolchain with a jail of its own, started with the first code; specs are checked as ever."""

    def __init__(self, task: Task, backend: str, options: dict[str, Any], folder: Path, jail: JailConfig) -> None:
        super().__init__(task, backend, options, folder)
        self.jail = Jail(task, jail)

    def check(self, candidate: Candidate) -> FeasibilityReport:
        """Return the verdict on a spec or code; what goes wrong with code is a report with one violation.

        Raises:
            ToolchainError: the toolchain broke.
            ToolMissingError: this machine cannot isolate code.
        """
        if candidate.spec is not None:
            return super().check(candidate)
        ours_s, jail_s = time.process_time(), self.jail.cpu_seconds  # without children: a jail may die meanwhile
        refusal = None
        try:
            deployed, about = self._convert(candidate.code)
        except CodeError as error:
            refusal = Violation(rung=Rung.SCHEMA, resource="schema", message=str(error))
        except CandidateError as error:
            rung = Rung.CONVERT if error.stage == "export" else Rung.SHAPES
            refusal = Violation(rung=rung, resource=error.resource, where=error.stage, message=str(error))
        except ToolchainError as error:
            refusal = Violation(rung=Rung.CONVERT, resource="operator", message=str(error))
        spent = {"shapes": self.jail.cpu_seconds - jail_s, "convert": time.process_time() - ours_s}
        if refusal is None:
            return self.judge(deployed, candidate.hash, spent, **about)
        return FeasibilityReport(
            feasible=False,
            backend=self.backend.name,
            rung=refusal.rung,
            violations=(refusal,),
            seconds_by_rung=spent,
        )

    def _convert(self, code: str) -> tuple[DeployedNetwork, dict[str, Any]]:
        """Return the network as it would ship, and what its graph alone says about it."""
        screen(code)
        traced, task = self.jail.check(code), self.task
        found = check_foreign(traced.inference, task.input_shape, task.num_classes)
        deployed = deploy_traced(traced.inference, task.input_shape, precision=task.precision, calibration=self.noise())
        equal = network_hash(traced.training) if traced.training else ""
        return deployed, {"parameters": found.parameters, "macs": found.macs, "network_hash": equal}

    def close(self) -> None:
        """End the jail."""
        self.jail.close()
