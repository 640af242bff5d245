"""What is asked for: a data set's shape, a target, hard constraints, a precision."""

from typing import Literal

from pydantic import Field

from automcu_ray.core.learning import Learning
from automcu_ray.core.models import FrozenModel
from automcu_ray.core.objective import Aim, Objective
from automcu_ray.core.training_recipe import PROXY_ERRORS
from automcu_ray.networks.candidate import Structure
from automcu_ray.networks.cell_network import Skeleton
from automcu_ray.networks.cell_space import CellSpace
from automcu_ray.networks.graph import Graph, Shape
from automcu_ray.networks.search_space import Space
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.precision import Precision
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.signals.front_end import FrontEnd

Form = Literal["network", "cell"]  # what is searched for


class Evidence(FrozenModel):
    """What an accuracy of the search rests on: images to train and to validate with, and epochs."""

    train_images: int
    val_images: int
    epochs: float


class Task(FrozenModel):
    """A task as searchers, ladder and trainables see it; `configs/task/*.yaml` names its parts.

    A task that wants cells has the skeleton that makes them networks, or none: then a table knows their accuracies.
    Where images are made of samples, `front_end` says how. `evidence` is for whoever reads accuracies; it is not
    written down, and equal tasks may differ in it. `num_classes` are the outputs of a network: one a class, one a
    quantity that it estimates, or as many as its input has values where it reconstructs that (`learning`).
    """

    dataset: str
    input_shape: Shape
    num_classes: int
    target: McuTarget
    constraints: Constraints
    precision: Precision = "int8"
    form: Form = "network"
    skeleton: Skeleton | None = None
    objective: Objective = "accuracy"
    proxy_errors: float = PROXY_ERRORS
    front_end: FrontEnd | None = None
    learning: Learning = Learning()
    evidence: Evidence | None = Field(default=None, exclude=True, repr=False)

    @property
    def aim(self) -> Aim | None:
        """The cost to minimise and the accuracy to keep; None where the most accurate network is sought."""
        if self.objective == "accuracy" or self.floor is None:
            return None
        return Aim(objective=self.objective, floor=self.floor, proxy_errors=self.proxy_errors)

    @property
    def floor(self) -> float | None:
        """The score (`Learning.score`) from which on a network is accurate enough; None where nothing is said."""
        limits = self.constraints
        return self.learning.score_of(limits.metric) if limits.metric is not None else limits.accuracy

    @property
    def choices(self) -> Space | CellSpace:
        """What searchers sample from and mutate in: specs of networks, or cells of a table."""
        return self.cells if self.form == "cell" else self.space

    @property
    def on_table(self) -> bool:
        """Whether accuracies are looked up: no network is built."""
        return self.form == "cell" and self.skeleton is None

    @property
    def cells(self) -> CellSpace:
        """The cells that can be proposed for this task."""
        return CellSpace(skeleton=self.skeleton, input_shape=self.input_shape, num_classes=self.num_classes)

    def graph(self, structure: Structure) -> Graph:
        """Return the operators of a spec, or of a cell in the task's skeleton.

        Raises:
            ConstructibilityError: tensors do not fit together.
        """
        return self.space.graph(structure) if isinstance(structure, ArchitectureSpec) else self.cells.graph(structure)

    @property
    def space(self) -> Space:
        """The specs that can be proposed for this task."""
        accelerator = self.target.accelerator
        operators = accelerator.operators if accelerator is not None else ()
        return Space(
            input_shape=self.input_shape,
            num_classes=self.num_classes,
            operators=operators,
            reconstructs=self.learning.kind == "anomaly",
        )

    @property
    def ram_limit_bytes(self) -> int:
        """RAM that the firmware may use, in bytes."""
        return self.constraints.ram_limit_bytes(self.target)

    @property
    def flash_limit_bytes(self) -> int:
        """Flash that the firmware may use, in bytes."""
        return self.constraints.flash_limit_bytes(self.target)

    @property
    def instructions_limit(self) -> int | None:
        """Instructions that an inference may take; None: no limit."""
        return self.constraints.instructions_limit(self.target)
