"""The architecture specification `a = (B, H)`: an ordered backbone and a head (paper 000, equations 1 and 2).

The JSON of the paper is read as it stands: the backbone is a dict `layer_1, layer_2, ...` or a list, and
`in_channels` may be given (then it is checked) or left out (then it is derived).

The same layers serve signals, inputs of height 1 such as (channels, 1, time): there windows are 1 x kernel_size, and
may be dilated.
"""

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidationError, field_validator

from automcu_ray.core.models import FrozenModel

Activation = Literal["relu", "relu6", "none"]
MAX_CHANNELS = 1024
Channels = Annotated[int, Field(ge=1, le=MAX_CHANNELS)]
KernelSize = Literal[1, 3, 5, 7]
Stride = Literal[1, 2]
Padding = Annotated[int, Field(ge=0, le=3)]
Dilation = Literal[1, 2, 4, 8]  # above 1 on signals alone
Groups = Literal[1, 2, 4, 8]
MAX_LAYERS = 40
MAX_POSITIONS = 8


class _Layer(FrozenModel):
    """Fields of every layer; None means derived."""

    in_channels: Channels | None = None


class Conv(_Layer):
    """Convolution, batch norm, activation; groups must divide its input and output channels.

    Padding defaults to kernel_size // 2.
    """

    type: Literal["conv"]
    out_channels: Channels
    kernel_size: KernelSize = 3
    stride: Stride = 1
    padding: Padding | None = None
    dilation: Dilation = 1
    groups: Groups = 1
    use_bn: bool = True
    activation: Activation = "relu"


class Depthwise(_Layer):
    """Depthwise convolution, batch norm, activation; then a pointwise one where out_channels differs."""

    type: Literal["depthwise"]
    out_channels: Channels | None = None
    kernel_size: KernelSize = 3
    stride: Stride = 1
    padding: Padding | None = None
    dilation: Dilation = 1
    use_bn: bool = True
    activation: Activation = "relu"


class Pointwise(_Layer):
    """1x1 convolution, batch norm, activation."""

    type: Literal["pointwise"]
    out_channels: Channels
    use_bn: bool = True
    activation: Activation = "relu"


class Downsample(_Layer):
    """Convolution of stride 2, batch norm, activation: halves height and width."""

    type: Literal["downsample"]
    out_channels: Channels
    kernel_size: KernelSize = 3
    use_bn: bool = True
    activation: Activation = "relu"


class Ghost(_Layer):
    """Ghost module (Han et al. 2020, arXiv:1911.11907): out_channels / ratio real maps, the rest by cheap depthwise."""

    type: Literal["ghost"]
    out_channels: Channels
    kernel_size: KernelSize = 1
    ratio: Literal[2, 3, 4] = 2
    dw_size: KernelSize = 3
    stride: Stride = 1
    activation: Activation = "relu"


class Bottleneck(_Layer):
    """1x1, 3x3, linear 1x1; hidden width expansion * in_channels; skip where the shape stays (He et al. 2015).

    Paper 000 leaves the middle convolution open. Its repository example (64.41 KB of float32 Flash) is met within
    0.7 % by a full 3x3 convolution and missed by 14 % by a depthwise one, so it is a full one here.
    """

    type: Literal["bottleneck"]
    out_channels: Channels
    expansion: Annotated[float, Field(gt=0, le=8)] = 1
    stride: Stride = 1
    activation: Activation = "relu"


class MbConv(_Layer):
    """1x1 expansion, depthwise, optional squeeze-excite, linear 1x1; skip where the shape stays (arXiv:1801.04381)."""

    type: Literal["mbconv"]
    out_channels: Channels
    expansion: Annotated[float, Field(ge=1, le=8)] = 4
    kernel_size: KernelSize = 3
    stride: Stride = 1
    se_ratio: Annotated[float, Field(ge=0, le=1)] = 0
    activation: Activation = "relu"


class Residual(_Layer):
    """Two convolutions and a skip, projected by 1x1 where the shape changes (arXiv:1512.03385, figure 2)."""

    type: Literal["residual"]
    out_channels: Channels
    kernel_size: KernelSize = 3
    stride: Stride = 1
    dilation: Dilation = 1
    activation: Activation = "relu"


class MaxPool(_Layer):
    """Maximum over windows; stride defaults to kernel_size."""

    type: Literal["max_pool"]
    kernel_size: Annotated[int, Field(ge=2, le=8)] = 2
    stride: Annotated[int, Field(ge=1, le=8)] | None = None


class AvgPool(_Layer):
    """Mean over windows; stride defaults to kernel_size."""

    type: Literal["avg_pool"]
    kernel_size: Annotated[int, Field(ge=2, le=8)] = 2
    stride: Annotated[int, Field(ge=1, le=8)] | None = None


class _Join(_Layer):
    """What reads two layers: the one before it, and the one that lies `back` places before it."""

    back: Annotated[int, Field(ge=2, le=MAX_LAYERS - 1)] = 2


class Skip(_Join):
    """Adds the output of the layer `back` places before this one, projected by 1x1 where the shape differs.

    The earlier output may be 2, 4 or 8 times as high and wide, as across the stages of arXiv:1512.03385.
    """

    type: Literal["skip"]
    activation: Activation = "relu"


class Concat(_Join):
    """Joins the channels of the layer `back` places before this one, of equal height and width (arXiv:1608.06993)."""

    type: Literal["concat"]


Layer = Annotated[
    Conv
    | Depthwise
    | Pointwise
    | Downsample
    | Ghost
    | Bottleneck
    | MbConv
    | Residual
    | MaxPool
    | AvgPool
    | Skip
    | Concat,
    Field(discriminator="type"),
]
LAYERS: dict[str, type[_Layer]] = {
    get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(get_args(Layer)[0])
}


class Classifier(FrozenModel):
    """Average pool and a linear layer; num_classes defaults to the task's.

    With one position the pool is global. With more the linear layer still knows where in the image something was: the
    pool leaves so many a side, in equal windows that may overlap by a row, and on maps that are not square as many on
    the longer side as fit.

    Where a network reconstructs its input (an autoencoder), what is pooled goes through a linear layer to `code`
    values, the bottleneck, and from there through one of `decoder` values with ReLU to the outputs.
    """

    type: Literal["classifier"] = "classifier"
    positions: Annotated[int, Field(ge=1, le=MAX_POSITIONS)] = 1
    num_classes: Annotated[int, Field(ge=2, le=1000)] | None = None
    code: Annotated[int, Field(ge=1, le=MAX_CHANNELS)] | None = None
    decoder: Channels | None = None


class ArchitectureSpec(FrozenModel):
    """`a = (B, H)`. `layer_i` in messages counts from 1, as in the paper."""

    backbone: Annotated[tuple[Layer, ...], Field(min_length=1, max_length=MAX_LAYERS)]
    head: Classifier = Classifier()

    @field_validator("backbone", mode="before")
    @classmethod
    def _ordered(cls, value: Any) -> Any:
        """Accept the paper's dict, ordered by the number in the key."""
        if not isinstance(value, dict):
            return value
        numbers = {key: re.fullmatch(r"layer_(\d+)", str(key)) for key in value}
        wrong = [str(key) for key, match in numbers.items() if match is None]
        if wrong:
            raise ValueError(f"backbone keys must read layer_1, layer_2, ...; found {wrong[0]!r}")
        return tuple(value[key] for key in sorted(value, key=lambda key: int(numbers[key][1])))  # type: ignore[index]

    def compact(self) -> dict[str, Any]:
        """Return the shortest JSON object that reads back as this spec."""
        return self.model_dump(mode="json", exclude_defaults=True) | {
            "backbone": [
                {"type": layer.type, **layer.model_dump(mode="json", exclude_defaults=True)} for layer in self.backbone
            ]
        }


def explain(error: ValueError) -> str:
    """Return one line that names layer, field, rule and value of the first things wrong with a spec."""
    if not isinstance(error, ValidationError):
        return f"not a JSON object: {error}"
    lines = []
    for item in error.errors(include_url=False)[:3]:
        where = [f"layer_{part + 1}" if isinstance(part, int) else str(part) for part in item["loc"]]
        lines.append(f"{'.'.join(where) or 'spec'}: {item['msg']}, found {str(item['input'])[:60]}")
    return "; ".join(lines)
