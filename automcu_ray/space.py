"""The space of specs for one task: random sampling and mutation that always give constructible specs.

An accelerator narrows it to the layer types, and the values of their fields, that the accelerator runs.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from pydantic import ValidationError

from automcu_ray.accelerator import Operator
from automcu_ray.blocks import lower
from automcu_ray.feasibility import Rung
from automcu_ray.frozen import Frozen
from automcu_ray.graph import ConstructibilityError, Graph, Shape
from automcu_ray.record import Candidate
from automcu_ray.spec import LAYERS, MAX_LAYERS, ArchitectureSpec

CHANNELS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
MIN_LAYERS = 2
Choose = Callable[[str, Sequence[Any]], Any]  # which of these values a question gets
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
        return self._try({"backbone": [self._layer(choose, f"layer_{number}.") for number in numbers]})

    def answers(self, candidate: Candidate) -> Answers | None:
        """Return what `compose` has to be told to give a candidate; None where it could not be asked for that one."""
        spec = candidate.spec
        assert spec is not None, "only a candidate with a spec can be read"
        answers: Answers = {}

        def remember(name: str, values: Sequence[Any]) -> Any:
            value = _answer(spec, name)
            answers[name] = (value, values)
            return value if value in values else values[0]

        again = self.compose(remember)
        return answers if again is not None and again.hash == candidate.hash else None

    def mutate(self, parent: Candidate, rng: Random) -> Candidate:
        """Return a constructible neighbour that differs in one field, or by one layer more or less."""
        assert parent.spec is not None, "only a candidate with a spec can be mutated"
        layers = without_derived(parent.spec).compact()["backbone"]
        while True:
            changed = [dict(layer) for layer in layers]
            steps = (self._change_field, self._change_field, self._insert, self._remove, self._replace)
            rng.choice(steps)(changed, rng)
            found = self._try({"backbone": changed}, parent=parent.hash)
            if found is not None and found.hash != parent.hash:
                return found

    def _try(self, spec: dict[str, Any], **about: Any) -> Candidate | None:
        try:
            return self.candidate(ArchitectureSpec.model_validate(spec), **about)
        except (ValidationError, ConstructibilityError):
            return None

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

    def random_layer(self, rng: Random) -> dict[str, Any]:
        """Return a random layer as JSON; whether it fits after its neighbours is the caller's question."""
        return self._layer(lambda _, values: rng.choice(values))

    def _layer(self, choose: Choose, prefix: str = "") -> dict[str, Any]:
        kind = choose(f"{prefix}type", self.types)
        layer: dict[str, Any] = {"type": kind}
        if kind not in ("max_pool", "avg_pool", "depthwise"):
            layer["out_channels"] = choose(f"{prefix}{kind}.out_channels", CHANNELS)
        for name, values in self._fields(kind).items():
            layer[name] = choose(f"{prefix}{kind}.{name}", values)
        return layer

    def _fields(self, kind: str) -> dict[str, tuple[Any, ...]]:
        """Return what is drawn for a layer: usual values, and an accelerator's where the usual or default ones fail."""
        fields = dict(_FIELDS.get(kind, {}))
        for operator in (operator for operator in self.operators if operator.type == kind):
            defaults = {name: LAYERS[kind].model_fields[name].default for name in operator.limited}
            odd = {name: () for name, value in defaults.items() if not operator.allows(name, value)}
            fields = {name: operator.usable(name, values) for name, values in (odd | fields).items()}
        return fields

    def _change_field(self, layers: list[dict[str, Any]], rng: Random) -> None:
        layer = rng.choice(layers)
        fields = self._fields(layer["type"])
        if "out_channels" in layer:
            fields["out_channels"] = CHANNELS
        if fields:
            name = rng.choice(sorted(fields))
            layer[name] = rng.choice(fields[name])

    def _insert(self, layers: list[dict[str, Any]], rng: Random) -> None:
        if len(layers) < MAX_LAYERS:
            layers.insert(rng.randint(0, len(layers)), self.random_layer(rng))

    def _remove(self, layers: list[dict[str, Any]], rng: Random) -> None:
        if len(layers) > 1:
            layers.pop(rng.randrange(len(layers)))

    def _replace(self, layers: list[dict[str, Any]], rng: Random) -> None:
        layers[rng.randrange(len(layers))] = self.random_layer(rng)


def _answer(spec: ArchitectureSpec, name: str) -> Any:
    """Return what a spec has to say to a question of `Space.compose`."""
    where, *fields = name.split(".")
    if where == "layers":
        return len(spec.backbone)
    number = int(where.removeprefix("layer_"))
    return getattr(spec.backbone[number - 1], fields[-1], None) if number <= len(spec.backbone) else None


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
