"""The figures of a report: SVG text that stands inside the page and needs nothing from outside."""

import io
import re
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter

from automcu_ray.core.cost import Cost
from automcu_ray.core.feasibility import Rung
from automcu_ray.problem.target import BYTES_PER_KB
from automcu_ray.records.record import Finalist, Record
from automcu_ray.sizing.near_misses import TITLES, Resource, known_size

INK, MUTED, GRID, PAGE = "#1f2933", "#7b8794", "#e4e7eb", "#fefefe"
TRAINED, CHOSEN, REFUSED, LIMIT = "#6b9ac4", "#0b3d66", "#d9730d", "#b91c1c"
_OF_THE_PAGE = {  # so that they follow its day and night (templates/theme.css.j2)
    PAGE: "var(--page)", INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--line)",
    TRAINED: "var(--mid)", CHOSEN: "var(--deep)", REFUSED: "var(--orange)", LIMIT: "var(--red)",
}  # fmt: skip
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "automcu_ray",
    "font.size": 10,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
}
_SIZE_IN = (5.4, 3.3)
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}
_FAR = 2.5  # a limit further out than this many times the largest network is named, not drawn

# No answer came, the rungs in their order, and what else ends a proposal before it is trained.
_STOPS = {
    "engine": "no reply",
    Rung.SCHEMA: "schema",
    Rung.SHAPES: "shapes",
    "duplicate": "duplicates",
    Rung.ANALYTIC: "analytic",
    Rung.CONVERT: "convert",
    Rung.LINK: "link",
    Rung.EMULATE: "emulate",
    Rung.VENDOR: "vendor tool",
    Rung.BOARD: "board",
    "failed": "failed",
}
_ONLY_WHERE_SEEN = ("engine", Rung.EMULATE, Rung.VENDOR, Rung.BOARD)


class Stage(NamedTuple):
    """One row of the funnel: how many proposals came this far, and how many of them it stopped."""

    label: str
    reached: int
    stopped: int


def stages(records: Sequence[Record], proposals: int, finalists: int) -> list[Stage]:
    """Return the funnel's rows from all proposals down to the finalists."""
    stopped = Counter(_stop(record) for record in records)
    reached, rows = proposals, [Stage("proposals", proposals, 0)]
    for stop, label in _STOPS.items():
        if stopped[stop] or stop not in _ONLY_WHERE_SEEN:
            rows.append(Stage(label, reached, stopped[stop]))
            reached -= stopped[stop]
    if proposals > len(records):
        rows.append(Stage("still open", reached, proposals - len(records)))
    return [*rows, Stage("trained", stopped["ok"], 0), Stage("finalists", finalists, 0)]


def size_figure(
    resource: Resource,
    limit: int | None,
    records: Sequence[Record],
    finalists: Sequence[Finalist],
    score: str = "accuracy",
) -> str:
    """Return validation accuracy against a size or the instructions; refused candidates lie at the bottom, hollow."""
    title, counted = TITLES[resource], resource == "instructions"
    unit, one = ("M", 1_000_000) if counted else ("KB", BYTES_PER_KB)
    sizes = {record.candidate.number: known_size(record, resource) for record in records}
    trained = [
        (size.amount / one, record.accuracy, record.candidate.number)
        for record in records
        if record.scored and (size := sizes[record.candidate.number])
    ]
    refused = [size for r in records if r.status == "infeasible" and (size := sizes[r.candidate.number])]
    label = "instructions of an inference, millions" if counted else f"{title} of the firmware, KB"
    figure, axes = new_axes(label, f"validation {score} (proxy)")
    beyond = [size.amount / one for size in refused]
    xs, ys = [x for x, _, _ in trained], [y for _, y, _ in trained]
    end = None if limit is None else limit / one
    largest = max([*xs, *beyond]) if xs else max([*beyond, *([] if end is None else [end])], default=1.0)
    if end is None:
        right = largest * 1.08
    elif end > largest * _FAR:
        axes.text(0.99, 0.94, f"limit {end:,.0f} {unit} →", transform=axes.transAxes, ha="right", color=LIMIT)
        right = largest * 1.3
    else:
        axes.axvline(end, color=LIMIT, linestyle="--", linewidth=1.2, label=f"limit {end:g} {unit}")
        right = min(max(end, largest) * 1.08, end * 2)
    axes.set_xlim(0, right)
    draw_accuracies(axes, ys, room_below=bool(refused), percent=score == "accuracy")
    if trained:
        axes.scatter(xs, ys, s=22, color=TRAINED, label="trained")
    _draw_refused(axes, [(size.amount / one, size.at_least) for size in refused], end, right)
    _draw_finalists(axes, {number: (x, y) for x, y, number in trained}, finalists)
    said = "there is no limit" if end is None else f"the limit is {end:g} {unit}"
    return to_svg(figure, f"Validation {score} against {title}; {said}.")


def anytime_figure(records: Sequence[Record], finalists: Sequence[Finalist], score: str = "accuracy") -> str:
    """Return the best accuracy so far against trained candidates, in the order in which they finished."""
    trained = [record for record in records if record.scored]
    accuracies, order = [record.accuracy for record in trained], range(1, len(trained) + 1)
    figure, axes = new_axes("trained candidates", f"validation {score} (proxy)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0.5, max(2, len(trained)) + 0.7)
    draw_accuracies(axes, accuracies, percent=score == "accuracy")
    if trained:
        best = list(accumulate(accuracies, max))
        axes.step([*order, len(trained) + 0.7], [*best, best[-1]], where="post", color=CHOSEN, label="best so far")
        axes.scatter(order, accuracies, s=22, color=TRAINED, label="trained")
    places = {r.candidate.number: (float(x), r.accuracy) for x, r in zip(order, trained, strict=True)}
    _draw_finalists(axes, places, finalists)
    return to_svg(figure, f"Best validation {score} after each of {len(trained)} trained candidates.")


def learning_figure(finalists: Sequence[Finalist], score: str = "accuracy") -> str:
    """Return the float validation accuracy of finalists after each epoch; dashed where they train with rounding."""
    figure, axes = new_axes("epochs of full training", f"validation {score} (float)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    curves = [finalist for finalist in finalists if finalist.epochs]
    scores = [epoch.val_accuracy for finalist in curves for epoch in finalist.epochs]
    draw_accuracies(axes, scores, percent=score == "accuracy")
    for at, finalist in enumerate(curves):
        color = f"C{at % 10}"
        in_float = [(one.epoch, one.val_accuracy) for one in finalist.epochs if not one.rounded]
        rounded = [(one.epoch, one.val_accuracy) for one in finalist.epochs if one.rounded]
        axes.plot(*zip(*in_float, strict=True), color=color, marker=".", label=f"#{finalist.number}")
        if rounded:
            axes.plot(*zip(*in_float[-1:], *rounded, strict=True), color=color, marker=".", linestyle="--")
    return to_svg(figure, f"Validation {score} of {len(curves)} finalists after each epoch of full training.")


def funnel_figure(rows: Sequence[Stage]) -> str:
    """Return how many proposals came to each question, and how many it stopped."""
    figure, axes = new_axes("proposals", "")
    most = max(1, rows[0].reached)
    for y, row in enumerate(rows):
        last = row.label in ("proposals", "trained", "finalists")
        passed = row.reached - row.stopped
        axes.barh(y, passed, height=0.66, color=CHOSEN if last else TRAINED)
        axes.barh(y, row.stopped, left=passed, height=0.66, color=REFUSED)
        text = f"{row.reached}" if last else f"{row.stopped} stopped" if row.stopped else "none"
        axes.text(row.reached + most * 0.015, y, text, va="center", fontsize=9)
    _draw_rows(axes, [row.label for row in rows], most * 1.2, integer=True)
    stops = ", ".join(f"{row.stopped} at {row.label}" for row in rows if row.stopped)
    return to_svg(figure, f"{rows[0].reached} proposals, of which stopped: {stops or 'none'}.")


def cost_figure(cost: Cost, absent: dict[str, str]) -> str:
    """Return the seconds of each kind; what `absent` says where a kind took no part."""
    kinds = {
        "LLM": cost.llm_seconds,
        "toolchain CPU": cost.toolchain_cpu_seconds,
        "training": cost.train_seconds,
        "board": cost.board_seconds,
    }
    figure, axes = new_axes("seconds, summed over parallel workers", "")
    most = max(*kinds.values(), 1e-3)
    for y, (kind, seconds) in enumerate(kinds.items()):
        axes.barh(y, seconds, height=0.55, color=TRAINED)
        text = absent.get(kind) or (f"{seconds:,.1f} s" if seconds else "not measured")
        axes.text(seconds + most * 0.015, y, text, va="center", fontsize=9, color=INK if seconds else MUTED)
    _draw_rows(axes, list(kinds), most * 1.25)
    spent = ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in kinds.items() if seconds)
    return to_svg(figure, f"Seconds by kind: {spent or 'none measured'}.")


def _stop(record: Record) -> str:
    """Return the key of `_STOPS` that ended a candidate, or "ok"."""
    if record.status in ("ok", "duplicate", "failed"):
        return record.status
    violations = record.candidate.violations or (record.feasibility.violations if record.feasibility else ())
    if any(violation.resource == "engine" for violation in violations):
        return "engine"
    return record.feasibility.rung if record.feasibility else violations[0].rung if violations else "failed"


def new_axes(x_label: str, y_label: str, size_in: tuple[float, float] = _SIZE_IN) -> tuple[Figure, Axes]:
    """Return a figure of this size with its axes, in the style of the pages."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size_in, layout="constrained")
        axes = figure.add_subplot()
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, axes


def draw_accuracies(axes: Axes, scores: Sequence[float], *, room_below: bool = False, percent: bool = True) -> None:
    """Fit the y axis to accuracies, shares of 1; `room_below` leaves a band for what has none."""
    if percent:
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    if not scores:
        axes.set_yticks([])
        axes.set_ylim(0, 1)
        axes.text(0.5, 0.5, "nothing trained yet", transform=axes.transAxes, ha="center", color=MUTED)
        return
    low, high = min(scores), max(scores)
    span = max(high - low, 0.02)
    axes.set_ylim(low - span * (0.28 if room_below else 0.1), high + span * 0.14)
    if room_below:  # a band of its own: what lies there has no accuracy
        axes.set_yticks([tick for tick in axes.get_yticks() if low - span * 0.1 <= tick <= high + span * 0.14])
        axes.add_patch(Rectangle((0, 0), 1, 0.09, transform=axes.transAxes, color=GRID, linewidth=0))


def _draw_refused(axes: Axes, sizes: Sequence[tuple[float, bool]], limit: float | None, right: float) -> None:
    """Draw sizes, each with whether it is a lower bound, as hollow marks at the bottom.

    They are orange beyond the limit, and a triangle stands for "this much or more".
    """
    for marker, name in (("o", "refused"), (">", "refused, this or more")):
        for color, over in ((MUTED, False), (REFUSED, True)):
            places = [
                min(size, right * 0.985)
                for size, at_least in sizes
                if (limit is not None and size > limit) is over
                and (at_least or size > right * 0.985) is (marker == ">")
            ]
            label = name if over else f"{name} for another reason" if marker == "o" else f"{name}, another reason"
            if places:
                hollow: dict[str, Any] = {"facecolors": "none", "edgecolors": color, "marker": marker}
                where = axes.get_xaxis_transform()
                axes.scatter(places, [0.045] * len(places), s=24, transform=where, label=label, **hollow)


def _draw_finalists(axes: Axes, places: dict[int, tuple[float, float]], finalists: Sequence[Finalist]) -> None:
    chosen = sorted((*places[one.number], one.number) for one in finalists if one.number in places)
    if chosen:
        xs, ys = [x for x, _, _ in chosen], [y for _, y, _ in chosen]
        axes.scatter(xs, ys, s=46, marker="D", color=CHOSEN, label="finalist", zorder=3)
    for at, (x, y, number) in enumerate(chosen):
        side, shift = ("right", -7) if at == 0 and len(chosen) > 1 else ("left", 7)  # neighbours keep apart
        about: dict[str, Any] = {"xytext": (shift, 4), "textcoords": "offset points", "fontsize": 9}
        about["bbox"] = {"facecolor": PAGE, "edgecolor": "none", "pad": 0.5, "alpha": 0.85}  # over lines and marks
        axes.annotate(f"#{number}", (x, y), ha=side, color=CHOSEN, **about)


def _draw_rows(axes: Axes, labels: Sequence[str], right: float, *, integer: bool = False) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, right)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=integer))
    axes.grid(visible=False, axis="y")


def to_svg(figure: Figure, description: str) -> str:
    """Return the figure as an <svg> element, in the page's colours: no prolog, no ids, for several share a page."""
    buffer = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        handles, _ = figure.axes[0].get_legend_handles_labels()
        if handles:
            figure.legend(loc="outside upper left", ncols=3, handletextpad=0.4, columnspacing=1.2)
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA, transparent=True)
    text = buffer.getvalue()
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text[text.index("<svg") :])
    text = re.sub(r'<g id="[^"]*">', "<g>", text)
    text = re.sub("|".join(_OF_THE_PAGE), lambda found: _OF_THE_PAGE[found[0]], text)
    about = f'role="img" aria-label="{description}"'  # fixed words and numbers alone: nothing to escape
    return re.sub(r'width="[^"]*" height="[^"]*"', about, text, count=1)
