"""The toolchain for generated code: built and exported in a jail, then asked what every candidate is asked."""

import time
from pathlib import Path
from typing import Any

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation
from automcu_ray.deploy.export import deploy_traced
from automcu_ray.deploy.untrusted_onnx import check_foreign, network_hash
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.code_screening import CodeError, screen
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config import JailConfig
from backends.toolchain import Toolchain
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
        refusal, task = None, self.task
        try:
            screen(candidate.code)
            traced = self.jail.check(candidate.code)
            found = check_foreign(traced.inference, task.input_shape, task.num_classes)
            how: Any = {"precision": task.precision, "calibration": self.noise()}
            deployed = deploy_traced(traced.inference, task.input_shape, **how)
            equal = network_hash(traced.training) if traced.training else ""
        except CodeError as error:
            refusal = Violation(rung=Rung.SCHEMA, resource="schema", message=str(error))
        except CandidateError as error:
            rung = Rung.CONVERT if error.stage == "export" else Rung.SHAPES
            refusal = Violation(rung=rung, resource=error.resource, where=error.stage, message=str(error))
        except ToolchainError as error:
            refusal = Violation(rung=Rung.CONVERT, resource="operator", message=str(error))
        spent = {"shapes": self.jail.cpu_seconds - jail_s, "convert": time.process_time() - ours_s}
        if refusal is None:
            about: Any = {"parameters": found.parameters, "macs": found.macs, "network_hash": equal}
            return self.judge(deployed, candidate.hash, spent, **about)
        about = {"backend": self.backend.name, "rung": refusal.rung, "seconds_by_rung": spent}
        return FeasibilityReport(feasible=False, violations=(refusal,), **about)

    def close(self) -> None:
        """End the jail."""
        self.jail.close()
