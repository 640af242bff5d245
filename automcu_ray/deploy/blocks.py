"""Layers of a spec, as dictionaries, that together are a block: written as that."""

from typing import Any

Layer = dict[str, Any]


def fold(layers: list[Layer], channels: int) -> None:
    """Write the last layers as the block that they are, in place: residual, bottleneck or mbconv; `channels` go in."""
    last = layers[-1]
    if last["type"] == "skip":
        body = layers[-last["back"] : -1]
        kinds = [layer["type"] for layer in body]
        if kinds == ["conv", "conv"] and _as_residual(*body):
            del layers[-3:]
            about: Layer = {
                name: body[0][name] for name in ("out_channels", "kernel_size", "stride") if name in body[0]
            }
            layers.append({"type": "residual", **about, "activation": "none"})
        elif kinds == ["mbconv"]:  # it adds where its shape stays
            del layers[-1]
        elif kinds == ["pointwise", "conv", "pointwise"] and body[1]["kernel_size"] == 3 and "groups" not in body[1]:
            before = _width(layers[: len(layers) - 4], channels)
            if 0 < body[0]["out_channels"] <= 8 * before:
                stride = {"stride": body[1]["stride"]} if "stride" in body[1] else {}
                del layers[-4:]
                expansion = body[0]["out_channels"] / before
                block: Layer = {
                    "type": "bottleneck",
                    "expansion": expansion,
                    "out_channels": body[2]["out_channels"],
                }
                layers.append({**block, **stride, "activation": "none"})
    elif [layer["type"] for layer in layers[-3:]] == ["pointwise", "depthwise", "pointwise"]:
        expand, middle, project = layers[-3:]
        before = _width(layers[: len(layers) - 3], channels)
        if (
            "none" not in (expand["activation"], middle["activation"])
            and before <= expand["out_channels"] <= 8 * before
        ):
            del layers[-3:]
            made: Layer = {"type": "mbconv", "out_channels": project["out_channels"]}
            made |= {name: middle[name] for name in ("kernel_size", "stride") if name in middle}
            made |= {"expansion": expand["out_channels"] / before, "activation": middle["activation"]}
            layers.append(made | ({"se_ratio": middle["gate"]} if "gate" in middle else {}))


def _width(layers: list[Layer], channels: int) -> int:
    """Return the channels that reach the layer after these."""
    widths = [layer["out_channels"] for layer in layers if "out_channels" in layer]
    return int(widths[-1]) if widths else channels


def _as_residual(first: Layer, second: Layer) -> bool:
    plain = first["kernel_size"] == second["kernel_size"] and "stride" not in second
    alike = first["out_channels"] == second["out_channels"] and not {"groups", "padding"} & {*first, *second}
    return bool(plain and alike and first["activation"] != "none")
