"""The toolchain for generated code: built and exported in a jail, then asked what every candidate is asked."""

import time
from pathlib import Path
from typing import Any

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation, over_limit
from automcu_ray.deploy import bounded, foreign
from automcu_ray.deploy.untrusted_onnx import ForeignNetwork, network_hash
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.code_screening import CodeError, screen
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config import JailConfig
from automcu_ray.sizing.footprint import BYTES
from backends.boards.base import Board
from backends.toolchain import Toolchain
from trainables.jail.client import Jail
from trainables.jail.conversation import CandidateError

HOPELESS = 2


class _TooLarge(ToolchainError):
    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.message)
        self.violation = violation


class CodeToolchain(Toolchain):
    """A Toolchain with a jail of its own, started with the first code; specs are checked as ever."""

    def __init__(
        self,
        task: Task,
        backend: str,
        options: dict[str, Any],
        folder: Path,
        jail: JailConfig,
        board: Board | None = None,
    ) -> None:
        super().__init__(task, backend, options, folder, board)
        self.jail = Jail(task, jail)

    def check(self, candidate: Candidate) -> FeasibilityReport:
        """Return the verdict on a spec or code; what goes wrong with code is a report with one violation.

        Raises:
            ToolchainError: the toolchain broke.
            ToolMissingError: this machine cannot isolate code.
        """
        if candidate.spec is not None:
            return super().check(candidate)
        ours_s, jail_s = _cpu_seconds(), self.jail.cpu_seconds
        refusal, task = None, self.task
        try:
            screen(candidate.code)
            traced = self.jail.check(candidate.code)
            found = foreign.check(traced.inference, task.input_shape, task.num_classes)
            if over := hopeless(found, task):
                raise _TooLarge(over)
            how: Any = {"precision": task.precision, "calibration": self.noise()}
            deployed = foreign.deploy(traced.inference, task.input_shape, **how)
            equal = network_hash(traced.training) if traced.training else ""
        except CodeError as error:
            refusal = Violation(rung=Rung.SCHEMA, resource="schema", message=str(error))
        except CandidateError as error:
            rung = Rung.CONVERT if error.stage == "export" else Rung.SHAPES
            refusal = Violation(rung=rung, resource=error.resource, where=error.stage, message=str(error))
        except _TooLarge as error:
            refusal = error.violation
        except ToolchainError as error:
            refusal = Violation(rung=Rung.CONVERT, resource="operator", message=str(error))
        spent = {"shapes": self.jail.cpu_seconds - jail_s, "convert": _cpu_seconds() - ours_s}
        if refusal is None:
            about: Any = {"parameters": found.parameters, "macs": found.macs, "network_hash": equal}
            return self.judge(deployed, candidate.hash, spent, **about)
        about = {"backend": self.backend.name, "rung": refusal.rung, "seconds_by_rung": spent}
        return FeasibilityReport(feasible=False, violations=(refusal,), **about)

    def close(self) -> None:
        """End the jail."""
        self.jail.close()


def hopeless(found: ForeignNetwork, task: Task) -> Violation | None:
    """Return why a network is refused before it is quantised: its weights or largest tensor are HOPELESS times too big.

    What is nearer to the limits is built, and told by how many bytes it does not fit. But 200,000 channels would take
    the quantiser 30 s and the compiler a source of 15 MB (measured) to hear the same.
    """
    value_bytes = BYTES[task.precision]
    for resource, what, values, limit in (
        ("flash", "weights", found.stored, task.flash_limit_bytes),
        ("ram", "the largest tensor", found.largest, task.ram_limit_bytes),
    ):
        if (need := values * value_bytes) > HOPELESS * limit:
            return over_limit(Rung.ANALYTIC, resource, "", need, limit, what=what)
    return None


def _cpu_seconds() -> float:
    """Return ours and the bounded process's, not all children's: a jail may die meanwhile."""
    return time.process_time() + bounded.cpu_seconds()
