"""A NAS-Bench-201 cell as a network: the benchmark's skeleton around it, at any width and depth."""

from dataclasses import dataclass, field
from functools import lru_cache

from automcu_ray.core.models import FrozenModel
from automcu_ray.core.training_recipe import Positive
from automcu_ray.networks.cell import OUTPUT, CellSpec, Edges, Operation
from automcu_ray.networks.graph import NETWORK_INPUT, ConstructibilityError, Graph, GraphBuilder, Shape

_STAGES = 3
_KERNELS = {"nor_conv_1x1": 1, "nor_conv_3x3": 3}


class Skeleton(FrozenModel):
    """What surrounds a cell: channels of the first stage (the next two have two and four times as many), cells a stage.

    The benchmark's own is 16 channels and 5 cells; a microcontroller may want less of both.
    """

    channels: Positive = 16
    per_stage: Positive = 5


@lru_cache(maxsize=4096)
def lower_cell(cell: CellSpec, skeleton: Skeleton, input_shape: Shape, num_classes: int) -> Graph:
    """Return the operators of a cell's network for one image of `input_shape` (channels, height, width).

    A 3x3 convolution, three stages of equal cells, a residual block of stride 2 before the second and the third, batch
    norm, ReLU, global pooling, a linear layer. Weights and multiply-accumulates are those of the benchmark's table but
    for edges that no value passes on its way from input to output: those are left out here, and counted there. (One
    such edge can add a constant in the benchmark: the shift of a batch norm that only ever sees zeros. It is left out.)

    Raises:
        ConstructibilityError: nothing leads from the cell's input to its output, or the image cannot be halved twice.

    Source: Dong & Yang 2020, arXiv:2001.00326, section 2.1 and figure 1; details as in the benchmark's own code
    (AutoDL-Projects, TinyNetwork): no ReLU behind the first convolution, averages over pixels inside the image alone.
    """
    edges = cell.ways()
    if not edges:
        raise ConstructibilityError("cell", "must have a way from its input to its output", str(cell))
    for name, size in zip(("height", "width"), input_shape[1:], strict=True):
        if size % 2 ** (_STAGES - 1):
            raise ConstructibilityError(f"image.{name}", f"must be a multiple of {2 ** (_STAGES - 1)}", size)
    builder = _CellBuilder(input_shape, "stem")
    at = builder.conv("conv", NETWORK_INPUT, skeleton.channels, 3, activation="none")
    for stage in range(_STAGES):
        if stage:
            at = builder.reduction(at, f"reduce_{stage}")
        for number in range(1, skeleton.per_stage + 1):
            at = builder.cell(at, edges, f"cell_{stage * skeleton.per_stage + number}")
    builder.layer = "head"
    builder.linear(builder.global_pool(builder.norm(at, "relu")), num_classes)
    return Graph(input_shape, tuple(builder.ops))


@dataclass
class _CellBuilder(GraphBuilder):
    """Appends cells and residual blocks. What has no weights is computed once, however many edges want it."""

    made: dict[tuple[str, int], int] = field(default_factory=dict)

    def cell(self, source: int, edges: Edges, name: str) -> int:
        """Append a cell; node 0 is `source`, each other node the sum of its edges."""
        nodes = {0: source}
        for (start, end), operation in edges.items():
            self.layer = f"{name}.edge_{start}_{end}"
            value = self._edge(operation, nodes[start])
            nodes[end] = self.join("add", (nodes[end], value)) if end in nodes else value
        return nodes[OUTPUT]

    def reduction(self, source: int, name: str) -> int:
        """Append a residual block that halves the image and doubles the channels."""
        self.layer = f"{name}.conv1"
        channels = 2 * self.shape(source)[0]
        y = self.conv("conv", self._relu(source), channels, 3, 2, activation="none")
        self.layer = f"{name}.conv2"
        y = self.conv("conv", self._relu(y), channels, 3, activation="none")
        self.layer = f"{name}.skip"
        skip = self.conv(
            "conv", self.pool("avg_pool", source, 2, 2), channels, use_bn=False, activation="none", has_bias=False
        )
        return self.join("add", (skip, y))

    def _edge(self, operation: Operation, source: int) -> int:
        if operation == "skip_connect":
            return source
        if operation == "avg_pool_3x3":
            if ("pool", source) not in self.made:
                self.made["pool", source] = self.pool("avg_pool", source, 3, 1, 1)
            return self.made["pool", source]
        channels = self.shape(source)[0]
        return self.conv("conv", self._relu(source), channels, _KERNELS[operation], activation="none")

    def _relu(self, source: int) -> int:
        if ("relu", source) not in self.made:
            self.made["relu", source] = self.relu(source)
        return self.made["relu", source]
