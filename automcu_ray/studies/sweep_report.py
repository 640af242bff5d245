"""The results of a sweep for people: a Markdown table, and one HTML page with anytime curves."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from automcu_ray.core.learning import Learning
from automcu_ray.problem.target import BYTES_PER_KB
from automcu_ray.reports.pages import template
from automcu_ray.studies.anytime_curves import CANDIDATES, curves_figure
from automcu_ray.studies.sweep import Sweep
from automcu_ray.studies.sweep_statistics import Cost, Curve, RunResult, anytime, anytime_by, holm, paired_p, spread

NOTHING = "-"
RULES = "no language model took part: proposals came from rules (engine 'offline', or 'simulated')"
HYPERVOLUME = (
    "Hypervolume: of all combinations of {0} (0 to 1), RAM and Flash (0 to their limits) the share that some "
    "trained network of a run is at least as good as in all three; 1 would be perfect {0} for nothing."
)
_AXES: dict[str, Cost] = {"seconds": "seconds", "tokens": "tokens", "US dollars": "usd"}


class Cell(NamedTuple):
    """Mean and spread over seeds as text, and the p-value against the baseline."""

    text: str
    p: float | None = None

    def __str__(self) -> str:
        return self.text if self.p is None else f"{self.text} (p {self.p:.2g})"


class Column(NamedTuple):
    """A figure of a run; None where it was not measured."""

    head: str
    of: Callable[[RunResult], float | None]
    digits: int


class Grid(NamedTuple):
    """A table: its title, its heads, its rows."""

    title: str
    head: list[str]
    rows: list[list[Cell]]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _kb(size: int | None) -> float | None:
    return None if size is None else size / BYTES_PER_KB


def _by_engine(run: RunResult) -> int | None:
    found = run.metrics
    return found.by_engine if found.tokens or found.by_engine else None  # others have asked none


_TEST = Column("test %", lambda run: _percent(run.test_accuracy), 2)
_VALIDATION = Column("best validation %", lambda run: _percent(run.metrics.best), 2)
_FIRST = Column("first ask validation %", lambda run: _percent(_first(run)), 2)
_COLUMNS = (
    Column("RAM KB", lambda run: _kb(run.ram_bytes), 1),
    Column("Flash KB", lambda run: _kb(run.flash_bytes), 1),
    Column("hypervolume", lambda run: run.metrics.hypervolume, 3),
    Column("feasible at first ask %", lambda run: _percent(run.metrics.feasible_at_first_ask), 1),
    Column("failed proposals %", lambda run: _percent(run.metrics.failure_rate), 1),
    Column("failed calls", lambda run: run.metrics.failed_calls if run.metrics.calls else None, 1),
    Column("trained", lambda run: run.metrics.trained, 1),
    Column("distinct", lambda run: run.metrics.distinct, 1),
    Column("by engine", _by_engine, 1),
    Column("tokens", lambda run: run.metrics.tokens or None, 0),
    Column("US dollars", lambda run: run.metrics.usd or None, 4),
    Column("seconds", lambda run: run.seconds, 1),
)


def _first(run: RunResult) -> float | None:
    return run.metrics.anytime[0] if run.metrics.anytime else None


def _of_metric(metric: str) -> tuple[Column, Column, Column]:
    """Return the columns of test, best validation and first ask: an accuracy in percent, others in their own unit."""
    if metric == "accuracy":
        return _TEST, _VALIDATION, _FIRST

    def value(run: RunResult, score: float | None) -> float | None:
        return None if score is None else run.learning.value_of(score)

    return (
        Column(f"test {metric}", lambda run: run.tested, 4),
        Column(f"best validation {metric}", lambda run: value(run, run.metrics.best), 4),
        Column(f"first ask validation {metric}", lambda run: value(run, _first(run)), 4),
    )


def grids(sweep: Sweep, results: Sequence[RunResult]) -> list[Grid]:
    """Return the tables: of several cases an overview first, then one table a case with all its figures."""
    by_case = {case.label: [one for one in results if one.case == case.label] for case in sweep.cases}
    tables = [_case(sweep, label, found) for label, found in by_case.items() if found]
    return [_overview(sweep, by_case), *tables] if len(tables) > 1 else tables


def notes(sweep: Sweep, results: Sequence[RunResult]) -> list[str]:
    """Return what has to be said about the tables."""
    test = f"p: Wilcoxon's signed-rank test against {sweep.baseline}, paired by seed, corrected by Holm for the arms"
    lines = [f"Mean ± standard deviation over seeds; {test} of a case; none where fewer than five pairs differ."]
    ruled = [arm.label for arm in sweep.arms if any(one.by_rules for one in results if one.arm == arm.label)]
    measured = {one.learning.score_name for one in results if one.metrics.hypervolume is not None}
    volume = [HYPERVOLUME.format(" or ".join(sorted(measured)))] if measured else []
    return [*lines, *volume, *([f"{', '.join(ruled)}: {RULES}."] if ruled else []), *sweep.notes]


def write_table(path: Path, sweep: Sweep, results: Sequence[RunResult]) -> str:
    """Write the tables as Markdown; return the first one."""
    texts = []
    for grid in grids(sweep, results):
        lines = [f"| {' | '.join(grid.head)} |", f"|{'---|' * len(grid.head)}"]
        lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in grid.rows]
        texts.append("\n".join([f"## {grid.title}", "", *lines, ""]))
    said = "\n".join([*(f"- {line}" for line in notes(sweep, results)), ""])
    path.write_text("\n".join([f"# {sweep.title}", "", *texts, said]), encoding="utf-8")
    return f"{texts[0]}\n{said}"


def write_page(path: Path, sweep: Sweep, results: Sequence[RunResult]) -> None:
    """Write the page: the tables, and for each case the best score so far against candidates and what they cost."""
    figures = []
    for case in sweep.cases:
        found = [result for result in results if result.case == case.label]
        by_axis: dict[str, dict[str, Curve | None]] = {CANDIDATES: {}}
        for arm in sweep.arms:
            mine = [result for result in found if result.arm == arm.label]
            by_axis[CANDIDATES][arm.label] = anytime(mine)
            for axis, cost in _AXES.items():
                if cost != "seconds" or any(result.metrics.train_seconds for result in found):  # of look-ups: nothing
                    by_axis.setdefault(axis, {})[arm.label] = anytime_by(mine, cost)
        for axis, curves in by_axis.items():
            if known := {arm: curve for arm, curve in curves.items() if curve is not None}:
                figures.append((case.label, Markup(curves_figure(known, axis, _learning(found).score_name))))
    page = template("sweep.html.j2").render(
        sweep=sweep, grids=grids(sweep, results), figures=figures, notes=notes(sweep, results)
    )
    path.write_text(page, encoding="utf-8")


def _overview(sweep: Sweep, by_case: dict[str, list[RunResult]]) -> Grid:
    chief = {case: _chief(found) for case, found in by_case.items()}
    head = ["searcher", *(f"{case}, {chief[case].head}" for case in by_case)]
    tested = {case: _tested(sweep, found, chief[case]) for case, found in by_case.items()}
    rows = [[Cell(arm.label), *(tested[case][arm.label] for case in by_case)] for arm in sweep.arms]
    for known in sweep.published:
        texts = [f"{known.values[case]:.2f}" if case in known.values else NOTHING for case in by_case]
        rows.append([Cell(f"{known.label} ({known.source})"), *map(Cell, texts)])
    return Grid("Overview", head, rows)


def _case(sweep: Sweep, case: str, results: Sequence[RunResult]) -> Grid:
    """Return the table of one case, without the columns that nobody measured."""
    chief = _chief(results)
    every = (*_of_metric(_learning(results).metric), *_COLUMNS)
    columns = [column for column in every if any(column.of(result) is not None for result in results)]
    tested = _tested(sweep, results, chief)
    rows = []
    for arm in sweep.arms:
        mine = [result for result in results if result.arm == arm.label]
        cells = [tested[arm.label] if column.head == chief.head else _spread(column, mine) for column in columns]
        failed = sum(result.failed or result.metrics.best is None for result in mine)
        rows.append([Cell(arm.label), *cells, Cell(f"{failed} of {len(mine)}")])
    for known in sweep.published:
        values = [known.values.get(case if column.head == chief.head else column.head) for column in columns]
        texts = [NOTHING if value is None else f"{value:.2f}" for value in values]
        rows.append([Cell(f"{known.label} ({known.source})"), *map(Cell, texts), Cell(NOTHING)])
    return Grid(case, ["searcher", *(column.head for column in columns), "runs without a network"], rows)


def _chief(results: Sequence[RunResult]) -> Column:
    """Return the figure that arms are compared by: of the test, or of validation where nobody read the test set."""
    test, validation, _ = _of_metric(_learning(results).metric)
    return test if any(result.tested is not None for result in results) else validation


def _learning(results: Sequence[RunResult]) -> Learning:
    """Return what the networks of one case learn."""
    return results[0].learning if results else Learning()


def _spread(column: Column, results: Sequence[RunResult]) -> Cell:
    found = spread([value for result in results if (value := column.of(result)) is not None])
    if found is None:
        return Cell(NOTHING)
    deviation = "" if found.deviation is None else f" ± {found.deviation:,.{column.digits}f}"
    return Cell(f"{found.mean:,.{column.digits}f}{deviation}")


def _tested(sweep: Sweep, results: Sequence[RunResult], column: Column) -> dict[str, Cell]:
    """Return the cells of one case by arm, with their p-values against the baseline."""
    values: dict[str, dict[int, float]] = {arm.label: {} for arm in sweep.arms}
    for result in results:
        if (value := column.of(result)) is not None:
            values[result.arm][result.seed] = value
    others = {arm: ours for arm, ours in values.items() if arm != sweep.baseline}
    raw = {arm: p for arm, ours in others.items() if (p := paired_p(ours, values[sweep.baseline])) is not None}
    corrected = holm(raw)
    return {
        arm: _spread(column, [one for one in results if one.arm == arm])._replace(p=corrected.get(arm))
        for arm in values
    }
