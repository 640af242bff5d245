"""Layers and their schedule as one C file. Every identifier is ours: no name of the ONNX file reaches the C."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from automcu_ray.core.errors import ToolchainError
from automcu_ray.sizing.scratch import ALIGNMENT
from backends.c_qemu.kernels.layer import Array, Field, Layer, Variant
from backends.c_qemu.schedule import Schedule

SOURCES = Path(__file__).parent / "c"
ARENA, INPUT, OUTPUT = "net_arena", "image", "logits"
_FILES = {
    "lookup": ("moving.c",),
    "join": ("moving.c",),
    "transpose": ("moving.c",),
    "resize": ("moving.c",),
    "add": ("elementwise.c",),
    "mul": ("elementwise.c",),
    **dict.fromkeys(("softmax", "ratio", "largest_of_two", "smallest_of_two"), ("functions.c",)),
    "max_pool": ("pooling.c",),
    "average_pool": ("pooling.c",),
    "global_pool": ("pooling.c",),
    "convolve_narrow": ("layers.h", "VARIANT", "PRODUCTS", "narrow.c"),
    "convolve": ("layers.h", "VARIANT", "WINDOWS", "convolution.c"),
    "convolve_threes": ("layers.h", "VARIANT", "threes_dsp.c"),
    "convolve_depthwise": ("layers.h", "VARIANT", "DEPTHWISE"),
    "convolve_apart": ("layers.h", "VARIANT", "depthwise_apart_dsp.c"),
    **dict.fromkeys(
        ("recur_gru_after", "recur_gru_before", "recur_lstm", "recur_plain"),
        ("layers.h", "VARIANT", "PRODUCTS", "recurrent.c"),
    ),
    "connect": ("layers.h", "VARIANT", "PRODUCTS", "linear.c"),
    "multiply_matrices": ("layers.h", "VARIANT", "PRODUCTS", "matrices.c"),
}
_TURNS = (
    *("convolve", "convolve_threes", "convolve_narrow", "convolve_depthwise", "convolve_apart"),
    *("max_pool", "average_pool"),
)
_FOR_ALL = ("sigmoid", "tanh")  # tables that are the same in all layers
_ESCAPES = [f"\\{byte:03o}" for byte in range(256)]
_ROW = 30  # bytes a source line
LONGEST = (1 << 15) - 512  # what a scaled sum may be for rounding in 16 bits, a zero point added
HUGE = 1 << 22  # ... for rounding by adding a float whose last bit is worth 1


def print_c(
    layers: Sequence[Layer],
    made: Schedule,
    constants: dict[str, Array],
    ends: tuple[str, str],
    signature: str,
    variant: Variant,
    small: bool = False,
    states: int = 0,
) -> str:
    """Return `net.c`.

    Args:
        layers: of the network, in the order in which the schedule numbers them.
        made: their order and places; scratch buffers are named by `scratch_name`.
        constants: int8 tensors of the graph that layers read.
        ends: names of the graph's input and output.
        signature: of net().
        variant: of the kernels.
        small: whether code bytes count more than speed.
        states: that are kept from step to step, where the network is one step: `one_step` in place of net(); else 0.
    """
    needed = ["common.c", "requantise.c", *_kernel_files(layers, variant)]
    texts = ["#define NET_WIDE_SCALES"] if any(layer.has_wide_scales for layer in layers) else []
    longest = max((layer.bound for layer in layers), default=0.0)
    texts += ["#define NET_LONG_SUMS"] if longest >= LONGEST else []
    texts += ["#define NET_HUGE_SUMS"] if longest >= HUGE else []
    texts += ["#define NET_SMALL"] if small else []
    texts += ["#define NET_SHORT_ROWS"] if variant == "helium" and any(map(_has_short_rows, layers)) else []
    texts += [f"#define NET_STATES {states}"] if states else []
    texts += [(SOURCES / name).read_text() for name in needed]
    places = {name: f"{ARENA} + {offset}" for name, offset in made.offsets.items()}
    places |= {ends[0]: f"(const int8_t *){INPUT}", ends[1]: f"(int8_t *){OUTPUT}"}
    for number, (name, values) in enumerate(constants.items()):
        texts.append(_array(f"constant_{number}", values.reshape(-1)))
        places[name] = f"constant_{number}"
    arrays: dict[tuple[str, bytes], str] = {}
    for number, layer in enumerate(layers):
        for part, fields in enumerate(layer.structs):
            name = _name(number, layer, part)
            if states and layer.state_bytes:
                room = f"{states} * {layer.state_bytes}"
                texts.append(f"static int8_t {name}_kept[{room}] __attribute__((aligned(4)));")
            texts += _struct(name, layer, fields, number in made.descending, arrays, states)
    if made.arena_bytes:
        texts.append(f"static int8_t {ARENA}[{made.arena_bytes}] __attribute__((aligned(8)));\n")
    calls = []
    for call in made.calls:
        if call.copy is not None:
            source, target, start, size = call.copy
            if source not in made.offsets or made.offsets[source] + start != made.offsets.get(target):
                calls.append(f"memmove({places[target]}, {places[source]} + {start}, {size});")
            continue
        calls += _calls(call.op, layers[call.op], places, made.offsets)
    body = "".join(f"    {line}\n" for line in calls)
    head = "static void one_step" if states else "void net"
    return "\n".join([*texts, f"{head}({signature}) {{\n{body}}}\n"])


def _has_short_rows(layer: Layer) -> bool:
    return layer.kernel == "convolve_depthwise" and not layer.fields.get("by_rows", 1)


def scratch_name(number: int) -> str:
    """Return the name of a layer's scratch buffer."""
    return f"scratch of {number}"


def _kernel_files(layers: Iterable[Layer], variant: Variant) -> list[str]:
    names = [name for layer in layers for name in _FILES.get(layer.kernel, ())]
    order = dict.fromkeys(("layers.h", "VARIANT", "WINDOWS", "PRODUCTS", *names))  # before who uses them
    own = variant == "helium"
    files = {"VARIANT": f"{variant}.c", "WINDOWS": "windows_helium.c" if own else "windows.c"}
    files |= {"PRODUCTS": "" if own else "products.c"}
    files |= {"DEPTHWISE": "depthwise_dsp.c" if variant == "dsp" else "depthwise.c"}
    return [found for name in order if name in names and (found := files.get(name, name))]


def _name(number: int, layer: Layer, part: int) -> str:
    return f"layer_{number}_{part}" if layer.parts else f"layer_{number}"


def _calls(number: int, layer: Layer, places: dict[str, str], offsets: dict[str, int]) -> list[str]:
    scratch = ""
    if layer.scratch_bytes:
        start = -(-offsets[scratch_name(number)] // ALIGNMENT) * ALIGNMENT
        scratch = f", (packed *)({ARENA} + {start})"
    reads = [(name,) for name in layer.reads] if layer.parts else [tuple(layer.reads)]
    return [
        f"{layer.kernel}(&{_name(number, layer, part)}, {', '.join(map(places.__getitem__, names))}, "
        f"{places[layer.write]}{scratch});"
        for part, names in enumerate(reads)
    ]


def _struct(
    name: str,
    layer: Layer,
    fields: Mapping[str, Field],
    descending: bool,
    known: dict[tuple[str, bytes], str],
    states: int,
) -> list[str]:
    """Return a layer's arrays and struct; patches of one node share arrays, and `known` has their names."""
    texts, values = [], {}
    for key, value in fields.items():
        if isinstance(value, np.ndarray):
            owner = "" if key in _FOR_ALL else layer.node
            told = (f"{owner} {value.dtype}", value.tobytes())
            if told not in known:
                known[told] = f"{name}_{key}"
                texts.append(_array(known[told], value))
            values[key] = known[told]
        else:
            values[key] = _number(value)
    if states and layer.state_bytes:
        values["kept"] = f"{name}_kept"
    if descending:
        if layer.kernel not in _TURNS:
            raise ToolchainError(f"{layer.kernel} cannot be computed from the end, as it was planned.")
        values["descending"] = "1"
    body = ", ".join(f".{key} = {value}" for key, value in values.items())
    return [*texts, f"static const struct {layer.struct} {name} = {{{body}}};"]


def _number(value: Field) -> str:
    if value is None:
        return "0"
    if isinstance(value, tuple):
        return f"{{{', '.join(str(int(one)) for one in value)}}}"
    if isinstance(value, float):
        return f"{value.hex()}f"
    if not -(1 << 31) <= int(value) < 1 << 32:
        raise ToolchainError(f"the network has a size of {value}, too large for a microcontroller.")
    return str(int(value))


def _array(name: str, values: Array) -> str:
    c_type = {"int8": "int8_t", "int32": "int32_t", "int16": "int16_t", "uint16": "uint16_t", "float32": "float"}[
        values.dtype.name
    ]
    if values.dtype == np.int8:  # gcc reads a string ten times faster than numbers
        escaped = [_ESCAPES[value & 0xFF] for value in values.tolist()]
        rows = ("".join(escaped[i : i + _ROW]) for i in range(0, len(escaped), _ROW))
        text = "\n    ".join(f'"{row}"' for row in rows)
    else:
        numbers = [f"{value.hex()}f" for value in values.tolist()] if c_type == "float" else map(str, values.tolist())
        text = f"{{{', '.join(numbers)}}}"
    return f"static const {c_type} {name}[{len(values)}] __attribute__((aligned(4))) = {text};"
