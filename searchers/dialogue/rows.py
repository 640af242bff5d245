"""What is known of candidates as a table for a language model: one row each, with uncertainty, changes and effects."""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from automcu_ray.core.feasibility import Estimate
from automcu_ray.networks import notation as compact
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.target import BYTES_PER_KB
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from automcu_ray.sizing.footprint import footprint
from automcu_ray.sizing.near_misses import excess
from searchers.dialogue.notations import Notation
from searchers.dialogue.record_selection import Shown, select

_Z95 = 1.96
_REASON_CHARS = 120
_PLAN_CHARS = 300
_MILLION = 1e6
_ALIKE = 0.5  # of what two lines hold together
_LOOKED_AT = 20  # candidates before one: they are many in a long run, and prompts must not wait


class Known(NamedTuple):
    """What the program knows when it asks.

    Attributes:
        task: what is searched for.
        notation: how candidates are written.
        records: what became of candidates, oldest first.
        pending: candidates under way.
        left: trainings that the budget still allows; None: no limit.
        expect: the sizes that a candidate is expected to have; None where nothing is known.
    """

    task: Task
    notation: Notation
    records: Sequence[Record] = ()
    pending: Sequence[Candidate] = ()
    left: int | None = None
    expect: Callable[[Candidate], Estimate | None] = lambda candidate: None

    @property
    def best(self) -> Record | None:
        """The trained record with the highest score; the earlier one of equals."""
        trained = [record for record in self.records if record.scored]
        return max(trained, key=lambda record: record.score, default=None)

    @property
    def numbers(self) -> Mapping[str, Record]:
        """The first record of each network, by hash."""
        found: dict[str, Record] = {}
        for record in self.records:
            if record.status != "duplicate" and record.candidate.hash:
                found.setdefault(record.candidate.hash, record)
        return found


def interval(accuracy: float, images: int) -> float:
    """Return half the width of an accuracy's 95 % interval, as a share of 1.

    Source: Agresti and Coull 1998, doi:10.1080/00031305.1998.10480550: two successes and two failures are added.
    """
    share = (accuracy * images + 2) / (images + 4)
    return _Z95 * math.sqrt(share * (1 - share) / (images + 4))


def is_tie(one: float, other: float, task: Task) -> bool:
    """Return whether two accuracies differ by less than the interval of either, so that neither is known as better."""
    if task.evidence is None:  # a table's accuracy, of which nobody knows how it was measured
        return False
    images = task.evidence.val_images
    return abs(one - other) <= max(interval(one, images), interval(other, images))


def head(known: Known, *, effects: bool = True) -> str:
    """Return what the columns of a table are."""
    metric = known.task.learning.metric
    columns = [f"number {known.notation.noun}", f"validation {metric}{' %' if metric == 'accuracy' else ''}"]
    if not known.task.on_table:
        columns += ["RAM KB", "Flash KB", *(["million instructions"] if _counts(known) else [])]
    return " | ".join([*columns, *(["change and effect"] if effects else [])])


def rows(known: Known, tokens: int, must: Sequence[Record] = (), *, effects: bool = True) -> list[str]:
    """Return the rows of about `tokens` tokens, the best first, then what was refused, then what is under way.

    Those of `must` are among them in any case. Without `effects` they leave out changes and what these did.

    Repeats have no rows: `tally` counts them.
    """
    told = [record for record in known.records if record.status != "duplicate"]
    groups = [list(must), *_selected(known, told, tokens, effects).values()]
    shown = {record.candidate.number: record for group in groups for record in group}
    trained = sorted((r for r in shown.values() if r.status == "ok"), key=lambda record: -record.score)
    others = sorted((r for r in shown.values() if r.status != "ok"), key=lambda r: (excess(r) or 9e9, -_number(r)))
    return [
        *(row(record, known, effects=effects) for record in [*trained, *others]),
        *(pending_row(candidate, known) for candidate in known.pending),
    ]


def _selected(known: Known, records: Sequence[Record], tokens: int, effects: bool) -> Shown:
    # A token has half as many characters here as in JSON: numbers, letters and signs alternate.
    return select(records, tokens, lambda record: 2 * len(row(record, known, effects=effects)))


def row(record: Record, known: Known, *, effects: bool = True) -> str:
    """Return one row: what was tried, what came of it, and what that says beside the network it was made from."""
    candidate, report = record.candidate, record.feasibility
    name = f"#{candidate.number} {known.notation.write(candidate) or '(unreadable)'}"
    if record.status == "ok" and record.training is not None:
        cells = [name, accuracy(record, known.task), *_sizes(record, known), effect(record, known) if effects else ""]
        return " | ".join(cell for cell in cells if cell)
    fixes = [str(fix) for fix in report.fixes] if report is not None else []
    found = [name, f"{record.status}: {refusal(record)}", *([f"fits with {', '.join(fixes)}"] if fixes else [])]
    return " | ".join(found)


def pending_row(candidate: Candidate, known: Known) -> str:
    """Return the row of a candidate under way: what is expected of it, and that nobody should propose it again."""
    expected = known.expect(candidate)
    cells = [f"#{candidate.number} {known.notation.write(candidate) or '(unreadable)'}", "under way"]
    return " | ".join([*cells, *([sizes(expected)] if expected else [])])


def accuracy(record: Record, task: Task) -> str:
    """Return an accuracy in percent with its 95 % interval; and the training loss, where the search ranks by it."""
    text = _value(record, task)
    if task.evidence is not None:
        text += f" ±{100 * interval(record.accuracy, task.evidence.val_images):.1f}"
    loss = record.training.ranking_loss if record.training else None
    return text if loss is None else f"{text}, loss {loss:.3f}"


def _value(record: Record, task: Task) -> str:
    """Return an accuracy in percent, or another metric in its own unit."""
    if task.learning.metric == "accuracy" or record.training is None:
        return f"{100 * record.accuracy:.2f}"
    return f"{record.training.value:.4f}"


def _gain(record: Record, before: Record, task: Task) -> str:
    """Return the change of an accuracy in points, or of another metric in its own unit."""
    if task.learning.metric == "accuracy" or record.training is None or before.training is None:
        return f"{100 * (record.accuracy - before.accuracy):+.2f}"
    return f"{record.training.value - before.training.value:+.4f}"


def effect(record: Record, known: Known) -> str:
    """Return how a network differs from the one that it was made from, or from the nearest, and what that did."""
    before = known.numbers.get(record.candidate.parent) or _nearest(record, known)
    if before is None or before.candidate.number == record.candidate.number or not before.scored:
        return ""
    gain = _gain(record, before, known.task)
    verdict = ", tie" if is_tie(record.accuracy, before.accuracy, known.task) else ""
    changed = change(before.candidate, record.candidate, known)
    return f"#{before.candidate.number}{f': {changed}' if changed else ''}: {gain}{verdict}"


def _nearest(record: Record, known: Known) -> Record | None:
    """Return the earlier trained candidate that shares most with this one, where that is more than half."""
    mine = _parts(known.notation.write(record.candidate))
    earlier = [other for other in known.records if other.scored and _number(other) < _number(record)]
    best, nearest = _ALIKE, None
    for other in earlier[-_LOOKED_AT:]:
        theirs = _parts(known.notation.write(other.candidate))
        share = len(mine & theirs) / max(1, len(mine | theirs))
        if share > best:
            best, nearest = share, other
    return nearest


def _parts(line: str) -> set[tuple[int, str]]:
    """Return the words of a line, or its letters, each with how often or where it came."""
    if " " not in line:
        return set(enumerate(line))
    words = line.split()
    return {(words[:at].count(word), word) for at, word in enumerate(words)}


def change(before: Candidate, after: Candidate, known: Known) -> str:
    """Return what became of one network's words in another one; "" for cells, which have none."""
    if before.cell is not None or after.cell is not None:
        return ""
    text = compact.changes(known.notation.write(before), known.notation.write(after))
    return text if len(text) <= known.notation.change_chars else ""  # both lines say it as well


def refusal(record: Record) -> str:
    """Return why a candidate did not train: each resource with what is over and where, or the reason as JSON text."""
    report = record.feasibility
    over = [violation for violation in report.violations if violation.over] if report else []
    if record.status != "infeasible" or not over:
        return json.dumps(record.reason[:_REASON_CHARS])
    return ", ".join(
        f"{violation.resource} {violation.over:,} of {violation.limit:,} over"
        + (f" at {violation.where[:40]}" if violation.where else "")
        for violation in over[:2]
    )


def sizes(expected: Estimate) -> str:
    """Return expected sizes with their errors."""
    ram, flash = _kb(expected.ram_bytes), _kb(expected.flash_bytes)
    errors = expected.ram_error_bytes, expected.flash_error_bytes
    said = [f" ±{_kb(error)}" if error else "" for error in errors]
    text = f"expected RAM {ram}{said[0]}, Flash {flash}{said[1]}"
    return text if expected.instructions is None else f"{text}, {expected.instructions / _MILLION:.2f} M instructions"


def tally(known: Known) -> str:
    """Return how many candidates there were, by what became of them, and which were proposed again."""
    counts = Counter(record.status for record in known.records)
    again = Counter(record.reason for record in known.records if record.status == "duplicate")
    repeats = [f"#{reason.rpartition(' ')[2]} {n} times" for reason, n in again.most_common(3)]
    said = [f"{counts['ok']} trained", *(f"{counts[s]} {s}" for s in ("infeasible", "invalid", "failed") if counts[s])]
    said += [f"{sum(again.values())} repeats ({', '.join(repeats)})"] if repeats else []
    return ", ".join([*said, *([f"{known.left} trainings left"] if known.left is not None else [])])


def limiting(record: Record, known: Known) -> str:
    """Return what of its limits a network takes, and where: the reader's way to what limits it."""
    task, report, spec = known.task, record.feasibility, record.candidate.spec
    if report is None or record.candidate.cell is not None:
        return ""
    expected = known.expect(record.candidate)
    ram = report.least_ram_bytes or (expected.ram_bytes if expected else None)
    flash = report.flash_bytes or (expected.flash_bytes if expected else None)
    if ram is None or flash is None:
        return ""
    found = footprint(task.graph(spec), task.precision) if spec is not None else None
    about = "takes" if report.least_ram_bytes else "is expected to take"
    shares = [
        f"{ram / task.ram_limit_bytes:.0%} of RAM" + (f" (peak at {found.widest_moment})" if found else ""),
        f"{flash / task.flash_limit_bytes:.0%} of Flash"
        + (f" (most weights at {found.largest_weights})" if found else ""),
    ]
    if task.instructions_limit and report.instructions:
        shares.append(f"{report.instructions / task.instructions_limit:.0%} of the instructions")
    return f"Best, #{record.candidate.number}, {about} {', '.join(shares)}."


def lesson(record: Record, known: Known) -> str:
    """Return a diagnostic triple as a line: problem and suggestion as JSON texts, the change made, its outcome."""
    said = [text[:_PLAN_CHARS] for text in _diagnosed(record) if text]
    return f"#{record.candidate.number} {' '.join(map(json.dumps, said)) or '-'} | {outcome(record, known)}"


def outcome(record: Record, known: Known) -> str:
    """Return what became of a candidate, in short."""
    if record.status != "ok":
        return f"{record.status}: {refusal(record)}"
    return ", ".join([_value(record, known.task), *filter(None, [effect(record, known)])])


def _diagnosed(record: Record) -> tuple[str, ...]:
    mine = record.diagnosis
    return () if mine is None else (mine.problem, mine.suggestion)


def plans(records: Sequence[Record], known: Known) -> list[str]:
    """Return the plans of an only role as lines, each once with the outcomes of what it led to."""
    found: dict[str, list[str]] = {}
    for record in records:
        if (mine := record.diagnosis) is not None and mine.suggestion:
            told = f"#{record.candidate.number} {outcome(record, known)}"
            found.setdefault(json.dumps(mine.suggestion[:_PLAN_CHARS]), []).append(told)
    return [f"{plan} | {'; '.join(outcomes)}" for plan, outcomes in found.items()]


def _sizes(record: Record, known: Known) -> list[str]:
    """Return measured sizes, else expected ones behind a tilde."""
    report = record.feasibility
    if known.task.on_table or report is None:
        return []
    if report.least_ram_bytes is None or report.flash_bytes is None:
        expected = known.expect(record.candidate)
        return [f"~{_kb(expected.ram_bytes)}", f"~{_kb(expected.flash_bytes)}"] if expected is not None else []
    cells = [_kb(report.least_ram_bytes), _kb(report.flash_bytes)]
    return [*cells, f"{report.instructions / _MILLION:.2f}"] if _counts(known) and report.instructions else cells


def _counts(known: Known) -> bool:
    return any(record.feasibility and record.feasibility.instructions is not None for record in known.records)


def _kb(count: int) -> str:
    return f"{count / BYTES_PER_KB:.1f}"


def _number(record: Record) -> int:
    return record.candidate.number
