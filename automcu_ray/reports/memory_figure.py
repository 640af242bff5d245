"""The figure of the arena: which buffer lies where, operator by operator."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from automcu_ray.core.memory_map import MemoryMap, PlacedBuffer
from automcu_ray.problem.target import BYTES_PER_KB
from automcu_ray.reports.plots import GRID, INK, LIMIT, REFUSED, TRAINED, new_axes, to_svg

_SIZE_IN = (10.5, 4.2)
_LETTERS_WIDE, _LETTERS_HIGH, _LINES_HIGH, _LINES_WIDE = 130, 44, 22, 60  # that fit side by side and above each other
_MOST_TICKS, _MOST_LETTERS = 40, 24


def memory_figure(found: MemoryMap) -> str:
    """Return the arena during one inference: operators from left to right, addresses upwards, a box a buffer."""
    figure, axes = new_axes("", "address in the arena, KB", size_in=_SIZE_IN)
    end = found.arena_bytes / BYTES_PER_KB
    axes.axhline(end, color=LIMIT, linestyle="--", linewidth=1.2, label="end of the arena")
    if found.fullest is not None:
        axes.axvspan(found.fullest - 0.5, found.fullest + 0.5, color=GRID, label="fullest here")
    kinds = ((False, TRAINED, "output of a layer"), (True, REFUSED, "scratch of a layer"))
    for is_scratch, color, label in kinds:
        for number, buffer in enumerate(one for one in found.buffers if one.is_scratch is is_scratch):
            about: dict[str, Any] = {"facecolor": color, "edgecolor": INK, "linewidth": 0.7, "alpha": 0.6}
            corner = (buffer.first - 0.47, buffer.start_bytes / BYTES_PER_KB)
            steps, height = buffer.last - buffer.first + 1, buffer.size_bytes / BYTES_PER_KB
            box = Rectangle(corner, steps - 0.06, height, label=None if number else label, **about)
            axes.add_patch(box)
            if not is_scratch:
                _write_name(axes, found, buffer)
    axes.set_xlim(-0.6, max(1, len(found.steps)) - 0.4)
    axes.set_ylim(0, max(1, found.arena_bytes) / BYTES_PER_KB * 1.06)
    axes.grid(visible=False, axis="x")
    shown = range(0, len(found.steps), -(-len(found.steps) // _MOST_TICKS) or 1)
    axes.set_xticks(shown, [_short(found.steps[at]) for at in shown], rotation=45, ha="right", fontsize=8)
    return to_svg(figure, f"What lies where in {end:.1f} KB, operator by operator; the table below says the same.")


def _write_name(axes: Axes, found: MemoryMap, buffer: PlacedBuffer) -> None:
    """Write into a box, along or up, which layer's output it is; where it has no room the axis below says it."""
    wide = (buffer.last - buffer.first + 1) / len(found.steps)
    name = _short(buffer.layer)
    high, letters = buffer.size_bytes / found.arena_bytes, len(name)
    middle = (buffer.start_bytes + buffer.size_bytes / 2) / BYTES_PER_KB
    about: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "clip_on": True}
    if wide * _LETTERS_WIDE >= letters and high * _LINES_HIGH >= 1:
        axes.text((buffer.first + buffer.last) / 2, middle, name, **about)
    elif high * _LETTERS_HIGH >= letters and _LINES_WIDE >= len(found.steps):
        axes.text(buffer.first, middle, name, rotation=90, **about)


def _short(layer: str) -> str:
    """Return the end of a long name, where names differ."""
    return layer if len(layer) <= _MOST_LETTERS else f"…{layer[1 - _MOST_LETTERS :]}"
