"""`net.h` and `net_api.c` of a bundle: three functions, the names of the classes, and what the input is made of.

Names come from outside (folders, files). They reach C as string literals whose every other byte is an octal escape.
"""

import string
from collections.abc import Sequence
from pathlib import Path

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.signals.front_end import FrontEnd

C_FOLDER = Path(__file__).parent / "c"
MOST_NAME_BYTES = 64  # of a class in C; the manifest has the whole name
_AS_THEY_ARE = frozenset((string.ascii_letters + string.digits + " _-.,:+()").encode())
_END = "\n#ifdef __cplusplus\n}"


def literal(name: str) -> str:
    """Return a string literal for C99 and C++ in UTF-8, cut to `MOST_NAME_BYTES` between two characters."""
    cut = name.encode("utf-8", "replace")[:MOST_NAME_BYTES].decode("utf-8", "ignore").encode()
    return '"' + "".join(chr(byte) if byte in _AS_THEY_ARE else f"\\{byte:03o}" for byte in cut) + '"'


def preparation(deployed: DeployedNetwork, front_end: FrontEnd | None) -> str:
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
        "net_classify does all of this."
    )


def header(shipped: str, deployed: DeployedNetwork, front_end: FrontEnd | None) -> str:
    """Return `net.h` of a bundle: the toolchain's own one and the interface.

    Raises:
        ToolchainError: a header of another form.
    """
    head, found, tail = shipped.rpartition(_END)
    if not found:
        raise ToolchainError("net.h should end its C linkage, found no such lines.")
    c_type = "int8_t" if deployed.precision == "int8" else "float"
    encode = "(int8_t)((pixel) - 128)" if deployed.precision == "int8" else "((float)((pixel) - 128) / 128.0f)"
    if front_end is None:
        classify = "int net_classify(const uint8_t *pixels, uint32_t width, uint32_t height);"
        answer = "-1 for an empty picture"
    else:
        classify = "int net_classify(const int16_t *samples, uint32_t count);"
        answer = "-1 until a whole window has been fed"
    return f"""{head}
typedef {c_type} net_value; /* of the input and of a score */
#define NET_ENCODE(pixel) {encode} /* of a pixel, 0 to 255 */

/* Names of the classes, UTF-8. */
extern const char *const net_class_names[NET_CLASSES];

/* First, and where the input breaks off. */
void net_init(void);

/* One inference: NET_INPUT_CHANNELS x NET_INPUT_HEIGHT x NET_INPUT_WIDTH values in, NET_CLASSES scores out. */
void net_run(const net_value *input, net_value *scores);

/* The class, 0 to NET_CLASSES - 1; {answer}.
{_comment(preparation(deployed, front_end))}
 * None of the three is re-entrant; nothing is allocated. */
{classify}
{_END}{tail}"""


def source(deployed: DeployedNetwork, front_end: FrontEnd | None, classes: Sequence[str]) -> str:
    """Return `net_api.c`; classes that nobody named are called by their numbers."""
    names = [literal(name) for name in classes] or [f'"{number}"' for number in range(deployed.num_classes)]
    if len(names) != deployed.num_classes:
        raise ToolchainError(f"the network tells {deployed.num_classes} classes apart, found {len(names)} names.")
    listed = ",\n    ".join(names)
    includes = "#include <stddef.h>\n" if front_end is None else '#include "stream.h"\n'
    own = "picture.c" if front_end is None else "stream.c"
    return f"""/* The interface of net.h. Generated; do not edit. */
#include "net.h"

{includes}
const char *const net_class_names[NET_CLASSES] = {{
    {listed},
}};

{(C_FOLDER / "common.c").read_text()}
{(C_FOLDER / own).read_text()}"""


def _comment(text: str) -> str:
    lines, line = [], " *"
    for word in text.split():
        if len(line) + len(word) >= 118:
            lines.append(line)
            line = " *"
        line += f" {word}"
    return "\n".join([*lines, line])
