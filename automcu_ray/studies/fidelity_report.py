"""The results of a fidelity study: how well each proxy ranks, and what it costs, as a table, a page and Parquet."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from markupsafe import Markup
from matplotlib.ticker import PercentFormatter

from automcu_ray.records.rank_correlation import (
    Correlation,
    ceiling,
    kendall,
    lost_by_choice,
    repeat_deviation,
    spearman,
    sum_of_ranks,
)
from automcu_ray.records.record import Measured, Score
from automcu_ray.reports.pages import template
from automcu_ray.reports.plots import CHOSEN, INK, REFUSED, TRAINED, new_axes, to_svg
from automcu_ray.studies.fidelity import FULL, Subject

FINALISTS = 2  # the default of budget.finalists
AFFORDABLE = 0.1  # of the cost of full training
ALONE, PARAMETERS, MACS = "alone", "parameters", "MACs"
_TRUTH = (FULL, "deployed")
_FEWEST = 5  # networks: with fewer, a rank correlation says nothing
_LAST = -math.inf
_COLORS = {"deployed": CHOSEN, "float": TRAINED, "loss": REFUSED}
_FREE = 1e-5  # of full training: where the figure's logarithmic axis shows what costs nothing

_LEGEND = (
    "Spearman's and Kendall's (tau-b) correlation with the validation accuracy of the deployed network after full "
    "training, with 95 % bootstrap intervals over networks. With parameters, with MACs: Spearman of the sum of both "
    "ranks. Cost: seconds until the score is known, as a share of full training's. Lost: accuracy, where the two that "
    "rank first (alone) are trained fully. Loss: the sum of the epochs' mean training losses; less is better."
)

Scores = Mapping[int, Score]  # by network
HEAD = ("proxy", "reads", "networks", "cost %", "Spearman", "Kendall", "with parameters", "with MACs", "lost %")


class Row(NamedTuple):
    """How one score, alone or in a sum of ranks with a size, ranks `networks` networks as full training does.

    `cost` is a share of full training's seconds; `lost` is the accuracy that is lost where the two networks that rank
    first are trained fully and the better one is taken.
    """

    proxy: str
    reading: str
    fusion: str
    networks: int
    cost: float
    spearman: Correlation
    kendall: Correlation
    lost: float

    @property
    def label(self) -> str:
        """The score as people name it."""
        fused = "" if self.fusion == ALONE else f" with {self.fusion}"
        return f"{self.proxy}{f', {self.reading}' if self.reading else ''}{fused}"


class Noise(NamedTuple):
    """How far two full trainings of one network differ: networks, standard deviation, what a perfect proxy reaches."""

    networks: int
    deviation: float
    ceiling: float


def rows(subjects: Sequence[Subject], measured: Sequence[Measured]) -> list[Row]:
    """Return a row for each score that ranks networks, alone and in a sum of ranks with either size; cheapest first.

    A network whose training failed ranks last. Scores that are the same for all networks are left out.
    """
    firsts = [one for one in measured if one.repeat < 2]
    found, probes = dict[tuple[str, str], dict[int, Score]](), dict[tuple[str, str], str]()
    for one in firsts:
        for score in one.scores:
            found.setdefault((score.proxy, score.reading), {})[one.number] = score
            probes[score.proxy, score.reading] = one.probe
    failed = {(one.number, one.probe) for one in firsts if one.failure}
    full = found.get(_TRUTH, {})
    known = [subject for subject in subjects if subject.number in full or (subject.number, FULL) in failed]
    made = [_row((size, ""), ALONE, known, _of(known, size), 0.0, full) for size in (PARAMETERS, MACS)]
    for name, scores in found.items():
        if name != _TRUTH:
            tried = [one for one in known if one.number in scores or (one.number, probes[name]) in failed]
            values = [scores[one.number].value if one.number in scores else _LAST for one in tried]
            both = [one.number for one in tried if one.number in scores and one.number in full]
            cost = sum(scores[n].seconds for n in both) / max(1e-9, sum(full[n].seconds for n in both))
            made.append(_row(name, ALONE, tried, values, cost, full))
            for size in (PARAMETERS, MACS):
                made.append(_row(name, size, tried, sum_of_ranks(values, _of(tried, size)), cost, full))
    told = [row for row in made if row is not None]
    return sorted(told, key=lambda row: (row.cost, row.proxy, row.reading))


def _row(
    name: tuple[str, str], fusion: str, subjects: Sequence[Subject], values: Sequence[float], cost: float, full: Scores
) -> Row | None:
    """Return the row of a score; None where there are too few networks, or all have the same score."""
    truth = [full[one.number].value if one.number in full else 0.0 for one in subjects]
    rho, tau = spearman(values, truth), kendall(values, truth)
    if len(subjects) < _FEWEST or rho is None or tau is None:
        return None
    return Row(*name, fusion, len(subjects), cost, rho, tau, lost_by_choice(values, truth, FINALISTS))


def _of(subjects: Sequence[Subject], size: str) -> list[float]:
    return [one.parameters if size == PARAMETERS else one.macs for one in subjects]


def noise(measured: Sequence[Measured]) -> Noise | None:
    """Return what two full trainings of the same networks say; None without any."""
    by_repeat: dict[int, dict[int, float]] = {1: {}, 2: {}}
    for one in measured:
        for score in one.scores:
            if (score.proxy, score.reading) == _TRUTH:
                by_repeat[one.repeat][one.number] = score.value
    first, second = by_repeat[1], by_repeat[2]
    twice = sorted(first.keys() & second.keys())
    if len(twice) < 2:
        return None
    deviation = repeat_deviation([first[number] for number in twice], [second[number] for number in twice])
    return Noise(len(twice), deviation, ceiling(list(first.values()), deviation))


def best(found: Sequence[Row]) -> Row | None:
    """Return the row that ranks best among those of all networks that cost no more than a tenth of full training."""
    most = max((row.networks for row in found), default=0)
    affordable = [row for row in found if row.cost <= AFFORDABLE and row.networks == most]
    return max(affordable, key=lambda row: row.spearman.value, default=None)


def notes(title: str, found: Sequence[Row], measured: Sequence[Measured]) -> list[str]:
    """Return what has to be said about the table."""
    lines = [title]
    if (spread := noise(measured)) is not None:
        lines.append(
            f"Full training once more with another seed, {spread.networks} networks: standard deviation "
            f"{100 * spread.deviation:.2f} points, so a perfect proxy would reach about {spread.ceiling:.2f}."
        )
    if (top := best(found)) is not None:
        lines.append(
            f"Best at no more than a tenth of the cost: {top.label}, Spearman {_text(top.spearman)} at "
            f"{100 * top.cost:.1f} %. Chosen among {len(found)} rows after the fact: expect a little less elsewhere."
        )
    lines.append(_LEGEND)
    failures = sorted({f"{one.probe}, network {one.number}: {one.failure}" for one in measured if one.failure})
    return [*lines, *(f"Failed, so ranked last: {failure}" for failure in failures)]


def table(found: Sequence[Row]) -> list[list[str]]:
    """Return the table's rows below `HEAD`: one a score, with its fusions beside it."""
    by_name: dict[tuple[str, str], dict[str, Row]] = {}
    for row in found:
        by_name.setdefault((row.proxy, row.reading), {})[row.fusion] = row
    made = []
    for (proxy, reading), fusions in by_name.items():
        alone = fusions.get(ALONE)
        if alone is not None:
            others = [_text(fusions[size].spearman) if size in fusions else "" for size in (PARAMETERS, MACS)]
            figures = [f"{alone.networks}", f"{100 * alone.cost:.2f}", _text(alone.spearman), _text(alone.kendall)]
            made.append([proxy, reading, *figures, *others, f"{100 * alone.lost:.2f}"])
    return made


def _text(found: Correlation) -> str:
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


def write(out: Path, title: str, subjects: Sequence[Subject], measured: Sequence[Measured]) -> str:
    """Write table.md, results.parquet, scores.parquet and index.html; return the table as Markdown."""
    found = rows(subjects, measured)
    said = notes(title, found, measured)
    lines = [f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *table(found))]
    text = "\n".join([*lines, "", *(f"- {line}" for line in said), ""])
    (out / "table.md").write_text(text, encoding="utf-8")
    flat = [row._asdict() for row in found]
    for columns in flat:
        for name in ("spearman", "kendall"):
            columns[name], columns[f"{name}_low"], columns[f"{name}_high"] = columns[name]
    pq.write_table(pa.Table.from_pylist(flat), out / "results.parquet")
    sizes = {one.number: one.model_dump(include={"parameters", "macs", "depth"}) for one in subjects}
    scores = [
        {"network": one.number, **sizes[one.number], "repeat": one.repeat, **score.model_dump()}
        for one in measured
        for score in one.scores
    ]
    pq.write_table(pa.Table.from_pylist(scores), out / "scores.parquet")
    page = template("fidelity.html.j2").render(notes=said, head=HEAD, rows=table(found), figure=Markup(figure(found)))
    (out / "index.html").write_text(page, encoding="utf-8")
    return text


def figure(found: Sequence[Row]) -> str:
    """Return Spearman's correlation against cost: one point a score, hollow in a sum of ranks with the parameters."""
    figure, axes = new_axes("seconds, as a share of full training", "Spearman with full training", size_in=(7.6, 4.2))
    axes.set_xscale("log")
    axes.set_xlim(_FREE / 1.5, 1.5)
    axes.xaxis.set_major_formatter(PercentFormatter(xmax=1))
    axes.axvline(AFFORDABLE, color=INK, linestyle=":", linewidth=0.8)
    shown = [(row.reading if row.reading in _COLORS else "", row) for row in found]
    for reading, color in {**_COLORS, "": INK}.items():
        for fusion in (ALONE, PARAMETERS):
            points = [row for kind, row in shown if (kind, row.fusion) == (reading, fusion)]
            if points:
                name = reading or "untrained, size"
                label = name if fusion == ALONE else f"{name} with parameters"
                xs, ys = [max(_FREE, row.cost) for row in points], [row.spearman.value for row in points]
                face = color if fusion == ALONE else "none"
                axes.scatter(xs, ys, s=26, facecolors=face, edgecolors=color, label=label)
    if (top := best(found)) is not None:
        bar = [[top.spearman.value - top.spearman.low], [top.spearman.high - top.spearman.value]]
        axes.errorbar(
            [max(_FREE, top.cost)], [top.spearman.value], yerr=bar, color=INK, linewidth=1, capsize=3, zorder=0
        )
    return to_svg(figure, "Spearman's correlation with the accuracy after full training, against cost.")
