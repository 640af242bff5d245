"""The page of an arena's run: J against attempts for each setting, success rates, tool calls, a whole conversation."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from automcu_ray.core.cost import Cost, total
from automcu_ray.problem.arena import MEANINGS, ArenaTask
from automcu_ray.records.attempt import Attempt, Observation, score
from automcu_ray.records.events import AttemptMade, AttemptObserved
from automcu_ray.records.journal import Repository
from automcu_ray.reports.pages import template
from automcu_ray.reports.plots import CHOSEN, REFUSED, TRAINED, new_axes, to_svg

_COLORS = {"score": TRAINED, "doc": REFUSED, "hil": CHOSEN}
_TURN_CHARS = 4000


class Course(NamedTuple):
    """How the attempts of one setting went: their journal, and the folder that keeps them."""

    setting: str
    journal: Repository
    kept: Path

    @property
    def observations(self) -> list[Observation]:
        """The newest observation of each attempt."""
        newest = {event.observation.attempt: event.observation for event in self.journal.all(AttemptObserved)}
        return list(newest.values())

    @property
    def made(self) -> dict[int, Attempt]:
        """What the agent did, by attempt."""
        return {event.attempt.number: event.attempt for event in self.journal.all(AttemptMade)}

    @property
    def spent(self) -> Cost:
        """What agent and judge have cost, for attempts that had to be judged again, too."""
        judged = total(event.observation.judge_cost for event in self.journal.all(AttemptObserved))
        return total(one.cost for one in self.made.values()) + judged

    @property
    def score(self) -> tuple[float, int]:
        """Best J and attempts."""
        return score(self.observations)


def write_report(path: Path, task: ArenaTask, model: str, courses: Sequence[Course], *, judge: str = "") -> None:
    """Write report.html; whatever agents, boards and the judge said stands in it as text."""
    page = template("arena.html.j2").render(
        task=task,
        model=model,
        judge=judge,
        meaning=MEANINGS[task.objective],
        figure=Markup(figure(task, courses)),
        summary=[_summary(course) for course in courses],
        courses=[(course.setting, _rows(course), conversation(course)) for course in courses],
    )
    path.write_text(page, encoding="utf-8")


def _summary(course: Course) -> list[str]:
    """Return a setting's row: best J, when, success rate, tool calls an attempt, refused, tokens, dollars."""
    best, attempts = course.score
    valid = [one for one in course.observations if one.valid]
    first = min((one.attempt for one in valid), default=None)
    made = list(course.made.values())
    calls, refused = sum(one.tool_calls for one in made), sum(len(one.refused) for one in made)
    spent = course.spent
    return [
        course.setting,
        "none" if math.isinf(best) else f"{best:g}",
        str(attempts),
        "-" if first is None else str(first),
        f"{100 * len(valid) / attempts:.0f} %" if attempts else "-",
        f"{calls / len(made):.1f}" if made else "-",
        str(refused),
        str(spent.tokens),
        f"{spent.usd:.4f}",
    ]


def _rows(course: Course) -> list[dict[str, Any]]:
    rows = []
    for one in course.observations:
        did = course.made.get(one.attempt)
        figures = [f"{name} {value:g}" for name, value in one.figures if value is not None]
        verdict = [f"{one.verdict.verdict}: {one.verdict.reason}"] if one.verdict else []
        outcome = one.infrastructure and f"not judged: {one.infrastructure}"
        rows.append(
            {
                "attempt": one.attempt,
                "outcome": outcome or (f"{one.objective:g}" if one.objective is not None else "not valid"),
                "checks": [
                    *(f"{check.name}: {'pass' if check.passed else check.detail or 'no'}" for check in one.checks),
                    *verdict,
                ],
                "figures": ", ".join(figures),
                "calls": did.tool_calls if did else 0,
                "refused": did.refused if did else (),
                "sha256": one.sha256[:12],
                "serial": one.serial[-3:],
            }
        )
    return rows


def conversation(course: Course) -> list[dict[str, str]]:
    """Return the conversation of the best attempt, or of the last one where none is valid."""
    observed = course.observations
    valid = [one for one in observed if one.objective is not None]
    best = min(valid, key=lambda one: one.objective or 0.0, default=observed[-1] if observed else None)
    path = course.kept / f"iteration_{best.attempt}" / "conversation.jsonl" if best else None
    if path is None or not path.is_file():
        return []
    turns = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [{"role": turn["role"], "content": _clip(turn["content"])} for turn in turns]


def _clip(text: str) -> str:
    return text if len(text) <= _TURN_CHARS else f"{text[:_TURN_CHARS]}\n[{len(text) - _TURN_CHARS} more characters]"


def figure(task: ArenaTask, courses: Sequence[Course]) -> str:
    """Return the best J so far against attempts, a line a setting; a point is a valid attempt."""
    drawn, axes = new_axes("attempts", task.objective.replace("_", " "))
    axes.set_xlim(0.5, task.attempts + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for course in courses:
        valid = [(one.attempt, one.objective) for one in course.observations if one.objective is not None]
        color = _COLORS.get(course.setting, CHOSEN)
        axes.scatter([x for x, _ in valid], [y for _, y in valid], s=18, color=color)
        best, xs, ys = math.inf, [], []
        for x, y in valid:
            best = min(best, y)
            xs.append(x)
            ys.append(best)
        axes.step([*xs, task.attempts] if xs else [], [*ys, best] if xs else [], where="post", color=color,
                  label=course.setting if xs else f"{course.setting}: none valid")  # fmt: skip
    if courses:
        axes.legend()
    return to_svg(drawn, f"The best {task.objective} of the valid artifacts so far, against attempts.")
