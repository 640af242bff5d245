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

from automcu_ray.core.atomic_write import write_whole
from automcu_ray.core.cost import Cost, total
from automcu_ray.core.errors import ConfigError
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.spec import Concat, Skip
from automcu_ray.problem.target import BYTES_PER_KB
from automcu_ray.problem.task import Task
from automcu_ray.records.events import Brought, Decided, FinalistEvaluated, Finished, Searched, SentenceRead, Started
from automcu_ray.records.finalist_selection import rank_for_finals
from automcu_ray.records.journal import Repository
from automcu_ray.records.manifest import Manifest, NetworkManifest, TableManifest
from automcu_ray.records.record import Finalist, Record
from automcu_ray.records.search_dynamics import trend
from automcu_ray.reports import anatomy, answer_figures, plots
from automcu_ray.reports.answer_figures import Figure
from automcu_ray.reports.handover import handover
from automcu_ray.reports.in_short import in_short, refused_most
from automcu_ray.reports.memory_figure import memory_figure
from automcu_ray.reports.pages import template
from automcu_ray.runtime.config import RunConfig, compose
from automcu_ray.sizing import near_misses

NOT_MEASURED = "not measured"
_GROUPS = ("dataset", "target", "searcher", "engine", "backend")


class NearMiss(NamedTuple):
    """A refused candidate that only amounts kept out: how much of a resource, and what would have to give."""

    number: int
    layers: str
    over: str
    advice: tuple[str, ...]


def write_report(path: Path, config: RunConfig, task: Task, repository: Repository) -> None:
    """Write the report of a run as it stands; whoever reads `path` meanwhile sees the old one or the new one.

    Text that came from a language model, a toolchain or a candidate is escaped. What nobody measured reads
    "not measured".
    """
    records = repository.records
    finalists = list({one.hash: one for one in repository.all(FinalistEvaluated)}.values())  # the newest word on each
    started, finished = repository.last(Started), repository.last(Finished)
    manifest = finished.manifest if finished else None
    brought = repository.last(Brought)
    cost = _cost(repository, finalists)
    folder, here = path.resolve().parent, Path.cwd()
    typed = folder.relative_to(here) if folder.is_relative_to(here) else folder
    misses = [
        (near_misses.TITLES.get(resource, resource), [_near_miss(record, resource, task) for record in found])
        for resource, found in near_misses.by_resource(records).items()
    ]
    scored, bundle = task.learning.written, folder / "bundle"
    page = template(
        "report.html.j2", score=scored, kb=kb, percent=percent, count=count, seconds=seconds, layers=layers, utc=utc
    )
    text = page.render(
        run=folder.name,
        config=config,
        task=task,
        state=_state(config, repository, finalists),
        misses=misses,
        least_needs=near_misses.least_needs(records, task),
        reasons=Counter(record.reason for record in records if record.status != "ok").most_common(3),
        notice=_engine_notice(repository),
        figures=_figures(task, repository, finalists, cost),
        records=records,
        pending=len(repository.pending()),
        best=next(iter(rank_for_finals(records)), None),
        by_number={record.candidate.number: record for record in records},
        number_of={r.candidate.hash: r.candidate.number for r in reversed(records) if r.candidate.hash},
        finalists=sorted(finalists, key=lambda finalist: manifest is None or finalist.hash != manifest.hash),
        in_short=in_short(manifest, repository) if isinstance(manifest, NetworkManifest) else [],
        handover=handover(folder, typed),
        manifest=manifest if isinstance(manifest, NetworkManifest) else None,
        others=finished.others if finished else {},
        in_table=manifest if isinstance(manifest, TableManifest) else None,
        decisions=repository.all(Decided),
        diagnoses=[(r.candidate.number, r.diagnosis) for r in records if r.diagnosis],
        lineage=anatomy.lineage(records, manifest.number) if manifest else [],
        blocks=_blocks(repository, manifest, task),
        memory_figure=_memory_figure(manifest),
        pictures=anatomy.pictures(folder / "bundle_mistakes.png"),
        answers=answer_figures.figures(manifest, bundle.with_name("bundle_answers.npz"))
        if isinstance(manifest, NetworkManifest)
        else [],
        started=started,
        brought=brought,
        engine=started.engine if started else None,
        searched=repository.last(Searched),
        finished=finished,
        cost=cost,
        spoken=bool(started and started.engine and started.engine.is_language_model and cost.llm_seconds),
        sentence=repository.last(SentenceRead),
        trend=trend(records),
        yaml=yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False),
        resume=f"automcu search --resume {shlex.quote(str(typed))}",
        repeat=brought.command if brought else _repeat_command(config),
        exact=lambda size: f"{size:,} bytes",
        known_size=near_misses.known_size,
        spec_json=lambda candidate: json.dumps(candidate.spec.compact()),
    )
    write_whole(path, text.encode("utf-8", errors="replace"))  # a reply may hold half a surrogate pair


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
    """Return a candidate's layers in short: type and output channels, like "conv16 residual24 max_pool skip-3"."""
    if candidate.cell is not None:
        return str(candidate.cell)
    if candidate.spec is None:
        return f"PyTorch, {len(candidate.code.splitlines())} lines" if candidate.code else ""
    named = [
        f"{layer.type}-{layer.back}"
        if isinstance(layer, Skip | Concat)
        else f"{layer.type}{getattr(layer, 'out_channels', None) or ''}"
        for layer in candidate.spec.backbone
    ]
    positions = candidate.spec.head.positions
    return " ".join(named if positions == 1 else [*named, f"positions{positions}"])


# What the journal says --------------------------------------------------------------------------------------


def _state(config: RunConfig, repository: Repository, finalists: Sequence[Finalist]) -> str:
    """Return where the run stands, in a word or three."""
    if repository.last(Finished):
        return "finished"
    if any(decided.decision == "fail" for decided in repository.all(Decided)):
        return "no winner"
    begun = [event for event in repository.events if isinstance(event, Started | Searched)]
    searched = begun[-1] if begun and isinstance(begun[-1], Searched) else None
    if searched is not None and searched.interrupted:
        return "interrupted"
    trained = sum(record.status == "ok" for record in repository.records)
    if searched is not None or finalists:
        all_in = len(finalists) >= min(config.budget.finalists, trained)
        usable = any(finalist.usable for finalist in finalists)
        return "no winner" if all_in and not usable else "finalists under way"
    return "search under way" if begun or repository.proposed else "not started"


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
    return total([*records, repository.talked, *(candidate.cost for candidate in repository.pending()), *extra])


def _engine_notice(repository: Repository) -> str:
    """Return what must be said where a searcher that asks an engine ran without a language model."""
    engines = [event.engine for event in repository.all(Started) if event.engine is not None]
    without = [engine.name for engine in engines if not engine.is_language_model]
    if not without:
        return ""
    if len(without) < len(engines):
        return f"For a part of this run no language model took part: those proposals came from `{without[0]}`."
    return f"No language model took part: proposals came from the rule-based stand-in `{without[0]}`."


# What is shown ----------------------------------------------------------------------------------------------


def _near_miss(record: Record, resource: str, task: Task) -> NearMiss:
    short, mine = near_misses.shortages(record), record.candidate
    advice = tuple(near_misses.advice(violation, task) for violation in short.values())
    unit = "instructions" if resource == "instructions" else "bytes"
    return NearMiss(mine.number, layers(mine), f"{short[resource].over or 0:,} {unit}", advice)


def _blocks(repository: Repository, manifest: Manifest | None, task: Task) -> list[anatomy.Block]:
    """Return the winner's layers; [] where it is code, or a cell of a table."""
    network = repository.proposed.get(manifest.number) if isinstance(manifest, NetworkManifest) else None
    return [] if network is None or network.structure is None else anatomy.blocks(task.graph(network.structure))


def _memory_figure(manifest: Manifest | None) -> Markup | None:
    """Return the winner's arena; None where no planner told."""
    found = manifest.memory_map if isinstance(manifest, NetworkManifest) else None
    return Markup(memory_figure(found)) if found is not None and found.buffers else None


def _figures(task: Task, repository: Repository, finalists: Sequence[Finalist], cost: Cost) -> list[Figure]:
    records = repository.records
    proposals = len({*repository.proposed, *(record.candidate.number for record in records)})
    started = repository.last(Started)
    asks_model = started is not None and started.engine is not None and started.engine.is_language_model
    silent = not cost.completion_tokens and not (asks_model and cost.llm_seconds)
    absent = {"LLM": "not asked" if asks_model else "no language model"} if silent else {}
    untimed = sum(r.training is not None and r.training.seconds is None for r in records)
    caption = f"What it cost. Training of {untimed} candidates: {NOT_MEASURED}." if untimed else "What it cost."
    score = task.learning.score_name
    flash = plots.size_figure("flash", task.flash_limit_bytes, records, finalists, score)
    ram = plots.size_figure("ram", task.ram_limit_bytes, records, finalists, score)
    counted = any(record.feasibility and record.feasibility.instructions for record in records)
    speed = plots.size_figure("instructions", task.instructions_limit, records, finalists, score) if counted else None
    rows = plots.stages(records, proposals, len(finalists))
    of_ladder, refusals = "The ladder: where proposals stopped, cheapest question first;", refused_most(records)
    of_epochs = "How finalists learnt. Dashed: the epochs after, with int8 rounding in training (qat)."
    named = "Accuracy" if score == "accuracy" else f"Validation {score}"
    of_speed = f"{named} against instructions of an inference. Hollow marks, if any: refused, so never trained."
    return [
        Figure(Markup(flash), f"{named} against Flash. Hollow, at the bottom: refused, so never trained."),
        Figure(Markup(ram), f"{named} against RAM. Hollow, at the bottom: refused, so never trained."),
        *([Figure(Markup(speed), of_speed)] if speed is not None else []),
        Figure(
            Markup(plots.anytime_figure(records, finalists, score)),
            "How fast the search got better, in the order in which trainings ended.",
        ),
        *(
            [Figure(Markup(plots.learning_figure(finalists, score)), of_epochs)]
            if any(one.epochs for one in finalists)
            else []
        ),
        Figure(Markup(plots.funnel_figure(rows)), f"{of_ladder} {refusals}."),
        Figure(Markup(plots.cost_figure(cost, absent)), caption),
    ]


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
    return " ".join(["automcu search", *words, *(f"--set {shlex.quote(text)}" for text in settings)])


def _changes(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            yield from _changes(old[key], value, f"{prefix}{key}.")
        elif key not in old or value != old[key]:
            yield f"{prefix}{key}", value
