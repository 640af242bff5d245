"""The results of a sweep for people: a Markdown table, and one HTML page with anytime curves."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from automcu_ray import plots
from automcu_ray.outcomes import Outcome, anytime, paired_p, spread
from automcu_ray.sweep import Sweep

NOTHING = "-"


class Cell(NamedTuple):
    """Mean and spread over seeds as text, and the p-value against the baseline."""

    text: str
    p: float | None = None

    def __str__(self) -> str:
        return self.text if self.p is None else f"{self.text} (p {self.p:.2g})"


def table(sweep: Sweep, outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[Cell]]]:
    """Return the head and the rows: test accuracy in percent by arm and case, then what it took."""
    cases = [case.label for case in sweep.cases]
    head = ["searcher", *(f"{case}, test %" for case in cases)]
    head += ["feasible at first ask, %", "distinct", "tokens", "seconds", "runs"]
    rows = []
    for arm in sweep.arms:
        mine = [outcome for outcome in outcomes if outcome.arm == arm.label]
        rows.append([Cell(arm.label), *(_accuracy(sweep, outcomes, arm.label, case) for case in cases), *_effort(mine)])
    for known in sweep.published:
        accuracies = [Cell(f"{known.values[case]:.2f}") if case in known.values else Cell(NOTHING) for case in cases]
        rows.append([Cell(f"{known.label} ({known.source})"), *accuracies, *[Cell(NOTHING)] * 5])
    return head, rows


def write_table(path: Path, sweep: Sweep, outcomes: Sequence[Outcome]) -> str:
    """Write the table as Markdown; return it."""
    head, rows = table(sweep, outcomes)
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    test = f"p: Wilcoxon signed-rank test against {sweep.baseline}, paired by seed"
    note = f"Mean and standard deviation over seeds; {test}."
    text = "\n".join([f"# {sweep.title}", "", *lines, "", note, ""])
    path.write_text(text, encoding="utf-8")
    return text


def write_page(path: Path, sweep: Sweep, outcomes: Sequence[Outcome]) -> None:
    """Write the page: the table, and for each case the best accuracy so far against trained candidates."""
    figures = []
    for case in sweep.cases:
        curves = {
            arm.label: anytime([o for o in outcomes if (o.arm, o.case) == (arm.label, case.label)])
            for arm in sweep.arms
        }
        drawn = {label: curve for label, curve in curves.items() if curve is not None}
        figures.append((case.label, Markup(plots.curves_figure(drawn))))
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined
    )
    head, rows = table(sweep, outcomes)
    page = environment.get_template("sweep.html.j2").render(sweep=sweep, head=head, rows=rows, figures=figures)
    path.write_text(page, encoding="utf-8")


def _accuracy(sweep: Sweep, outcomes: Sequence[Outcome], arm: str, case: str) -> Cell:
    ours, base = (_by_seed(outcomes, label, case) for label in (arm, sweep.baseline))
    found = spread(list(ours.values()))
    if found is None:
        return Cell(NOTHING)
    deviation = "" if found.deviation is None else f" ± {found.deviation:.2f}"
    return Cell(f"{found.mean:.2f}{deviation}", paired_p(ours, base) if arm != sweep.baseline else None)


def _by_seed(outcomes: Sequence[Outcome], arm: str, case: str) -> dict[int, float]:
    mine = [outcome for outcome in outcomes if (outcome.arm, outcome.case) == (arm, case)]
    return {o.seed: 100 * o.test_accuracy for o in mine if o.test_accuracy is not None}


def _effort(outcomes: Sequence[Outcome]) -> list[Cell]:
    asked = (outcome.metrics.feasible_at_first_ask for outcome in outcomes)
    found = (
        spread([100 * share for share in asked if share is not None]),
        spread([float(outcome.metrics.distinct) for outcome in outcomes]),
        spread([float(outcome.metrics.tokens) for outcome in outcomes]),
        spread([outcome.seconds for outcome in outcomes]),
    )
    cells = [Cell(NOTHING if one is None else f"{one.mean:,.1f}") for one in found]
    return [*cells, Cell(str(len(outcomes)))]
