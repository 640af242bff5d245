"""Several runs on one page: their figures beside each other, what was set otherwise, how fast each got better."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from automcu_ray.core.atomic_write import write_whole
from automcu_ray.core.cost import total
from automcu_ray.core.learning import Learning
from automcu_ray.records.events import Finished, Searched
from automcu_ray.records.journal import Repository
from automcu_ray.records.manifest import NetworkManifest
from automcu_ray.records.record import Record, best
from automcu_ray.reports.pages import template
from automcu_ray.reports.run_report import NOT_MEASURED, count, kb, percent, seconds
from automcu_ray.runtime.config import RunConfig
from automcu_ray.runtime.run_folder import RunFolder
from automcu_ray.studies.anytime_curves import CANDIDATES, curves_figure
from automcu_ray.studies.sweep_statistics import Curve


class Run(NamedTuple):
    """A run as it was read: its folder's name, its settings, what its journal says."""

    name: str
    config: RunConfig
    repository: Repository


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Return runs by their folders; names that are equal are told apart by a number.

    Raises:
        ConfigError: no run there, or a journal that cannot be read.
    """
    found: list[Run] = []
    for path in folders:
        folder, config = RunFolder.existing(path)
        before = sum(run.name.partition(" (")[0] == folder.path.name for run in found)
        name = f"{folder.path.name} ({before + 1})" if before else folder.path.name
        found.append(Run(name, config, Repository.of_run(folder.path, "runs")))
    return found


def write_comparison(path: Path, runs: Sequence[Run]) -> None:
    """Write the page; whoever reads `path` meanwhile sees the old one or the new one."""
    curves = {run.name: curve for run in runs if (curve := _curve(run.repository.records))}
    page = template("comparison.html.j2").render(
        names=[run.name for run in runs],
        rows=figures(runs),
        settings=differences(runs),
        figure=Markup(curves_figure(curves, CANDIDATES, _named(runs, scores=True))) if curves else "",
    )
    write_whole(path, page.encode("utf-8", errors="replace"))


def figures(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Return rows of figures: a name, and what each run says."""
    columns = [_figures_of(run, _named(runs)) for run in runs]
    return [(name, [column[name] for column in columns]) for name in columns[0]]


def differences(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Return the settings that are not equal in all runs: a dotted key, and each run's value; "-" where it has none."""
    flat = [_flat(run.config.model_dump(mode="json")) for run in runs]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    rows = [(key, [str(settings.get(key, "-"))[:120] for settings in flat]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def _named(runs: Sequence[Run], *, scores: bool = False) -> str:
    """Return the metric of all runs by its name, or what it is called as a score; "score" where they differ."""
    learnt = {_learning(run) for run in runs}
    names = {one.score_name if scores else one.metric for one in learnt}
    return names.pop() if len(names) == 1 else "score"


def _learning(run: Run) -> Learning:
    leader = best(run.repository.records)
    metric = leader.training.metric if leader is not None and leader.training is not None else "accuracy"
    return Learning(metric=metric)


def _figures_of(run: Run, metric: str) -> dict[str, str]:
    records, finished, searched = run.repository.records, run.repository.last(Finished), run.repository.last(Searched)
    manifest = finished.manifest if finished and isinstance(finished.manifest, NetworkManifest) else None
    leader = best(records)
    cost = total([record.cost for record in records])
    return {
        "task, target": f"{run.config.task}, {run.config.target.name}",
        "searcher, seed": f"{run.config.searcher.name}, {run.config.seed}",
        "trained, of all outcomes": f"{sum(record.status == 'ok' for record in records)} of {len(records)}",
        f"best validation {metric} (proxy)": _of(leader),
        f"winner: test {metric}": _told(manifest),
        "winner: RAM": kb(manifest.ram_bytes if manifest else None),
        "winner: Flash": kb(manifest.flash_bytes if manifest else None),
        "winner: instructions": count(manifest.instructions if manifest else None),
        "tokens": count(cost.prompt_tokens + cost.completion_tokens) if cost.prompt_tokens else "none",
        "search": seconds(searched.seconds if searched else None),
        "whole run": seconds(finished.seconds if finished else None),
        "versions": ", ".join(f"{name} {version}" for name, version in sorted(manifest.versions.items()))
        if manifest
        else NOT_MEASURED,
    }


def _told(manifest: NetworkManifest | None) -> str:
    if manifest is None or not manifest.test_figures:
        return percent(manifest.test_accuracy if manifest else None)
    return manifest.told


def _of(leader: Record | None) -> str:
    if leader is None or leader.training is None or leader.training.metric == "accuracy":
        return percent(leader.accuracy if leader else None)
    return leader.training.told


def _flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(settings, dict) or not settings:
        return {prefix: settings}
    return {
        key: value for name in settings for key, value in _flat(settings[name], f"{prefix}.{name}".strip(".")).items()
    }


def _curve(records: Sequence[Record]) -> Curve | None:
    accuracies = [record.accuracy for record in records if record.scored]
    so_far = tuple(accumulate(accuracies, max))
    return Curve(at=tuple(range(1, len(so_far) + 1)), mean=so_far, low=so_far, high=so_far) if so_far else None
