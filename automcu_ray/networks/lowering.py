"""The blocks of the specification, lowered to operators: one function a layer type."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from automcu_ray.networks import spec as s
from automcu_ray.networks.graph import NETWORK_INPUT, ConstructibilityError, Graph, GraphBuilder, Shape

CODE, DECODER = 8, 64  # of an autoencoder whose spec says nothing; 8 as MLPerf Tiny's


@lru_cache(maxsize=4096)
def lower(spec: s.ArchitectureSpec, input_shape: Shape, num_classes: int, reconstructs: bool = False) -> Graph:
    """Return the operators of a spec for one input of `input_shape` (channels, height, width).

    A network that reconstructs its input has a bottleneck before its `num_classes` outputs, whatever its spec says.

    Raises:
        ConstructibilityError: tensors do not fit together; the message names layer, field, rule and value.
    """
    builder = GraphBuilder(input_shape)
    at, outputs = NETWORK_INPUT, list[int]()
    for number, layer in enumerate(spec.backbone, start=1):
        builder.layer = f"layer_{number}"
        channels = builder.shape(at)[0]
        if layer.in_channels not in (None, channels):
            rule = f"must equal the {channels} channels that reach this layer"
            raise ConstructibilityError(f"layer_{number}.in_channels", rule, layer.in_channels)
        if isinstance(layer, s.Skip | s.Concat):
            if layer.back >= number:
                rule = f"must name one of the {number - 1} layers before this one, and not the one right before it"
                raise ConstructibilityError(f"layer_{number}.back", rule, layer.back)
            at = _JOINS[layer.type](builder, at, outputs[-layer.back], layer)
        else:
            at = _BLOCKS[layer.type](builder, at, layer)
        outputs.append(at)
    builder.layer = "head"
    if spec.head.num_classes not in (None, num_classes):
        rule = f"must equal the {num_classes} classes of the task"
        raise ConstructibilityError("head.num_classes", rule, spec.head.num_classes)
    at = _pooled(builder, at, spec.head.positions)
    builder.linear(_decoded(builder, at, spec.head, reconstructs), num_classes)
    return Graph(input_shape, tuple(builder.ops))


def _pooled(b: GraphBuilder, x: int, positions: int) -> int:
    if positions == 1:
        return b.global_pool(x)
    _, height, width = b.shape(x)
    side = width if b.flat else min(height, width)
    if positions > side:
        raise ConstructibilityError(f"{b.layer}.positions", f"must not exceed the {side} of the last map", positions)
    stride = side // positions
    window = side - (positions - 1) * stride
    return b.pool("avg_pool", x, window, stride) if window > 1 else x


def _decoded(b: GraphBuilder, x: int, head: s.Classifier, reconstructs: bool) -> int:
    """Return what the last linear layer of an autoencoder reads; of another network, what was pooled."""
    if not reconstructs:
        for name, value in (("code", head.code), ("decoder", head.decoder)):
            if value is not None:
                raise ConstructibilityError(f"head.{name}", "is for networks that reconstruct their input", value)
        return x
    code = b.linear(x, CODE if head.code is None else head.code, "code")
    return b.linear(code, DECODER if head.decoder is None else head.decoder, "decoder", "relu")


def _conv(b: GraphBuilder, x: int, layer: s.Conv) -> int:
    for channels in (b.shape(x)[0], layer.out_channels):
        if channels % layer.groups:
            raise ConstructibilityError(f"{b.layer}.groups", f"must divide its {channels} channels", layer.groups)
    window = (layer.kernel_size, layer.stride, layer.padding, layer.groups)
    after: dict[str, Any] = {"use_bn": layer.use_bn, "activation": layer.activation}
    return b.conv("conv", x, layer.out_channels, *window, dilation=layer.dilation, **after)


def _depthwise(b: GraphBuilder, x: int, layer: s.Depthwise) -> int:
    channels, window = b.shape(x)[0], (layer.kernel_size, layer.stride, layer.padding)
    after: dict[str, Any] = {"use_bn": layer.use_bn, "activation": layer.activation}
    y = b.conv("depthwise", x, channels, *window, groups=channels, dilation=layer.dilation, **after)
    return y if layer.out_channels in (None, channels) else b.conv("pointwise", y, layer.out_channels, **after)


def _pointwise(b: GraphBuilder, x: int, layer: s.Pointwise) -> int:
    return b.conv("pointwise", x, layer.out_channels, use_bn=layer.use_bn, activation=layer.activation)


def _downsample(b: GraphBuilder, x: int, layer: s.Downsample) -> int:
    return b.conv(
        "downsample", x, layer.out_channels, layer.kernel_size, 2, use_bn=layer.use_bn, activation=layer.activation
    )


def _ghost(b: GraphBuilder, x: int, layer: s.Ghost) -> int:
    if layer.out_channels % layer.ratio:
        raise ConstructibilityError(
            f"{b.layer}.out_channels", f"must be a multiple of ratio {layer.ratio}", layer.out_channels
        )
    primary = layer.out_channels // layer.ratio
    y = b.conv("primary", x, primary, layer.kernel_size, layer.stride, activation=layer.activation)
    cheap = b.conv("cheap", y, primary * (layer.ratio - 1), layer.dw_size, groups=primary, activation=layer.activation)
    return b.join("concat", (y, cheap))


def _bottleneck(b: GraphBuilder, x: int, layer: s.Bottleneck) -> int:
    hidden = _width(b.shape(x)[0] * layer.expansion)
    y = b.conv("reduce", x, hidden, activation=layer.activation)
    y = b.conv("conv", y, hidden, 3, layer.stride, activation=layer.activation)
    y = b.conv("restore", y, layer.out_channels, activation="none")
    return b.join("add", (x, y), layer.activation) if _keeps_shape(b, x, y) else y


def _mbconv(b: GraphBuilder, x: int, layer: s.MbConv) -> int:
    hidden = _width(b.shape(x)[0] * layer.expansion)
    y = b.conv("expand", x, hidden, activation=layer.activation) if layer.expansion != 1 else x
    y = b.conv("depthwise", y, hidden, layer.kernel_size, layer.stride, groups=hidden, activation=layer.activation)
    if layer.se_ratio > 0:
        gate = b.conv("squeeze", b.global_pool(y), _width(hidden * layer.se_ratio), use_bn=False)
        gate = b.conv("excite", gate, hidden, use_bn=False, activation="sigmoid")
        y = b.join("mul", (y, gate))
    y = b.conv("project", y, layer.out_channels, activation="none")
    return b.join("add", (x, y)) if _keeps_shape(b, x, y) else y


def _residual(b: GraphBuilder, x: int, layer: s.Residual) -> int:
    window: dict[str, Any] = {"kernel": layer.kernel_size, "dilation": layer.dilation}
    y = b.conv("conv1", x, layer.out_channels, stride=layer.stride, activation=layer.activation, **window)
    y = b.conv("conv2", y, layer.out_channels, activation="none", **window)
    skip = x
    if not _keeps_shape(b, x, y):
        skip = b.conv("project", x, layer.out_channels, 1, layer.stride, activation="none")
    return b.join("add", (skip, y), layer.activation)


def _pool(b: GraphBuilder, x: int, layer: s.MaxPool | s.AvgPool) -> int:
    return b.pool(layer.type, x, layer.kernel_size, layer.stride or layer.kernel_size)


def _skip(b: GraphBuilder, x: int, earlier: int, layer: s.Skip) -> int:
    (channels, height, width), (_, tall, wide) = b.shape(x), b.shape(earlier)
    if not _keeps_shape(b, earlier, x):
        strides = [step for step in _STRIDES if (-(-tall // step), -(-wide // step)) == (height, width)]
        if not strides:
            rule = f"must lead to a map 1, 2, 4 or 8 times as large as the {height}x{width} here"
            raise ConstructibilityError(f"{b.layer}.back", rule, f"{tall}x{wide}")
        earlier = b.conv("project", earlier, channels, 1, strides[0], activation="none")
    return b.join("add", (earlier, x), layer.activation)


def _concat(b: GraphBuilder, x: int, earlier: int, layer: s.Concat) -> int:
    (channels, *size), (more, *other) = b.shape(x), b.shape(earlier)
    if size != other:
        rule = f"must lead to a map of {size[0]}x{size[1]} as here"
        raise ConstructibilityError(f"{b.layer}.back", rule, f"{other[0]}x{other[1]}")
    if channels + more > s.MAX_CHANNELS:
        rule = f"must lead to {s.MAX_CHANNELS - channels} channels at most, with the {channels} here"
        raise ConstructibilityError(f"{b.layer}.back", rule, more)
    return b.join("concat", (earlier, x))


def _keeps_shape(b: GraphBuilder, x: int, y: int) -> bool:
    return b.shape(x) == b.shape(y)


def _width(channels: float) -> int:
    return max(1, round(channels))


_STRIDES = (1, 2, 4, 8)  # of a projection
_JOINS: dict[str, Callable[[GraphBuilder, int, int, Any], int]] = {"skip": _skip, "concat": _concat}
_BLOCKS: dict[str, Callable[[GraphBuilder, int, Any], int]] = {
    "conv": _conv,
    "depthwise": _depthwise,
    "pointwise": _pointwise,
    "downsample": _downsample,
    "ghost": _ghost,
    "bottleneck": _bottleneck,
    "mbconv": _mbconv,
    "residual": _residual,
    "max_pool": _pool,
    "avg_pool": _pool,
}
