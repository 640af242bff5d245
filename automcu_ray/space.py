"""The space of specs for one task: random sampling and mutation that always give constructible specs.

An accelerator narrows it to the layer types, and the values of their fields, that the accelerator runs.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from pydantic import ValidationError

from automcu_ray.accelerator import Operator
from automcu_ray.blocks import lower
from automcu_ray.feasibility import Change, Rung
from automcu_ray.frozen import Frozen
from automcu_ray.graph import ConstructibilityError, Graph, Shape
from automcu_ray.morphisms import MORPHISMS
from automcu_ray.record import Candidate
from automcu_ray.spec import LAYERS, ArchitectureSpec

CHANNELS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
MIN_LAYERS = 2
Choose = Callable[[str, Sequence[Any]], Any]  # which of these values a question gets
Questions = Mapping[str, Sequence[Any]]  # by name, the values to choose from
Answers = dict[str, tuple[Any, Sequence[Any]]]  # which of which values each question got

TYPES = (
    "conv",
    "depthwise",
    "pointwise",
    "downsample",
    "ghost",
    "bottleneck",
    "mbconv",
    "residual",
    "max_pool",
    "avg_pool",
)


class OutsideSpaceError(ConstructibilityError):
    """A layer that the target's accelerator does not run; `violation` says so as the analytic rung does."""

    def __init__(self, where: str, rule: str, found: object) -> None:
        super().__init__(where, rule, found)
        self.violation = self.violation.model_copy(update={"rung": Rung.ANALYTIC, "resource": "operator"})


def without_derived(spec: ArchitectureSpec) -> ArchitectureSpec:
    """Return a spec without its layers' input channels, which follow from the layers before."""
    if all(layer.in_channels is None for layer in spec.backbone):
        return spec
    return spec.model_copy(
        update={"backbone": tuple(layer.model_copy(update={"in_channels": None}) for layer in spec.backbone)}
    )


class Space(Frozen):
    """All constructible specs for images of `input_shape` (channels, height, width) and `num_classes`.

    `operators` are the layer types that the target runs; () means all.
    """

    input_shape: Shape
    num_classes: int
    operators: tuple[Operator, ...] = ()
    max_layers: int = 10

    @property
    def types(self) -> tuple[str, ...]:
        """The layer types of this space."""
        known = {operator.type for operator in self.operators}
        return tuple(kind for kind in TYPES if not known or kind in known)

    def candidate(self, spec: ArchitectureSpec, **about: Any) -> Candidate:
        """Return the spec with its canonical hash, input channels left out: they are derived, once they are checked.

        So a change of one field alone, as a report proposes it, gives a spec that can be built.

        Raises:
            ConstructibilityError: its tensors do not fit together.
            OutsideSpaceError: the target does not run one of its layers.
        """
        if self.operators:
            self._check(spec)
        return Candidate(hash=self.graph(spec).canonical_hash(), spec=without_derived(spec), **about)

    def candidate_or_none(self, spec: ArchitectureSpec | dict[str, Any], **about: Any) -> Candidate | None:
        """Return the candidate of a spec, or of its JSON; None where it is no spec, or cannot be built here."""
        try:
            return self.candidate(ArchitectureSpec.model_validate(spec), **about)
        except (ValidationError, ConstructibilityError):
            return None

    def holds(self, candidate: Candidate) -> bool:
        """Return whether a candidate is a spec, so that it can be read and mutated here; generated code cannot."""
        return candidate.spec is not None

    def graph(self, spec: ArchitectureSpec) -> Graph:
        """Return the operators of a spec in this space."""
        return lower(spec, self.input_shape, self.num_classes)

    def sample(self, rng: Random) -> Candidate:
        """Return a random candidate: depth, types and fields drawn uniformly, until they fit together."""
        while True:
            found = self.compose(lambda _, values: rng.choice(values))
            if found is not None:
                return found

    def compose(self, choose: Choose) -> Candidate | None:
        """Return the candidate that `choose(name, values)` decides on; None where it does not fit together."""
        numbers = range(1, choose("layers", range(MIN_LAYERS, self.max_layers + 1)) + 1)
        return self.candidate_or_none({"backbone": [self._layer(choose, f"layer_{number}.") for number in numbers]})

    @property
    def questions(self) -> Questions:
        """Every question that `compose` may ask, with its values; types of layers that share one are asked the same."""
        asked: dict[str, Sequence[Any]] = {}

        def note(kind: str, name: str, values: Sequence[Any]) -> Any:
            asked[name] = values
            return kind if name.endswith(".type") else values[-1]

        for kind in self.types:
            self.compose(partial(note, kind))
        return asked

    def answers(self, candidate: Candidate) -> Answers | None:
        """Return what `compose` has to be told to give a candidate, or the nearest one that it could give.

        Numbers between the values of a question become the nearest value, and what is never asked is left out. None
        where there are more or fewer layers, or other types of them, than are ever asked for.
        """
        spec = candidate.spec
        assert spec is not None, "only a candidate with a spec can be read"
        answers: Answers = {}

        def remember(name: str, values: Sequence[Any]) -> Any:
            value = _nearest(_answer(spec, name), values)
            answers[name] = (value, values)
            return values[0] if value is None else value

        self.compose(remember)
        return None if any(value is None for value, _ in answers.values()) else answers

    def mutate(self, parent: Candidate, rng: Random) -> Candidate:
        """Return a constructible neighbour: one morphism away, each that applies as likely as the others."""
        assert parent.spec is not None, "only a candidate with a spec can be mutated"
        backbone = without_derived(parent.spec).model_dump(mode="json", exclude_none=True)["backbone"]
        while True:
            changed = [dict(layer) for layer in backbone]
            rng.choice(MORPHISMS)(changed, self, rng)
            found = self.candidate_or_none({"backbone": changed}, parent=parent.hash)
            if found is not None and found.hash != parent.hash:
                return found

    def changed(self, parent: Candidate, changes: Sequence[Change]) -> Candidate | None:
        """Return a candidate after changes of its fields, as a report asks for them; None where it cannot be built."""
        assert parent.spec is not None, "only a candidate with a spec can be changed"
        spec = without_derived(parent.spec).model_dump(mode="json", exclude_none=True)
        for change in changes:
            layer, _, name = change.where.partition(".")
            spec["backbone"][int(layer.removeprefix("layer_")) - 1][name] = change.after
        return self.candidate_or_none(spec, parent=parent.hash)

    def _check(self, spec: ArchitectureSpec) -> None:
        for number, layer in enumerate(spec.backbone, start=1):
            if layer.type not in self.types:
                rule = f"must be one of {', '.join(self.types)}, which the target's accelerator runs"
                raise OutsideSpaceError(f"layer_{number}.type", rule, layer.type)
            for operator in (operator for operator in self.operators if operator.type == layer.type):
                for field, values in operator.limited.items():
                    if not operator.allows(field, value := getattr(layer, field)):
                        rule = f"must be one of {', '.join(map(str, values))}, which the target's accelerator runs"
                        raise OutsideSpaceError(f"layer_{number}.{field}", rule, value)

    def random_layer(self, rng: Random, kind: str = "") -> dict[str, Any]:
        """Return a random layer as JSON, of one type if given; whether it fits after its neighbours is not known."""
        return self._layer(lambda name, values: kind if kind and name == "type" else rng.choice(values))

    def _layer(self, choose: Choose, prefix: str = "") -> dict[str, Any]:
        kind = choose(f"{prefix}type", self.types)
        layer: dict[str, Any] = {"type": kind}
        if kind not in ("max_pool", "avg_pool", "depthwise"):
            layer["out_channels"] = choose(f"{prefix}out_channels", CHANNELS)
        for name, values in self._fields(kind).items():
            layer[name] = choose(f"{prefix}{name} of {', '.join(map(str, values))}", values)
        return layer

    def _fields(self, kind: str) -> dict[str, tuple[Any, ...]]:
        """Return what is drawn for a layer: usual values, and an accelerator's where the usual or default ones fail."""
        fields = dict(_FIELDS.get(kind, {}))
        for operator in (operator for operator in self.operators if operator.type == kind):
            defaults = {name: LAYERS[kind].model_fields[name].default for name in operator.limited}
            odd = {name: () for name, value in defaults.items() if not operator.allows(name, value)}
            fields = {name: operator.usable(name, values) for name, values in (odd | fields).items()}
        return fields


def _answer(spec: ArchitectureSpec, name: str) -> Any:
    """Return what a spec has to say to a question of `Space.compose`."""
    where, _, question = name.partition(".")
    if where == "layers":
        return len(spec.backbone)
    number, field = int(where.removeprefix("layer_")), question.partition(" ")[0]
    return getattr(spec.backbone[number - 1], field, None) if number <= len(spec.backbone) else None


def _nearest(value: Any, values: Sequence[Any]) -> Any:
    """Return the value, or for a number the one nearest to it; None where a type or the number of layers is another."""
    if value in values:
        return value
    numbers = [other for other in values if isinstance(other, int | float)]
    if not isinstance(value, int | float) or isinstance(values, range) or not numbers:
        return None
    return min(numbers, key=lambda other: abs(other - value))


_FIELDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "conv": {"kernel_size": (1, 3, 5), "stride": (1, 1, 2)},
    "depthwise": {"kernel_size": (3, 5), "stride": (1, 1, 2)},
    "downsample": {"kernel_size": (3, 5)},
    "ghost": {"kernel_size": (1, 3), "ratio": (2,), "dw_size": (3, 5)},
    "bottleneck": {"expansion": (0.5, 1, 2), "stride": (1, 1, 2)},
    "mbconv": {"expansion": (1, 2, 3, 4, 6), "kernel_size": (3, 5), "stride": (1, 1, 2), "se_ratio": (0, 0, 0.25)},
    "residual": {"kernel_size": (3, 5), "stride": (1, 1, 2)},
    "max_pool": {"kernel_size": (2, 3)},
    "avg_pool": {"kernel_size": (2, 3)},
}
