"""What tests of finalists share: real digits, a pipeline that trains them, and small networks."""

import dataclasses
from pathlib import Path
from typing import Any

from automcu_ray.core.training_recipe import Protocol
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from trainables.datasets.digits import digits
from trainables.finalists.finalist import FinalistPipeline

DATA, ONE_EPOCH = digits(), Protocol(epochs=1)


def candidate(number: int, name: str, channels: int, *halved: int) -> Candidate:
    """Return a convolution, and behind it one of half the size for each number of channels more."""
    layers = [{"type": "conv", "out_channels": channels}]
    layers += [{"type": "downsample", "out_channels": more} for more in halved]
    return Candidate(number=number, hash=name, spec=ArchitectureSpec.model_validate({"backbone": layers}))


CANDIDATE = candidate(3, "abc", 4)
SPEC = CANDIDATE.spec
assert SPEC is not None


def pipeline(task: Task, folder: Path, protocol: Protocol = ONE_EPOCH, **changes: Any) -> FinalistPipeline:
    """Return a pipeline on the CPU; without toolchain, board and teacher unless they are among the changes."""
    made = FinalistPipeline(task, protocol, DATA.train, DATA.val, None, None, folder, seed=0, gpus=0)
    return dataclasses.replace(made, **changes)
