"""What a run says on screen before it starts and after it ends."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import yaml
from rich.console import Console

from automcu_ray.problem.target import BYTES_PER_KB
from automcu_ray.problem.task import Task
from automcu_ray.records.events import Finished, Searched
from automcu_ray.records.finalist_selection import rank_for_finals
from automcu_ray.records.journal import Repository
from automcu_ray.records.manifest import Manifest, NetworkManifest, TableManifest
from automcu_ray.records.proposer_gains import ProposerGains
from automcu_ray.records.record import Record
from automcu_ray.records.search_dynamics import trend
from automcu_ray.runtime import interruption
from automcu_ray.runtime.config import RunConfig
from automcu_ray.runtime.run_folder import RunFolder
from automcu_ray.sizing.near_misses import TITLES, advice, by_resource, least_needs, shortages

NO_LANGUAGE_MODEL = (
    "No language model takes part: engine 'offline' answers by rules. "
    "Configure one with --engine openai (see configs/engine/openai.yaml)."
)


def harmless(text: str) -> str:
    """Return text without what could steer a terminal: models, toolchains, servers and plugins have written in it."""
    return "".join(char for char in text if char.isprintable() or char in "\n\t")


def say(console: Console, text: str) -> None:
    """Print text as it is, but for what could steer a terminal."""
    console.print(harmless(text), markup=False, highlight=False, soft_wrap=True)


def say_interrupted(console: Console, how_on: str = "The same command goes on.") -> int:
    """Print that work was stopped and how it goes on; return the exit status of that."""
    say(console, f"stopped before the end; what is finished is kept. {how_on}")
    return interruption.status()


def show_config(console: Console, config: RunConfig) -> None:
    """Print the whole configuration as YAML."""
    console.print(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False), markup=False, highlight=False)


def show_prompts(console: Console, requests: Sequence[Any]) -> None:
    """Print each request to an engine: role and sampling, then its messages as the engine gets them."""
    for request in requests:
        form = "a JSON object by schema" if request.json_schema else "text"
        console.rule(
            f"{request.role}: {form}, temperature {request.temperature:g}, at most {request.max_tokens} tokens"
        )
        for message in request.messages:
            say(console, f"[{message.role}]\n{message.content}")


def intro(console: Console, config: RunConfig, task: Task, engine: Any, folder: RunFolder) -> None:
    """Print what will be searched, within which limits, and who proposes."""
    tell = partial(say, console)
    tell(f"{task.dataset} on {task.target.name}: {task.target.description}")
    limit = "" if task.instructions_limit is None else f", {task.instructions_limit:,} instructions per inference"
    learning = task.learning
    floor = "an accuracy" if learning.metric == "accuracy" else f"a {learning.metric}"
    goal = ""
    if task.aim is not None:
        goal = f"sought: the least {task.objective} with {floor} of {learning.value_of(task.aim.floor):g}; "
    tell(
        f"limits: RAM {task.ram_limit_bytes / BYTES_PER_KB:g} KB, Flash {task.flash_limit_bytes / BYTES_PER_KB:g} KB"
        f"{limit}; {goal}precision {task.precision}; searcher {config.searcher.name}; seed {config.seed}; "
        f"budget {config.budget.trained} trained candidates"
    )
    if engine is not None and not engine.is_language_model:
        tell(NO_LANGUAGE_MODEL)
    tell(f"run: {folder.path}")


def outcome(console: Console, folder: RunFolder, task: Task, manifest: Manifest | None, *, interrupted: bool) -> int:
    """Print the result; return the exit status: 0 with a winner (or none asked for), 1 without, or a signal's."""
    tell = partial(say, console)
    repository = Repository(folder.journal)
    if repository.records:
        tell(trend(repository.records).line(task.learning))
        if gains := ProposerGains(repository.records).line():
            tell(gains)
    if manifest is not None:
        finished = repository.last(Finished)
        _say_winner(console, folder, task, manifest, finished.others if finished else {})
        if manifest.board_agrees is False:
            tell("warning: the firmware does not give what onnxruntime gives for the same model: do not ship it.")
            return 1
        return 0
    searched = repository.last(Searched)
    top = next(iter(rank_for_finals(repository.records)), None)
    if top is not None:
        tell(f"best so far: #{top.candidate.number}, {top.outcome()}")
    if repository.last(Finished):
        tell(f"no finalists (budget.finalists=0): no winner, the test set was not read; report: {folder.report}")
        return 0
    if interrupted or searched is None or searched.interrupted:
        return say_interrupted(console, f"Go on with --resume {folder.path}")
    tell("no network was found: every candidate, or every finalist, was refused or failed.")
    _say_what_was_missing(console, task, repository.records)
    tell(f"report: {folder.report}")
    return 1


def _say_what_was_missing(console: Console, task: Task, records: Sequence[Record]) -> None:
    """Say failures first: what comes after, of sizes, would hide that some were not too large."""
    tell = partial(say, console)
    if failed := [record for record in records if record.status == "failed"]:
        tell(f"{len(failed)} candidates failed, first #{failed[0].candidate.number}: {failed[0].reason}")
    for line in least_needs(records, task):
        tell(line)
    for resource, near in by_resource(records).items():
        tell(f"nearest misses of {TITLES.get(resource, resource)}:")
        for record in near:
            needs = "; ".join(advice(violation, task) for violation in shortages(record).values())
            tell(f"  #{record.candidate.number}: {needs}")


def _say_winner(
    console: Console, folder: RunFolder, task: Task, manifest: Manifest, others: Mapping[str, Manifest]
) -> None:
    tell = partial(say, console)
    if isinstance(manifest, TableManifest):
        tell(f"winner #{manifest.number}: {manifest.architecture}")
        tell(f"{manifest.table}: validation {manifest.val_accuracy:.4f}, test {manifest.test_accuracy:.4f}")
        tell(f"report: {folder.report}")
        return
    examples = "images" if manifest.learning.kind == "classification" else "examples"
    tell(
        f"winner #{manifest.number}: test {manifest.told} ({manifest.precision}, "
        f"{manifest.test_images} {examples}; float {manifest.told_float.split()[-1]})"
        + (f", macro F1 {manifest.test_macro_f1:.4f}" if manifest.test_macro_f1 is not None else "")
    )
    _say_figures(tell, manifest)
    if ways := manifest.quantised:
        value = manifest.learning.value_of
        figures = "; ".join(f"{way.method} {value(way.val_accuracy):.4f}" for way in ways)
        tell(f"validation: float {value(manifest.val_accuracy_float or 0.0):.4f}; {figures}; {ways[0].method} ships")
    if manifest.ram_bytes is None or manifest.flash_bytes is None:
        tell(f"memory: not measured by backend {manifest.backend or 'analytic'}")
    else:
        ram = _of(manifest.ram_bytes, manifest.ram_limit_bytes)
        tell(f"RAM {ram}, Flash {_of(manifest.flash_bytes, manifest.flash_limit_bytes)}, by {manifest.backend}")
    for opinion in manifest.second_opinions:
        problems = "; ".join(violation.message for violation in opinion.violations)
        tell(f"{opinion.backend}: {problems or 'fits'}")
        for note in opinion.notes:
            tell(f"  {note}")
    if manifest.board is None:
        tell("board: not run (board.mode is none, the target has no emulator, or the backend builds no firmware)")
    else:  # bit by bit at int8; float32 sums in another order
        agreement = f"{manifest.board_images} test images within {manifest.board_largest_difference:.1g} of onnxruntime"
        if manifest.precision == "int8":
            agreement = f"{manifest.bit_equal_images} of {manifest.board_images} test images bit-equal to onnxruntime"
        tell(f"board {manifest.board}: {agreement}, {manifest.instructions} instructions per inference")
    if (fed := manifest.stream) is not None:
        tell(
            f"fed {fed.seconds_of_samples:g} s of samples: {fed.bit_equal_windows} of {fed.windows} windows bit-equal "
            f"to Python's, {fed.front_end_instructions} instructions of the front end each {fed.seconds_between:g} s"
        )
    _say_speed(tell, task, manifest, others)
    tell(f"bundle: {folder.bundle}")
    tell(f"report: {folder.report}")


def _say_figures(tell: Callable[[str], None], manifest: NetworkManifest) -> None:
    """Say the other metrics of what tells no classes apart, beside those of an answer that needs no network."""
    if manifest.learning.kind == "classification":
        return
    figures, trivial = (
        ", ".join(f"{name} {value:.4f}" for name, value in found.items())
        for found in (manifest.test_figures, manifest.trivial_figures)
    )
    tell(f"test: {figures}; always answering the training examples' mean: {trivial}")
    if (one := manifest.anomaly) is not None:
        tell(
            f"threshold {one.threshold:.6g}, by validation: {one.found:.1%} of {one.anomalies} anomalies found, "
            f"{one.false_alarms:.1%} false alarms on {one.normal} normal examples"
        )


def _say_speed(
    tell: Callable[[str], None], task: Task, manifest: NetworkManifest, others: Mapping[str, Manifest]
) -> None:
    if manifest.estimated_latency_ms is not None and (cycles := task.target.cycles_per_instruction):
        tell(f"estimated latency: {manifest.estimated_latency_ms:.2f} ms, at {cycles.value:g} cycles an instruction")
    if task.aim is not None and manifest.val_accuracy < task.aim.floor:
        learning = task.learning
        asked = "an accuracy" if learning.metric == "accuracy" else learning.metric
        tell(f"no finalist reaches {asked} of {learning.value_of(task.aim.floor):g}: the most accurate one ships")
    for name, other in others.items():
        if isinstance(other, NetworkManifest):
            figures = f"RAM {_of(other.ram_bytes or 0, other.ram_limit_bytes)}, {other.instructions} instructions"
            tell(f"{name.replace('_', ' ')} #{other.number}: test {other.told}, {figures}")


def _of(used: int, limit: int) -> str:
    return f"{used / BYTES_PER_KB:.1f} of {limit / BYTES_PER_KB:g} KB"
