"""A sweep: searchers by tasks by seeds. Each run is made once, however often the sweep is started."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field, ValidationError, model_validator

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.models import FrozenModel
from automcu_ray.core.training_recipe import Positive
from automcu_ray.networks.spec import explain
from automcu_ray.runtime.config import RunConfig, compose
from automcu_ray.runtime.config_files import load

Label = Annotated[str, Field(min_length=1, max_length=60)]


class Arm(FrozenModel):
    """A row of the table: a searcher with its settings."""

    label: Label
    searcher: str
    settings: tuple[str, ...] = ()


class Case(FrozenModel):
    """A column of the table: a task with its settings."""

    label: Label
    task: str
    settings: tuple[str, ...] = ()


class Published(FrozenModel):
    """Figures from elsewhere, shown beside ours, never tested.

    By label of the case: accuracy in percent; in a sweep of one case also by the head of any other column.
    """

    label: Label
    source: str
    values: dict[str, float]


class Sweep(FrozenModel):
    """What is compared. `baseline` is the label of the arm that the others are tested against, pair by seed.

    `notes` stand below the tables: what a reader has to know of the arms.
    """

    title: str
    arms: Annotated[tuple[Arm, ...], Field(min_length=1)]
    cases: Annotated[tuple[Case, ...], Field(min_length=1)]
    seeds: Positive = 10
    baseline: str
    settings: tuple[str, ...] = ()
    published: tuple[Published, ...] = ()
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> "Sweep":
        for kind, labels in (("arms", [arm.label for arm in self.arms]), ("cases", [c.label for c in self.cases])):
            if len(set(labels)) < len(labels):
                raise ValueError(f"labels of {kind} must differ, found {', '.join(labels)}")
        if self.baseline not in [arm.label for arm in self.arms]:
            raise ValueError(f"baseline must be the label of an arm, found {self.baseline!r}")
        return self


class Run(NamedTuple):
    """One run of a sweep; its name is a file name."""

    arm: Arm
    case: Case
    seed: int
    config: RunConfig

    @property
    def name(self) -> str:
        words = re.sub(r"[^a-z0-9]+", "-", f"{self.arm.label} {self.case.label}".lower()).strip("-")
        return f"{words}-s{self.seed}-{self.digest}"

    @property
    def digest(self) -> str:
        """Eight digits of the configuration: another configuration is another run."""
        text = json.dumps(self.config.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]


def load_sweep(name: str) -> Sweep:
    """Return a sweep of configs/sweep by name, or from a YAML file.

    Raises:
        ConfigError: no such sweep, or a key or value that it cannot have.
    """
    try:
        return Sweep.model_validate(load("sweep", name))
    except ValidationError as error:
        raise ConfigError(f"sweep {name}: {explain(error)}.") from error


def runs(sweep: Sweep, settings: Sequence[str] = ()) -> Iterator[Run]:
    """Yield every run, seed by seed, so that a sweep cut short has whole comparisons.

    Raises:
        ConfigError: a configuration that cannot be; all are composed before the first one is yielded.
    """
    found = []
    for seed in range(sweep.seeds):
        for case in sweep.cases:
            for arm in sweep.arms:
                extra = [*sweep.settings, *case.settings, *arm.settings, *settings, f"seed={seed}"]
                config = compose({"task": case.task, "searcher": arm.searcher}, extra)
                found.append(Run(arm, case, seed, config))
    yield from found
