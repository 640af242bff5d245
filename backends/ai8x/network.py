"""Which hardware layers of a MAX78000 or MAX78002 a network becomes."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

from automcu_ray.networks.graph import NETWORK_INPUT, Graph, Op, Shape


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
    readers = Counter(index for op in graph.ops for index in op.inputs)
    made: list[Layer] = []
    made_by = {NETWORK_INPUT: NETWORK_INPUT}  # operator -> layer
    waiting: dict[int, Op] = {}  # poolings that become part of the layer that reads them
    for index, op in enumerate(graph.ops):
        if op.kind in ("conv", "linear"):
            source, pooling = op.inputs[0], waiting.get(op.inputs[0])
            layer = Layer(
                name=op.name,
                inputs=(made_by[pooling.inputs[0] if pooling else source],),
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
        elif op.kind == "add":
            operands = []
            for source in op.inputs:
                operand = made_by[source]
                if source != NETWORK_INPUT and readers[source] == 1:
                    made[operand] = replace(made[operand], interleaved=True)
                else:
                    made.append(Layer(op.name, (operand,), op.in_shape, op.in_shape, interleaved=True))
                    operand = len(made) - 1
                operands.append(operand)
            layer = _simple(op, tuple(operands))
        else:
            behind = [other for other in graph.ops if index in other.inputs]
            takes_pool = [one.kind == "conv" or (one.kind == "linear" and one.in_shape[1:] == (1, 1)) for one in behind]
            if op.activation == "none" and takes_pool == [True]:
                waiting[index] = op
                continue
            layer = _simple(op, (made_by[op.inputs[0]],), pool=_pool(op))
        made_by[index] = len(made)
        made.append(layer)
    return (*made[:-1], replace(made[-1], wide=True))


def _simple(op: Op, inputs: tuple[int, ...], pool: Pool | None = None) -> Layer:
    """Return a layer without weights of its own; ReLU needs a convolution that changes nothing."""
    relu = op.activation == "relu"
    weights: Literal["identity", "none"] = "identity" if relu else "none"
    return Layer(op.name, inputs, op.in_shape, op.shape, weights, relu=relu, pool=pool)


def _pool(op: Op) -> Pool | None:
    extent = window(op)
    if extent == (1, 1) and op.stride == 1:
        return None
    return Pool(op.kind != "max_pool", extent, op.stride)


def window(op: Op) -> tuple[int, int]:
    """Return rows and columns of a pooling window."""
    return op.in_shape[1:] if op.kind == "global_pool" else (op.kernel, op.kernel)
