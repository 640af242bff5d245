"""The report of a run: one HTML page without anything from outside, readable at any moment of the run."""

import json
import math
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from markupsafe import Markup

from automcu_ray import misses, plots
from automcu_ray.config import RunConfig, compose
from automcu_ray.errors import ConfigError
from automcu_ray.ledger import Cost, total
from automcu_ray.pages import template
from automcu_ray.promise import most_promising
from automcu_ray.record import Candidate, Finalist, Record
from automcu_ray.repository import Repository
from automcu_ray.target import BYTES_PER_KB
from automcu_ray.task import Task
from automcu_ray.trend import trend
from automcu_ray.whole_file import write_whole

NOT_MEASURED = "not measured"
_GROUPS = ("dataset", "target", "searcher", "engine", "backend")


class Figure(NamedTuple):
    """One figure of the page: SVG text and what is said below it."""

    svg: Markup
    caption: str


class Miss(NamedTuple):
    """A refused candidate that only bytes kept out: how many of a resource, and what would have to give."""

    number: int
    layers: str
    over_bytes: int
    advice: tuple[str, ...]


def write_report(path: Path, config: RunConfig, task: Task, repository: Repository) -> None:
    """Write the report of a run as it stands; whoever reads `path` meanwhile sees the old one or the new one.

    Text that came from a language model, a toolchain or a candidate is escaped. What nobody measured reads
    "not measured".
    """
    page = _render(path, config, task, repository)
    write_whole(path, page.encode("utf-8", errors="replace"))  # a reply may hold half a surrogate pair


def _render(path: Path, config: RunConfig, task: Task, repository: Repository) -> str:
    records, finalists = repository.records, _finalists(repository)
    manifest = (repository.find("finished") or {}).get("manifest") or {}
    started = repository.find("started") or {}
    cost = _cost(repository, finalists)
    folder = path.resolve().parent
    page = template("report.html.j2", kb=kb, percent=percent, count=count, seconds=seconds, layers=layers, utc=utc)
    return page.render(
        run=folder.name,
        config=config,
        task=task,
        state=_state(config, repository, finalists),
        misses=_nearest_misses(task, records),
        least_needs=misses.least_needs(records, task),
        reasons=Counter(record.reason for record in records if record.status != "ok").most_common(3),
        notice=_engine_notice(repository),
        figures=_figures(task, repository, finalists, cost),
        records=records,
        pending=len(repository.pending()),
        best=next(iter(most_promising(records)), None),
        by_number={record.candidate.number: record for record in records},
        number_of={r.candidate.hash: r.candidate.number for r in reversed(records) if r.candidate.hash},
        finalists=sorted(finalists, key=lambda finalist: finalist.hash != manifest.get("hash")),
        manifest=manifest,
        diagnoses=[(r.candidate.number, r.diagnosis) for r in records if r.diagnosis],
        started=started,
        engine=started.get("engine") or {},
        searched=repository.find("searched") or {},
        finished=repository.find("finished") or {},
        cost=cost,
        trend=trend(records),
        yaml=yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False),
        resume=f"python scripts/search.py --resume {shlex.quote(_from_here(folder))}",
        repeat=_repeat_command(config),
        exact=lambda size: f"{size:,} bytes",
        known_size=misses.known_size,
        spec_json=lambda candidate: json.dumps(candidate.spec.compact()),
    )


# Numbers as people read them --------------------------------------------------------------------------------


def kb(size: int | None) -> str:
    """Return bytes as KB of 1024 bytes; less than one as bytes."""
    if size is None:
        return NOT_MEASURED
    return f"{size} bytes" if size < BYTES_PER_KB else f"{size / BYTES_PER_KB:,.1f} KB"


def percent(share: float | None) -> str:
    """Return a share of 1 as a percentage."""
    return NOT_MEASURED if share is None or not math.isfinite(share) else f"{share * 100:.2f} %"


def count(number: int | None) -> str:
    """Return a number with its thousands apart."""
    return NOT_MEASURED if number is None else f"{number:,}"


def seconds(duration_s: float | None) -> str:
    """Return a duration as seconds, minutes or hours."""
    if duration_s is None:
        return NOT_MEASURED
    if duration_s < 120:
        return f"{duration_s:.1f} s"
    minutes = round(duration_s / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def utc(at_s: float | None) -> str:
    """Return a time as people write it, in UTC."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M} UTC" if at_s else "not recorded"


def layers(candidate: Candidate) -> str:
    """Return a candidate's layers in short: type and output channels, like "conv16 residual24 max_pool"."""
    if candidate.cell is not None:
        return str(candidate.cell)
    if candidate.spec is None:
        return f"PyTorch, {len(candidate.code.splitlines())} lines" if candidate.code else ""
    return " ".join(f"{layer.type}{getattr(layer, 'out_channels', None) or ''}" for layer in candidate.spec.backbone)


# What the journal says --------------------------------------------------------------------------------------


def _finalists(repository: Repository) -> list[Finalist]:
    """Return the finalists, the newest word on each."""
    rows = [row for row in repository.events if row["event"] == "finalist"]
    fields = Finalist.model_fields.keys()
    found = [Finalist.model_validate({k: v for k, v in row.items() if k in fields}) for row in rows]
    return list({finalist.hash: finalist for finalist in found}.values())


def _state(config: RunConfig, repository: Repository, finalists: Sequence[Finalist]) -> str:
    """Return where the run stands, in a word or three."""
    if repository.find("finished"):
        return "finished"
    marks = [row for row in repository.events if row["event"] in ("started", "searched")]
    searched = bool(marks) and marks[-1]["event"] == "searched"
    if searched and marks[-1].get("interrupted"):
        return "interrupted"
    trained = sum(record.status == "ok" for record in repository.records)
    if searched or finalists:
        all_in = len(finalists) >= min(config.budget.finalists, trained)
        usable = any(finalist.usable for finalist in finalists)
        return "no winner" if all_in and not usable else "finalists under way"
    return "search under way" if marks or repository.proposed else "not started"


def _cost(repository: Repository, finalists: Sequence[Finalist]) -> Cost:
    """Return what the run has cost so far, with proposals that have no outcome yet, and finalists."""
    extra = [
        Cost(
            toolchain_cpu_seconds=sum(finalist.feasibility.seconds_by_rung.values()) if finalist.feasibility else 0.0,
            train_seconds=(finalist.training.seconds or 0.0) if finalist.training else 0.0,
            board_seconds=(finalist.board.seconds or 0.0) if finalist.board else 0.0,
        )
        for finalist in finalists
    ]
    records = [record.cost for record in repository.records]
    return total([*records, *(candidate.cost for candidate in repository.pending()), *extra])


def _engine_notice(repository: Repository) -> str:
    """Return what must be said where a searcher that asks an engine ran without a language model."""
    engines = [row["engine"] for row in repository.events if row["event"] == "started" and row.get("engine")]
    without = [engine["name"] for engine in engines if not engine.get("is_language_model")]
    if not without:
        return ""
    if len(without) < len(engines):
        return f"For a part of this run no language model took part: those proposals came from `{without[0]}`."
    return f"No language model took part: proposals came from the rule-based stand-in `{without[0]}`."


# What is shown ----------------------------------------------------------------------------------------------


def _nearest_misses(task: Task, records: Sequence[Record]) -> list[tuple[str, list[Miss]]]:
    """Return the nearest misses by resource."""
    return [
        (misses.TITLES.get(resource, resource), [_miss(record, resource, task) for record in found])
        for resource, found in misses.by_resource(records).items()
    ]


def _miss(record: Record, resource: str, task: Task) -> Miss:
    short, mine = misses.shortages(record), record.candidate
    advice = tuple(misses.advice(violation, task) for violation in short.values())
    return Miss(mine.number, layers(mine), short[resource].over_bytes or 0, advice)


def _figures(task: Task, repository: Repository, finalists: Sequence[Finalist], cost: Cost) -> list[Figure]:
    records = repository.records
    proposals = len({*repository.proposed, *(record.candidate.number for record in records)})
    engine = (repository.find("started") or {}).get("engine") or {}
    without = not engine.get("is_language_model") and not cost.completion_tokens
    absent = {"LLM": "no language model"} if without else {}
    untimed = sum(r.training is not None and r.training.seconds is None for r in records)
    caption = f"What it cost. Training of {untimed} candidates: {NOT_MEASURED}." if untimed else "What it cost."
    flash = plots.size_figure("flash", task.flash_limit_bytes, records, finalists)
    ram = plots.size_figure("ram", task.ram_limit_bytes, records, finalists)
    rows = plots.stages(records, proposals, len(finalists))
    return [
        Figure(Markup(flash), "Accuracy against Flash. Hollow, at the bottom: refused, so never trained."),
        Figure(Markup(ram), "Accuracy against RAM. Hollow, at the bottom: refused, so never trained."),
        Figure(Markup(plots.anytime_figure(records, finalists)), "How fast the search got better."),
        Figure(Markup(plots.funnel_figure(rows)), "The ladder: where proposals stopped, cheapest question first."),
        Figure(Markup(plots.cost_figure(cost, absent)), caption),
    ]


def _from_here(folder: Path) -> str:
    """Return a folder as one would type it."""
    here = Path.cwd()
    return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)


def _repeat_command(config: RunConfig) -> str | None:
    """Return the command that starts this run anew, or None where flags cannot say it all."""
    try:
        found = {group: getattr(config, group).name for group in _GROUPS}
        usual = compose({"task": config.task})
        flags = {group: name for group, name in found.items() if name != getattr(usual, group).name}
        base = compose({"task": config.task, **flags}).model_dump(mode="json")
        settings = [f"{key}={json.dumps(value)}" for key, value in _changes(base, config.model_dump(mode="json"))]
        if compose({"task": config.task, **flags}, settings) != config:
            return None
    except ConfigError:
        return None
    words = [f"--task {shlex.quote(config.task)}", *(f"--{group} {shlex.quote(flags[group])}" for group in flags)]
    return " ".join(["python scripts/search.py", *words, *(f"--set {shlex.quote(text)}" for text in settings)])


def _changes(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            yield from _changes(old[key], value, f"{prefix}{key}.")
        elif key not in old or value != old[key]:
            yield f"{prefix}{key}", value
