"""A spec as a graph of primitive operators: the one source of shapes, sizes, hashes and networks."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from automcu_ray.core.feasibility import Rung, Violation

Shape = tuple[int, int, int]  # channels, height, width; batch size 1
OpKind = Literal["conv", "linear", "max_pool", "avg_pool", "global_pool", "add", "mul", "concat", "relu", "norm"]
NETWORK_INPUT = -1


class ConstructibilityError(ValueError):
    """A spec whose tensors do not fit together; `violation` names layer, field, rule and value."""

    def __init__(self, where: str, rule: str, found: object) -> None:
        message = f"{where}: {rule}, found {found}"
        super().__init__(message)
        self.violation = Violation(rung=Rung.SHAPES, resource="shape", where=where, message=message)


@dataclass(frozen=True)
class Op:
    """One operator: `inputs` are indices of earlier ops, `NETWORK_INPUT` the image; `shape` is the output's.

    A `norm` is a batch norm with no convolution before it to be folded into: a factor and a bias a channel. What is
    `flat` moves along the width alone, with a window of one row: its stride, padding and dilation are the columns'.
    """

    kind: OpKind
    name: str
    inputs: tuple[int, ...]
    in_shape: Shape
    shape: Shape
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    groups: int = 1
    use_bn: bool = False
    activation: str = "none"
    has_bias: bool = True
    dilation: int = 1
    flat: bool = False

    @property
    def window(self) -> tuple[int, int]:
        """Height and width of a convolution's or pool's window."""
        return 1 if self.flat else self.kernel, self.kernel

    @property
    def weights(self) -> int:
        """Number of weights without biases, batch norm folded."""
        if self.kind == "norm":
            return self.shape[0]
        if self.kind == "linear":
            return self.shape[0] * prod(self.in_shape)
        if self.kind != "conv":
            return 0
        return self.shape[0] * (self.in_shape[0] // self.groups) * self.window[0] * self.window[1]

    @property
    def biases(self) -> int:
        """Number of biases, batch norm folded."""
        return self.shape[0] if self.kind in ("conv", "linear", "norm") and self.has_bias else 0

    @property
    def macs(self) -> int:
        """Multiply-accumulates of what has weights (others count zero)."""
        return self.weights * self.shape[1] * self.shape[2]


@dataclass(frozen=True)
class Graph:
    """Operators in execution order; the last one is the output."""

    input_shape: Shape
    ops: tuple[Op, ...]

    def canonical_hash(self) -> str:
        """Return 12 hex digits that are equal for equal networks, whatever their specs look like."""
        rows = [
            (op.kind, op.inputs, op.shape, op.kernel, op.stride, op.padding, op.groups, op.use_bn, op.activation)
            + (() if op.has_bias else ("no bias",))
            + (() if op.dilation == 1 else (f"dilation {op.dilation}",))
            for op in self.ops
        ]
        return hashlib.sha256(json.dumps([self.input_shape, rows]).encode()).hexdigest()[:12]


@dataclass
class GraphBuilder:
    """Appends operators, infers their shapes and refuses what cannot be constructed.

    Methods take indices of earlier operators and return the new one's. `layer` is the prefix of names and errors.
    """

    input_shape: Shape
    layer: str = "input"
    ops: list[Op] = field(default_factory=list)

    @property
    def flat(self) -> bool:
        """Whether the input is a signal, one row of samples."""
        return self.input_shape[1] == 1 < self.input_shape[2]

    def shape(self, index: int) -> Shape:
        """Return the output shape of operator `index`."""
        return self.input_shape if index == NETWORK_INPUT else self.ops[index].shape

    def conv(
        self,
        name: str,
        source: int,
        out_channels: int,
        kernel: int = 1,
        stride: int = 1,
        padding: int | None = None,
        groups: int = 1,
        use_bn: bool = True,
        activation: str = "relu",
        has_bias: bool = True,
        dilation: int = 1,
    ) -> int:
        """Append a convolution with folded batch norm and activation."""
        if dilation > 1 and not self.flat:
            rule = "must be 1: only signals, inputs of height 1, are dilated"
            raise ConstructibilityError(f"{self.layer}.dilation", rule, dilation)
        reach = (kernel - 1) * dilation + 1
        padding = reach // 2 if padding is None else padding
        if padding >= reach:
            raise ConstructibilityError(f"{self.layer}.padding", f"must be smaller than kernel_size {reach}", padding)
        shape = (out_channels, *self._window(source, reach, stride, padding))
        window = (kernel, stride, padding, groups)
        name = f"{self.layer}.{name}"
        rest = (*window, use_bn, activation, has_bias, dilation, self.flat)
        return self._append(Op("conv", name, (source,), self.shape(source), shape, *rest))

    def pool(
        self, kind: Literal["max_pool", "avg_pool"], source: int, kernel: int, stride: int, padding: int = 0
    ) -> int:
        """Append a pooling window; an average is over the pixels inside the image alone."""
        shape = (self.shape(source)[0], *self._window(source, kernel, stride, padding))
        name = f"{self.layer}.pool"
        return self._append(
            Op(kind, name, (source,), self.shape(source), shape, kernel, stride, padding, flat=self.flat)
        )

    def relu(self, source: int) -> int:
        """Append a ReLU that follows no operator of its own: what it reads, others may read as it was."""
        return self._append(Op("relu", f"{self.layer}.relu", (source,), self.shape(source), self.shape(source)))

    def norm(self, source: int, activation: str) -> int:
        """Append a batch norm that cannot be folded into a convolution."""
        shape = self.shape(source)
        groups = shape[0]
        op = Op("norm", f"{self.layer}.norm", (source,), shape, shape, groups=groups, activation=activation)
        return self._append(op)

    def global_pool(self, source: int) -> int:
        """Append the mean over height and width."""
        shape = (self.shape(source)[0], 1, 1)
        return self._append(Op("global_pool", f"{self.layer}.global_pool", (source,), self.shape(source), shape))

    def linear(self, source: int, out_features: int, name: str = "linear", activation: str = "none") -> int:
        """Append a fully connected layer on all values of a tensor."""
        shapes = (self.shape(source), (out_features, 1, 1))
        return self._append(Op("linear", f"{self.layer}.{name}", (source,), *shapes, activation=activation))

    def join(self, kind: Literal["add", "mul", "concat"], sources: Sequence[int], activation: str = "none") -> int:
        """Append an element-wise sum or product, or a concatenation of channels."""
        shapes = [self.shape(source) for source in sources]
        channels = sum(shape[0] for shape in shapes) if kind == "concat" else shapes[0][0]
        shape = (channels, *shapes[0][1:])
        return self._append(Op(kind, f"{self.layer}.{kind}", tuple(sources), shapes[0], shape, activation=activation))

    def _window(self, source: int, kernel: int, stride: int, padding: int) -> tuple[int, int]:
        _, height, width = self.shape(source)
        if self.flat and width + 2 * padding >= kernel:
            return height, (width + 2 * padding - kernel) // stride + 1
        if min(height, width) + 2 * padding < kernel:
            tall = height if self.flat else height + 2 * padding
            rule = f"must not exceed its padded input of {tall}x{width + 2 * padding}"
            raise ConstructibilityError(f"{self.layer}.kernel_size", rule, kernel)
        return (height + 2 * padding - kernel) // stride + 1, (width + 2 * padding - kernel) // stride + 1

    def _append(self, op: Op) -> int:
        self.ops.append(op)
        return len(self.ops) - 1
