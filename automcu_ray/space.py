"""The space of specs for one task: random sampling and mutation that always give constructible specs."""

from random import Random
from typing import Any

from pydantic import ValidationError

from automcu_ray.blocks import lower
from automcu_ray.graph import ConstructibilityError, Graph, Shape
from automcu_ray.record import Candidate
from automcu_ray.spec import MAX_LAYERS, ArchitectureSpec
from automcu_ray.target import Frozen

CHANNELS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
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


class Space(Frozen):
    """All constructible specs for images of `input_shape` (channels, height, width) and `num_classes`."""

    input_shape: Shape
    num_classes: int
    max_layers: int = 10

    def candidate(self, spec: ArchitectureSpec, **about: Any) -> Candidate:
        """Return the spec with its canonical hash.

        Raises:
            ConstructibilityError: its tensors do not fit together.
        """
        return Candidate(spec=spec, hash=self.graph(spec).canonical_hash(), **about)

    def graph(self, spec: ArchitectureSpec) -> Graph:
        """Return the operators of a spec in this space."""
        return lower(spec, self.input_shape, self.num_classes)

    def sample(self, rng: Random) -> Candidate:
        """Return a random candidate: depth, types and fields drawn uniformly, until they fit together."""
        while True:
            layers = [random_layer(rng) for _ in range(rng.randint(2, self.max_layers))]
            found = self._try({"backbone": layers})
            if found is not None:
                return found

    def mutate(self, parent: Candidate, rng: Random) -> Candidate:
        """Return a constructible neighbour that differs in one field, or by one layer more or less."""
        assert parent.spec is not None, "only a candidate with a spec can be mutated"
        layers = parent.spec.compact()["backbone"]
        for layer in layers:
            layer.pop("in_channels", None)  # derived again after the change
        while True:
            changed = [dict(layer) for layer in layers]
            rng.choice((_change_field, _change_field, _insert, _remove, _replace))(changed, rng)
            found = self._try({"backbone": changed}, parent=parent.hash)
            if found is not None and found.hash != parent.hash:
                return found

    def _try(self, spec: dict[str, Any], **about: Any) -> Candidate | None:
        try:
            return self.candidate(ArchitectureSpec.model_validate(spec), **about)
        except (ValidationError, ConstructibilityError):
            return None


def random_layer(rng: Random) -> dict[str, Any]:
    """Return a random layer as JSON; whether it fits after its neighbours is the caller's question."""
    kind = rng.choice(TYPES)
    layer: dict[str, Any] = {"type": kind}
    if kind not in ("max_pool", "avg_pool", "depthwise"):
        layer["out_channels"] = rng.choice(CHANNELS)
    for name, values in _FIELDS.get(kind, {}).items():
        layer[name] = rng.choice(values)
    return layer


def _change_field(layers: list[dict[str, Any]], rng: Random) -> None:
    layer = rng.choice(layers)
    fields = {**_FIELDS.get(layer["type"], {})}
    if "out_channels" in layer:
        fields["out_channels"] = CHANNELS
    if fields:
        name = rng.choice(sorted(fields))
        layer[name] = rng.choice(fields[name])


def _insert(layers: list[dict[str, Any]], rng: Random) -> None:
    if len(layers) < MAX_LAYERS:
        layers.insert(rng.randint(0, len(layers)), random_layer(rng))


def _remove(layers: list[dict[str, Any]], rng: Random) -> None:
    if len(layers) > 1:
        layers.pop(rng.randrange(len(layers)))


def _replace(layers: list[dict[str, Any]], rng: Random) -> None:
    layers[rng.randrange(len(layers))] = random_layer(rng)


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
