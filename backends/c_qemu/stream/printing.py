"""`stream.c` and `stream.h`: a front end's constants before the C that uses them."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from automcu_ray.core.errors import ToolchainError
from automcu_ray.signals.front_end import AudioWindow, SampleWindow
from automcu_ray.signals.spectrum import tables

STATES = 2  # windows under way at once: each begins in the middle of the one before
_C = Path(__file__).parent / "c"
_LINE = 20  # numbers
MOST_CHANNELS = 32  # firmware/main.c has room for so many values


def stream_header(front_end: AudioWindow | SampleWindow, *, steps: bool = False) -> str:
    """Return `stream.h`; `steps` as for `stream_source`."""
    units, each = "", "the window"
    kept = """The window of the
 * last STREAM_SPAN samples is kept as the network's input; it moves on by STREAM_STEP."""
    window = "const int8_t *stream_input(void); /* the window, as the network reads it */"
    if steps:
        window = ""
        each = "the last window that is whole"
        kept = """A window of
 * STREAM_SPAN samples begins in the middle of the one before, and takes a step every STREAM_STEP samples."""
    if isinstance(front_end, SampleWindow):
        listed = ", ".join(f"{value!r}f" for value in front_end.units_per_count)
        units = f"#define STREAM_UNITS_PER_COUNT {{{listed}}} /* a channel's physical unit for each count */\n"
    return f"""/* Samples in, answers out: needs net.c. Generated; do not edit.
 *
 * A sample is STREAM_CHANNELS values of 16 bits beside each other, STREAM_RATE_HZ times a second. {kept}
 * Nothing is allocated.
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
int stream_result(int8_t *scores); /* 1 and the network's answer to {each}; 0 while too little has been fed */
{window}

#ifdef __cplusplus
}}
#endif

#endif
"""


def stream_source(front_end: AudioWindow | SampleWindow, *, steps: bool = False) -> str:
    """Return `stream.c`; with `steps` it keeps the network's states in place of the window.

    Raises:
        ToolchainError: more channels than the harness has room for, or windows that have no middle.
    """
    if front_end.channels > MOST_CHANNELS:
        raise ToolchainError(f"a stream has at most {MOST_CHANNELS} channels, found {front_end.channels}.")
    length = front_end.steps
    parts = _audio(front_end, steps) if isinstance(front_end, AudioWindow) else _samples(front_end, steps)
    kept, room = "window.c", "NET_INPUT_BYTES"
    if steps:
        if length % STATES:
            raise ToolchainError(
                f"a stream by steps wants a window of an even number of steps, found {length}: change dataset.seconds "
                "by one step, or leave backend.stream at window."
            )
        kept, room = "steps.c", f"NET_INPUT_BYTES / {length}"
        parts = _defines({"STEPS": length, "STATES": STATES}) + parts
    return f"""/* Generated; do not edit. */
#include <string.h>

#include "net.h"
#include "stream.h"

{parts}
const uint32_t stream_channels = STREAM_CHANNELS, stream_block = {max(1, MOST_CHANNELS // front_end.channels)};

/* A section of its own, so that a linker script can put it where the network's input lies. */
static int8_t stream_window[{room}] __attribute__((section(".net_input"), aligned(8)));

{(_C / kept).read_text()}
{(_C / f"{front_end.kind}.c").read_text()}"""


def _audio(window: AudioWindow, steps: bool) -> str:
    spectrum, made = window.spectrum, tables(window.spectrum)
    coefficients = spectrum.coefficients if spectrum.features == "mfcc" else 0
    numbers = {
        "FRAME": spectrum.frame,
        "HOP": spectrum.hop,
        "FFT": spectrum.fft,
        "MELS": spectrum.mels,
        "COEFFICIENTS": coefficients,
        "WIDTH": spectrum.width,
        "LENGTH": 1 if steps else window.frames,
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


def _samples(window: SampleWindow, steps: bool) -> str:
    arrays = _array("int32_t", "factors", window.factors) + _array("int64_t", "offsets", window.offsets)
    return _defines({"CHANNELS": window.channels, "LENGTH": 1 if steps else window.length}) + arrays


def _defines(numbers: dict[str, object]) -> str:
    return "".join(f"#define {name} {value}\n" for name, value in numbers.items()) + "\n"


def _array(c_type: str, name: str, values: Iterable[int], row: int = 0) -> str:
    """Return a constant array; with `row` one of two dimensions, whose rows are that long."""
    listed = [str(int(value)) for value in np.asarray(values).tolist()]
    width = row or _LINE
    lines = [", ".join(listed[start : start + width]) for start in range(0, len(listed), width)]
    body = ",\n    ".join(f"{{{line}}}" if row else line for line in lines)
    return f"static const {c_type} {name}[{row or len(listed)}] = {{\n    {body}\n}};\n"
