"""Which hardware layers of a MAX78000 or MAX78002 a network becomes."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

from automcu_ray.graph import NETWORK_INPUT, Graph, Op, Shape


@dataclass(frozen=True)
class Pool:
    """A pooling window (rows, columns), applied before whatever else its layer does."""

    average: bool
    window: tuple[int, int]
    stride: int


@dataclass(frozen=True)
class Layer:
    """A hardware layer: pooling, then the sum of its inputs, then a convolution, then ReLU, each where there is one.

    `name` is the operator of the network that it computes. `inputs` are earlier layers, `NETWORK_INPUT` the image.
    `weights` are the operator's own; an `identity` hands every channel on, for the hardware has ReLU only behind a
    convolution; without any, data pass through. `interleaved`: it leaves every second word to the other operand of a
    sum. `wide`: its output is the sum of 32 bits as it stands.
    """

    name: str
    inputs: tuple[int, ...]
    in_shape: Shape
    shape: Shape
    weights: Literal["own", "identity", "none"] = "none"
    kernel: int = 1
    padding: int = 0
    groups: int = 1
    relu: bool = False
    pool: Pool | None = None
    interleaved: bool = False
    wide: bool = False
    flatten: bool = False

    @property
    def weight_bytes(self) -> int:
        """Weights of 8 bits, as the toolchain counts them: without the gaps between them."""
        if self.weights == "none":
            return 0
        inputs = self.in_shape[0] * (self.in_shape[1] * self.in_shape[2] if self.flatten else 1)
        return self.shape[0] * (inputs // self.groups) * self.kernel**2

    @property
    def biases(self) -> int:
        """Biases of 8 bits."""
        return self.shape[0] if self.weights == "own" else 0


def layers(graph: Graph) -> tuple[Layer, ...]:
    """Return the hardware layers of a network, in execution order; `limits.check_operators` comes before.

    A pooling whose result only a convolution reads becomes part of that one's layer. An operand of a sum must lie
    interleaved with the other one: its own layer writes it so where nobody else reads it, else a layer copies it.
    """
    return _Lowering(graph).run()


class _Lowering:
    """Appends layers for one operator after the other."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.readers = Counter(index for op in graph.ops for index in op.inputs)
        self.layers: list[Layer] = []
        self.made_by = {NETWORK_INPUT: NETWORK_INPUT}  # operator -> layer
        self.waiting: dict[int, Op] = {}  # poolings that become part of the layer that reads them

    def run(self) -> tuple[Layer, ...]:
        for index, op in enumerate(self.graph.ops):
            if op.kind in ("conv", "linear"):
                self.made_by[index] = self._convolution(op)
            elif op.kind == "add":
                self.made_by[index] = self._sum(op)
            elif self._joins_its_reader(index, op):
                self.waiting[index] = op
            else:
                self.made_by[index] = self._append(_simple(op, (self.made_by[op.inputs[0]],), pool=_pool(op)))
        last = self.layers[-1]
        self.layers[-1] = replace(last, wide=True)
        return tuple(self.layers)

    def _joins_its_reader(self, index: int, op: Op) -> bool:
        readers = [other for other in self.graph.ops if index in other.inputs]
        return op.activation == "none" and len(readers) == 1 and _takes_pooled(readers[0])

    def _convolution(self, op: Op) -> int:
        source, pooling = op.inputs[0], self.waiting.get(op.inputs[0])
        return self._append(
            Layer(
                name=op.name,
                inputs=(self.made_by[pooling.inputs[0] if pooling else source],),
                in_shape=pooling.in_shape if pooling else op.in_shape,
                shape=op.shape,
                weights="own",
                kernel=op.kernel,
                padding=op.padding,
                groups=op.groups,
                relu=op.activation == "relu",
                pool=_pool(pooling) if pooling else None,
                flatten=op.kind == "linear" and op.in_shape[1:] != (1, 1),
            )
        )

    def _sum(self, op: Op) -> int:
        return self._append(_simple(op, tuple(self._operand(index, op) for index in op.inputs)))

    def _operand(self, index: int, op: Op) -> int:
        """Return the layer that leaves one operand of a sum interleaved."""
        layer = self.made_by[index]
        if index != NETWORK_INPUT and self.readers[index] == 1:
            self.layers[layer] = replace(self.layers[layer], interleaved=True)
            return layer
        return self._append(Layer(op.name, (layer,), op.in_shape, op.in_shape, interleaved=True))

    def _append(self, layer: Layer) -> int:
        self.layers.append(layer)
        return len(self.layers) - 1


def _simple(op: Op, inputs: tuple[int, ...], pool: Pool | None = None) -> Layer:
    """Return a layer without weights of its own; ReLU needs a convolution that changes nothing."""
    relu = op.activation == "relu"
    weights: Literal["identity", "none"] = "identity" if relu else "none"
    return Layer(op.name, inputs, op.in_shape, op.shape, weights, relu=relu, pool=pool)


def _takes_pooled(op: Op) -> bool:
    return op.kind == "conv" or (op.kind == "linear" and op.in_shape[1:] == (1, 1))


def _pool(op: Op) -> Pool | None:
    extent = window(op)
    if extent == (1, 1) and op.stride == 1:
        return None
    return Pool(op.kind != "max_pool", extent, op.stride)


def window(op: Op) -> tuple[int, int]:
    """Return rows and columns of a pooling window."""
    return op.in_shape[1:] if op.kind == "global_pool" else (op.kernel, op.kernel)
