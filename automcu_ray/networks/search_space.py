"""The space of specs for one task: random sampling and mutation that always give constructible specs.

An accelerator narrows it to the layer types, and the values of their fields, that the accelerator runs.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from pydantic import ValidationError

from automcu_ray.core.feasibility import Change, Rung
from automcu_ray.core.models import FrozenModel
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.graph import ConstructibilityError, Graph, Shape
from automcu_ray.networks.lowering import lower
from automcu_ray.networks.morphisms import JOINS, MORPHISMS, SIGNAL_MORPHISMS, change_bottleneck, change_positions
from automcu_ray.networks.operator_limits import Operator
from automcu_ray.networks.spec import LAYERS, MAX_LAYERS, ArchitectureSpec

POSITIONS = (1, 1, 2, 4)
BOTTLENECK = {"code": (2, 4, 8, 16, 32), "decoder": (16, 32, 64, 128)}  # of an autoencoder's head
CHANNELS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
MIN_LAYERS = 2


class Question(NamedTuple):
    """A field to be given one of some values: of a layer, counted from 1, or of the whole candidate (layer 0)."""

    field: str
    values: tuple[Any, ...]
    layer: int = 0

    def __str__(self) -> str:
        """Return a name; of a field whose values depend on the type of its layer, it lists them."""
        if not self.layer:
            return self.field
        listed = "" if self.field in ("type", "out_channels") else f" of {', '.join(map(str, self.values))}"
        return f"layer_{self.layer}.{self.field}{listed}"


Choose = Callable[[Question], Any]  # which of its values a question gets

TYPES = tuple(LAYERS)


class OutsideSpaceError(ConstructibilityError):
    """A layer that the target's accelerator does not run; `violation` says so as the analytic rung does."""

    def __init__(self, where: str, rule: str, found: object) -> None:
        super().__init__(where, rule, found)
        self.violation = self.violation.replace(rung=Rung.ANALYTIC, resource="operator")


def without_derived(spec: ArchitectureSpec) -> ArchitectureSpec:
    """Return a spec without its layers' input channels, which follow from the layers before."""
    if all(layer.in_channels is None for layer in spec.backbone):
        return spec
    return spec.replace(backbone=tuple(layer.replace(in_channels=None) for layer in spec.backbone))


class Space(FrozenModel):
    """All constructible specs for images of `input_shape` (channels, height, width) and `num_classes`.

    `operators` are the layer types that the target runs; () means all. Where the network `reconstructs` its input,
    `num_classes` are that one's values, and the head has a bottleneck.
    """

    input_shape: Shape
    num_classes: int
    operators: tuple[Operator, ...] = ()
    reconstructs: bool = False
    max_layers: int = 10

    @property
    def is_signal(self) -> bool:
        """Whether inputs are one row of samples, along which windows move."""
        return self.input_shape[1] == 1 < self.input_shape[2]

    @property
    def side(self) -> int:
        """The shorter side of an image, or the length of a signal."""
        return max(self.input_shape[1:]) if self.is_signal else min(self.input_shape[1:])

    @property
    def types(self) -> tuple[str, ...]:
        """The layer types of this space."""
        known = {operator.type for operator in self.operators}
        return tuple(kind for kind in TYPES if not known or kind in known)

    def allows(self, kind: str, field: str, value: Any) -> bool:
        """Return whether a field of a layer type may have a value on the target."""
        return all(operator.allows(field, value) for operator in self.operators if operator.type == kind)

    def candidate(self, spec: ArchitectureSpec, **about: Any) -> Candidate:
        """Return the spec with its canonical hash, input channels left out: they are derived, once they are checked.

        So a change of one field alone, as a report proposes it, gives a spec that can be built.

        Raises:
            ConstructibilityError: its tensors do not fit together.
            OutsideSpaceError: the target does not run one of its layers.
        """
        for number, layer in enumerate(spec.backbone if self.operators else (), start=1):
            if layer.type not in self.types:
                rule = f"must be one of {', '.join(self.types)}, which the target's accelerator runs"
                raise OutsideSpaceError(f"layer_{number}.type", rule, layer.type)
            for operator in (operator for operator in self.operators if operator.type == layer.type):
                for field, values in operator.limited.items():
                    if not operator.allows(field, value := getattr(layer, field)):
                        rule = f"must be one of {', '.join(map(str, values))}, which the target's accelerator runs"
                        raise OutsideSpaceError(f"layer_{number}.{field}", rule, value)
        return Candidate(hash=self.graph(spec).canonical_hash(), network=without_derived(spec), **about)

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
        return lower(spec, self.input_shape, self.num_classes, self.reconstructs)

    def sample(self, rng: Random) -> Candidate:
        """Return a random candidate: depth, types and fields drawn uniformly, until they fit together."""
        while True:
            found = self.compose(lambda question: rng.choice(question.values))
            if found is not None:
                return found

    def compose(self, choose: Choose) -> Candidate | None:
        """Return the candidate with the values that `choose` gives its questions; None where it cannot be built."""
        depth = choose(Question("layers", tuple(range(MIN_LAYERS, self.max_layers + 1))))
        spec: dict[str, Any] = {"backbone": [self._layer(choose, number) for number in range(1, depth + 1)]}
        if not self.operators:
            spec["head"] = {"positions": choose(Question("positions", POSITIONS))}
            if self.reconstructs:
                spec["head"] |= {name: choose(Question(name, values)) for name, values in BOTTLENECK.items()}
        return self.candidate_or_none(spec)

    @property
    def questions(self) -> list[Question]:
        """Every question that `compose` may ask, once; types whose layers have a field with equal values share one."""
        asked: dict[Question, None] = {}

        def deepest(kind: str, question: Question) -> Any:
            asked[question] = None
            return kind if kind in question.values else question.values[-1]

        for kind in self.types:
            self.compose(partial(deepest, kind))
        return list(asked)

    def answers(self, candidate: Candidate) -> dict[Question, Any] | None:
        """Return the answers with which `compose` gives a candidate, or the nearest one that it could give.

        Numbers between the values of a question become the nearest value, and fields without a question are left out.
        None where the number of layers, or the type of one, is not among the values.
        """
        spec = candidate.spec
        assert spec is not None, "only a candidate with a spec can be read"
        answers: dict[Question, Any] = {}

        def answer(question: Question) -> Any:
            answers[question] = value = _nearest(spec, question)
            return question.values[0] if value is None else value

        self.compose(answer)
        return None if None in answers.values() else answers

    def mutate(self, parent: Candidate, rng: Random) -> Candidate:
        """Return a constructible neighbour: one morphism away, each that applies as likely as the others."""
        assert parent.spec is not None, "only a candidate with a spec can be mutated"
        spec = without_derived(parent.spec).model_dump(mode="json", exclude_none=True)
        while True:
            layers, head = [dict(layer) for layer in spec["backbone"]], dict(spec["head"])
            morphisms = SIGNAL_MORPHISMS if self.is_signal else MORPHISMS
            steps = [partial(morphism, layers, self, rng) for morphism in morphisms]
            if not self.operators:
                steps.append(partial(change_positions, head, rng))
            if self.reconstructs:
                steps.append(partial(change_bottleneck, head, rng))
            rng.choice(steps)()
            found = self.candidate_or_none({"backbone": layers, "head": head}, parent=parent.hash)
            if found is not None and found.hash != parent.hash:
                return found

    def changed(self, parent: Candidate, changes: Sequence[Change]) -> Candidate | None:
        """Return a candidate after changes of its fields, as a report asks for them; None where it cannot be built."""
        assert parent.spec is not None, "only a candidate with a spec can be changed"
        spec = without_derived(parent.spec).model_dump(mode="json", exclude_none=True)
        for change in changes:
            layer, _, name = change.where.partition(".")
            changed = spec["head"] if layer == "head" else spec["backbone"][int(layer.removeprefix("layer_")) - 1]
            changed[name] = change.after
        return self.candidate_or_none(spec, parent=parent.hash)

    def random_layer(self, rng: Random, kind: str = "") -> dict[str, Any]:
        """Return a random layer as JSON, of one type if given; whether it fits after its neighbours is not known."""
        return self._layer(lambda asked: kind if kind and asked.field == "type" else rng.choice(asked.values))

    def _layer(self, choose: Choose, number: int = 0) -> dict[str, Any]:
        early = number in (1, 2)  # of the layers before, a join reads the one right before it and another one
        kind = choose(Question("type", tuple(t for t in self.types if not (early and t in JOINS)), number))
        layer: dict[str, Any] = {"type": kind}
        if kind not in ("max_pool", "avg_pool", "depthwise", *JOINS):
            layer["out_channels"] = choose(Question("out_channels", CHANNELS, number))
        fields = self._fields(kind)
        if kind in JOINS:
            fields = {"back": tuple(back for back in _BACK if back < (number or MAX_LAYERS))} | fields
        return layer | {name: choose(Question(name, values, number)) for name, values in fields.items()}

    def _fields(self, kind: str) -> dict[str, tuple[Any, ...]]:
        """Return what is drawn for a layer: usual values, and an accelerator's where the usual or default ones fail."""
        fields = _FIELDS.get(kind, {}) | (_SIGNAL_FIELDS.get(kind, {}) if self.is_signal else {})
        for operator in (operator for operator in self.operators if operator.type == kind):
            defaults = {name: LAYERS[kind].model_fields[name].default for name in operator.limited}
            odd = {name: () for name, value in defaults.items() if not operator.allows(name, value)}
            fields = {name: operator.usable(name, values) for name, values in (odd | fields).items()}
        return fields


def _nearest(spec: ArchitectureSpec, question: Question) -> Any:
    """Return a spec's answer, or for a number the value nearest to it; None where its depth or a type is another."""
    if question.field == "layers":
        return len(spec.backbone) if len(spec.backbone) in question.values else None
    layer = spec.backbone[question.layer - 1] if question.layer <= len(spec.backbone) else None
    value = getattr(layer if question.layer else spec.head, question.field, None)
    if value in question.values or not isinstance(value, int | float):
        return value if value in question.values else None
    return min(question.values, key=lambda other: abs(other - value))


_BACK = (2, 3, 4)
_FIELDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "conv": {"kernel_size": (1, 3, 5), "stride": (1, 1, 2), "groups": (1, 1, 1, 2, 4)},
    "depthwise": {"kernel_size": (3, 5), "stride": (1, 1, 2)},
    "downsample": {"kernel_size": (3, 5)},
    "ghost": {"kernel_size": (1, 3), "ratio": (2,), "dw_size": (3, 5)},
    "bottleneck": {"expansion": (0.5, 1, 2), "stride": (1, 1, 2)},
    "mbconv": {"expansion": (1, 2, 3, 4, 6), "kernel_size": (3, 5), "stride": (1, 1, 2), "se_ratio": (0, 0, 0.25)},
    "residual": {"kernel_size": (3, 5), "stride": (1, 1, 2)},
    "max_pool": {"kernel_size": (2, 3)},
    "avg_pool": {"kernel_size": (2, 3)},
}
_SIGNAL_FIELDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "conv": {"kernel_size": (3, 5, 7), "dilation": (1, 1, 2, 4)},
    "depthwise": {"kernel_size": (3, 5, 7), "dilation": (1, 1, 2, 4)},
    "downsample": {"kernel_size": (3, 5, 7)},
    "ghost": {"dw_size": (3, 5, 7)},
    "mbconv": {"kernel_size": (3, 5, 7)},
    "residual": {"kernel_size": (3, 5, 7), "dilation": (1, 1, 2, 4)},
    "max_pool": {"kernel_size": (2, 3, 4)},
    "avg_pool": {"kernel_size": (2, 3, 4)},
}
