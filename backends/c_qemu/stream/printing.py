"""`stream.c` and `stream.h`: a front end's constants before the C that uses them."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from automcu_ray.core.errors import ToolchainError
from automcu_ray.signals.front_end import AudioWindow, SampleWindow
from automcu_ray.signals.spectrum import tables

_C = Path(__file__).parent / "c"
_LINE = 20  # numbers
MOST_CHANNELS = 32  # firmware/main.c has room for so many values


def stream_header(front_end: AudioWindow | SampleWindow) -> str:
    """Return `stream.h`."""
    units = ""
    if isinstance(front_end, SampleWindow):
        listed = ", ".join(f"{value!r}f" for value in front_end.units_per_count)
        units = f"#define STREAM_UNITS_PER_COUNT {{{listed}}} /* a channel's physical unit for each count */\n"
    return f"""/* Samples in, answers out: needs net.c. Generated; do not edit.
 *
 * A sample is STREAM_CHANNELS values of 16 bits beside each other, STREAM_RATE_HZ times a second. The window of the
 * last STREAM_SPAN samples is kept as the network's input; it moves on by STREAM_STEP. Nothing is allocated.
 */
#ifndef STREAM_H
#define STREAM_H

#include <stdint.h>

#define STREAM_CHANNELS {front_end.channels}
#define STREAM_RATE_HZ {front_end.rate_hz:g}
#define STREAM_SPAN {front_end.span}
#define STREAM_STEP {front_end.step}
{units}
#ifdef __cplusplus
extern "C" {{
#endif

extern const uint32_t stream_channels, stream_block; /* for a driver: values of a sample, samples of a transfer */
void stream_reset(void); /* first, and wherever samples are missing */
void stream_feed(const int16_t *samples, uint32_t count);
int stream_result(int8_t *scores); /* 1 and the network's answer to the window; 0 while too little has been fed */
const int8_t *stream_input(void); /* the window, as the network reads it */

#ifdef __cplusplus
}}
#endif

#endif
"""


def stream_source(front_end: AudioWindow | SampleWindow) -> str:
    """Return `stream.c`.

    Raises:
        ToolchainError: more channels than the harness has room for.
    """
    if front_end.channels > MOST_CHANNELS:
        raise ToolchainError(f"a stream has at most {MOST_CHANNELS} channels, found {front_end.channels}.")
    parts = _audio(front_end) if isinstance(front_end, AudioWindow) else _samples(front_end)
    return f"""/* Generated; do not edit. */
#include <string.h>

#include "net.h"
#include "stream.h"

{parts}
const uint32_t stream_channels = STREAM_CHANNELS, stream_block = {max(1, MOST_CHANNELS // front_end.channels)};

/* A section of its own, so that a linker script can put it where the network's input lies. */
static int8_t stream_window[NET_INPUT_BYTES] __attribute__((section(".net_input"), aligned(8)));
static uint32_t seen; /* rows or columns, up to a whole window */

{(_C / f"{front_end.kind}.c").read_text()}
int stream_result(int8_t *scores) {{
    if (seen < LENGTH) return 0;
    net((void *)stream_window, (void *)scores);
    return 1;
}}

const int8_t *stream_input(void) {{
    return stream_window;
}}
"""


def _audio(window: AudioWindow) -> str:
    spectrum, made = window.spectrum, tables(window.spectrum)
    coefficients = spectrum.coefficients if spectrum.features == "mfcc" else 0
    numbers = {
        "FRAME": spectrum.frame,
        "HOP": spectrum.hop,
        "FFT": spectrum.fft,
        "MELS": spectrum.mels,
        "COEFFICIENTS": coefficients,
        "WIDTH": spectrum.width,
        "LENGTH": window.frames,
        "GAIN": made.gain,
        "BIAS": f"{made.bias}ll",
    }
    arrays = [
        _array("int16_t", "hann", made.window),
        _array("int16_t", "cosine", made.twiddles[0]),
        _array("int16_t", "sine", made.twiddles[1]),
        _array("uint16_t" if spectrum.mels > 255 else "uint8_t", "upper_band", made.upper_band),
        _array("uint8_t", "rising", made.rising),
        _array("uint16_t", "logarithms", made.logarithms),
    ]
    if coefficients:
        arrays.append(_array("int32_t", f"cosines[{coefficients}]", made.cosines.T.reshape(-1), spectrum.mels))
    return _defines(numbers) + "".join(arrays)


def _samples(window: SampleWindow) -> str:
    arrays = _array("int32_t", "factors", window.factors) + _array("int64_t", "offsets", window.offsets)
    return _defines({"CHANNELS": window.channels, "LENGTH": window.length}) + arrays


def _defines(numbers: dict[str, object]) -> str:
    return "".join(f"#define {name} {value}\n" for name, value in numbers.items()) + "\n"


def _array(c_type: str, name: str, values: Iterable[int], row: int = 0) -> str:
    """Return a constant array; with `row` one of two dimensions, whose rows are that long."""
    listed = [str(int(value)) for value in np.asarray(values).tolist()]
    width = row or _LINE
    lines = [", ".join(listed[start : start + width]) for start in range(0, len(listed), width)]
    body = ",\n    ".join(f"{{{line}}}" if row else line for line in lines)
    return f"static const {c_type} {name}[{row or len(listed)}] = {{\n    {body}\n}};\n"
