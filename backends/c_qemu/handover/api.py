"""`net.h` and `net_api.c` of a bundle: three functions, the names of the outputs, and what the input is made of.

The third function answers the question of the task: `net_classify`, `net_estimate` or `net_score`. Names come from
outside (folders, files). They reach C as string literals whose every other byte is an octal escape.
"""

import string
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.learning import Kind, Learning
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.signals.front_end import FrontEnd

C_FOLDER = Path(__file__).parent / "c"
MOST_NAME_BYTES = 64  # of a class in C; the manifest has the whole name
_AS_THEY_ARE = frozenset((string.ascii_letters + string.digits + " _-.,:+()").encode())
VERBS: dict[Kind, str] = {"classification": "classify", "regression": "estimate", "anomaly": "score"}
_OF_CLASSES = "one value a class, the\n * largest wins."
_OF_OUTPUTS: dict[Kind, str] = {
    "regression": "one value a quantity,\n * standardised: NET_VALUE_SCALES.",
    "anomaly": "the input again, as\n * well as it can be reconstructed.",
}
_END = "\n#ifdef __cplusplus\n}"


class Told(NamedTuple):
    """What a network's outputs mean; `threshold` is that of an anomaly detector."""

    learning: Learning = Learning()
    threshold: float = 0.0


CLASSES = Told()


def literal(name: str) -> str:
    """Return a string literal for C99 and C++ in UTF-8, cut to `MOST_NAME_BYTES` between two characters."""
    cut = name.encode("utf-8", "replace")[:MOST_NAME_BYTES].decode("utf-8", "ignore").encode()
    return '"' + "".join(chr(byte) if byte in _AS_THEY_ARE else f"\\{byte:03o}" for byte in cut) + '"'


def preparation(deployed: DeployedNetwork, front_end: FrontEnd | None, kind: Kind = "classification") -> str:
    """Return what becomes the network's input, and how, in sentences without a name from outside."""
    channels, height, width = deployed.input_shape
    if front_end is not None:
        each = (
            "one value" if front_end.channels == 1 else f"{front_end.channels} values, one a channel, beside each other"
        )
        return (
            f"Samples of 16 bits, {front_end.rate_hz:g} a second, each of {each}. The window of the last "
            f"{front_end.span} samples is the network's input; it moves on by {front_end.step}. stream.c makes it, in "
            "the same integers as in training."
        )
    order = {1: "one byte, its brightness (0 black)", 3: "three bytes: red, green, blue"}.get(
        channels, f"{channels} bytes"
    )
    encoded = "pixel - 128" if deployed.precision == "int8" else "(pixel - 128) / 128"
    return (
        f"A picture, row by row from the top left, each pixel {order}. Of a picture of another size than "
        f"{width}x{height} the largest middle part of that shape is taken and scaled to it (triangle filter, as "
        f"Pillow's BILINEAR, within one step of 255). The network reads {encoded}, channel after channel; "
        f"net_{VERBS[kind]} does all of this."
    )


def header(shipped: str, deployed: DeployedNetwork, front_end: FrontEnd | None, told: Told = CLASSES) -> str:
    """Return `net.h` of a bundle: the toolchain's own one and the interface.

    Raises:
        ToolchainError: a header of another form.
    """
    head, found, tail = shipped.rpartition(_END)
    if not found:
        raise ToolchainError("net.h should end its C linkage, found no such lines.")
    kind, c_type = told.learning.kind, "int8_t" if deployed.precision == "int8" else "float"
    encode = "(int8_t)((pixel) - 128)" if deployed.precision == "int8" else "((float)((pixel) - 128) / 128.0f)"
    takes = "const uint8_t *pixels, uint32_t width, uint32_t height"
    none = "-1 for an empty picture"
    if front_end is not None:
        takes, none = "const int16_t *samples, uint32_t count", "-1 until a whole window has been fed"
    if kind != "classification":
        head = head.replace("NET_CLASSES", "NET_OUTPUTS").replace(_OF_CLASSES, _OF_OUTPUTS[kind])
    constants, function, answer = _third_function(deployed, told, takes, none)
    outputs, noun = ("NET_CLASSES", "scores") if kind == "classification" else ("NET_OUTPUTS", "outputs")
    return f"""{head}
typedef {c_type} net_value; /* of the input and of {"a score" if kind == "classification" else "an output"} */
#define NET_ENCODE(pixel) {encode} /* of a pixel, 0 to 255 */
{constants}
/* First, and where the input breaks off. */
void net_init(void);

/* One inference: NET_INPUT_CHANNELS x NET_INPUT_HEIGHT x NET_INPUT_WIDTH values in, {outputs} {noun} out. */
void net_run(const net_value *input, net_value *{noun});

/* {answer}
{_comment(preparation(deployed, front_end, kind))}
 * None of the three is re-entrant; nothing is allocated. */
{function}
{_END}{tail}"""


def _third_function(deployed: DeployedNetwork, told: Told, takes: str, none: str) -> tuple[str, str, str]:
    """Return constants, the declaration of what answers a task's question, and the first line of its comment."""
    kind = told.learning.kind
    if kind == "classification":
        names = "\n/* Names of the classes, UTF-8. */\nextern const char *const net_class_names[NET_CLASSES];\n"
        return names, f"int net_classify({takes});", f"The class, 0 to NET_CLASSES - 1; {none}."
    scale, zero = deployed.output_scale, deployed.output_zero_point
    real = "(value)" if scale is None else f"((float)((value) - {zero}) * {scale!r}f)"
    constants = f"#define NET_DECODE(value) {real} /* of an output */\n"
    if kind == "anomaly":
        went_in = "(value)" if scale is None else "((float)(value) / 128.0f)"
        constants += f"#define NET_DECODE_INPUT(value) {went_in}\n"
        constants += (
            f"#define NET_THRESHOLD {_float(told.threshold)} /* a score of an anomaly, or more; by validation */\n"
        )
        answer = f"1 for an anomaly, 0 for what is normal, and its score: how badly it is reconstructed; {none}."
        return constants, f"int net_score({takes}, float *score);", answer
    targets = told.learning.targets
    scales, offsets = (", ".join(_float(getattr(one, key)) for one in targets) for key in ("deviation", "mean"))
    constants += (
        f"#define NET_VALUE_SCALES {{{scales}}} /* a value is NET_DECODE(output) * scale + offset */\n"
        f"#define NET_VALUE_OFFSETS {{{offsets}}}\n"
        "\n/* Names of the values, UTF-8. */\nextern const char *const net_value_names[NET_OUTPUTS];\n"
    )
    answer = f"0, and NET_OUTPUTS values in their own units; {none}."
    return constants, f"int net_estimate({takes}, float *values);", answer


def source(deployed: DeployedNetwork, front_end: FrontEnd | None, classes: Sequence[str], told: Told = CLASSES) -> str:
    """Return `net_api.c`; classes that nobody named are called by their numbers."""
    kind = told.learning.kind
    names = "" if kind == "anomaly" else _names(deployed, classes, told)
    includes = "#include <stddef.h>\n" if front_end is None else '#include "stream.h"\n'
    own = "picture.c" if front_end is None else "stream.c"
    takes, gives, went_in = (
        "const uint8_t *pixels, uint32_t width, uint32_t height",
        "pixels, width, height",
        "prepared",
    )
    if front_end is not None:
        takes, gives, went_in = "const int16_t *samples, uint32_t count", "samples, count", "stream_input()"
    third = (C_FOLDER / f"{VERBS[kind]}.c").read_text().replace("TAKEN", takes).replace("GIVEN", gives)
    return f"""/* The interface of net.h. Generated; do not edit. */
#include "net.h"

{includes}{names}
{(C_FOLDER / "common.c").read_text()}
{(C_FOLDER / own).read_text()}{third.replace("WENT_IN", went_in)}"""


def _names(deployed: DeployedNetwork, classes: Sequence[str], told: Told) -> str:
    targets = [target.name for target in told.learning.targets]
    names = [literal(name) for name in targets or classes] or [f'"{number}"' for number in range(deployed.num_classes)]
    if len(names) != deployed.num_classes:
        raise ToolchainError(f"the network has {deployed.num_classes} outputs, found {len(names)} names.")
    array = "net_value_names[NET_OUTPUTS]" if targets else "net_class_names[NET_CLASSES]"
    listed = ",\n    ".join(names)
    return f"\nconst char *const {array} = {{\n    {listed},\n}};\n"


def _float(value: float) -> str:
    """Return a float constant in C, to the last bit of float32."""
    return f"{value:.8e}f"


def _comment(text: str) -> str:
    lines, line = [], " *"
    for word in text.split():
        if len(line) + len(word) >= 118:
            lines.append(line)
            line = " *"
        line += f" {word}"
    return "\n".join([*lines, line])
