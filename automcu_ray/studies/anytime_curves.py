"""The figure of a sweep: best score so far of every searcher, against candidates or what they cost."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.ticker import MaxNLocator

from automcu_ray.reports.plots import INK, draw_accuracies, new_axes, to_svg
from automcu_ray.studies.sweep_statistics import Curve

CANDIDATES = "trained candidates"
_WIDE_IN = (7.6, 4.2)
# Okabe and Ito's colours, which the colour-blind tell apart; their yellow, too pale for a line, darkened.
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", INK, "#a08c00", "#7b8794")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1)))


def curves_figure(curves: Mapping[str, Curve], x_label: str, score: str = "accuracy") -> str:
    """Return the mean best score so far against candidates or a cost: a line a label, in a band: its interval.

    Lines are told apart by colour, by dashes and by their names, which stand at their ends. What lies far below in the
    first tenth of a line is cut off, for differences are small by the end.
    """
    figure, axes = new_axes(x_label, f"best validation {score}", size_in=_WIDE_IN)
    late = ((curve, len(curve.at) // 10) for curve in curves.values())
    scores = [value for curve, at in late for value in (*curve.low[at:], *curve.high[at:])]
    draw_accuracies(axes, scores, percent=score == "accuracy")
    right = max((curve.at[-1] for curve in curves.values()), default=1.0)
    # What is spent is shown from nothing on; of candidates there is no zeroth one.
    left = min([right - 1, *(curve.at[0] for curve in curves.values())]) if x_label == CANDIDATES else 0.0
    bottom, top = axes.get_ylim()
    heights = _apart([curve.mean[-1] for curve in curves.values()], (top - bottom) * 0.055)
    for number, (label, curve) in enumerate(curves.items()):
        color, dashes = _COLORS[number % len(_COLORS)], _DASHES[number // 4 % len(_DASHES)]
        marker = "o" if len(curve.at) == 1 else None
        axes.fill_between(curve.at, curve.low, curve.high, color=color, alpha=0.12, linewidth=0)
        axes.plot(curve.at, curve.mean, color=color, linestyle=dashes, linewidth=1.6, marker=marker)
        # The name stands outside the axes, with a thin line to the end of what it names.
        end, place = (curve.at[-1], curve.mean[-1]), (right + (right - left) * 0.05, heights[number])
        thin = {"arrowstyle": "-", "color": color, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 0, "relpos": (0, 0.5)}
        axes.annotate(label, end, place, color=color, fontsize=9, va="center", annotation_clip=False, arrowprops=thin)
    axes.set_xlim(left - (right - left) * 0.02, right + (right - left) * 0.02)
    axes.set_ylim(min([bottom, *heights]), max([top, *heights]))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    return to_svg(figure, f"Best validation {score} against {x_label}, by searcher.")


def _apart(values: Sequence[float], gap: float) -> list[float]:
    """Return places near the values, at least `gap` apart and in the same order."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    places: list[float] = []
    for at in order:
        places.append(max(values[at], places[-1] + gap) if places else values[at])
    shift = sum(place - values[at] for at, place in zip(order, places, strict=True)) / max(1, len(values))
    return [places[order.index(at)] - shift for at in range(len(values))]
