"""What a run says on screen before it starts and after it ends."""

from collections.abc import Sequence
from typing import Any

import yaml
from rich.console import Console

from automcu_ray.config import RunConfig
from automcu_ray.credit import Credits
from automcu_ray.misses import TITLES, advice, by_resource, least_needs, shortages
from automcu_ray.promise import most_promising
from automcu_ray.record import Record
from automcu_ray.repository import Repository
from automcu_ray.run_folder import RunFolder
from automcu_ray.target import BYTES_PER_KB
from automcu_ray.task import Task
from automcu_ray.trend import trend

INTERRUPTED = 130  # the exit status of what Ctrl-C ends, as shells have it
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
    return INTERRUPTED


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
    say(console, f"{task.dataset} on {task.target.name}: {task.target.description}")
    say(
        console,
        f"limits: RAM {task.ram_limit_bytes / BYTES_PER_KB:g} KB, Flash {task.flash_limit_bytes / BYTES_PER_KB:g} KB; "
        f"precision {task.precision}; searcher {config.searcher.name}; seed {config.seed}; "
        f"budget {config.budget.trained} trained candidates",
    )
    if engine is not None and not engine.is_language_model:
        say(console, NO_LANGUAGE_MODEL)
    say(console, f"run: {folder.path}")


def outcome(
    console: Console, folder: RunFolder, task: Task, manifest: dict[str, Any] | None, *, interrupted: bool
) -> int:
    """Print the result; return the exit status: 0 with a winner (or none asked for), 1 without, 130 interrupted."""
    repository = Repository(folder.journal)
    if repository.records:
        say(console, trend(repository.records).line())
        if gains := Credits(repository.records).line():
            say(console, gains)
    if manifest is not None:
        _say_winner(console, folder, manifest)
        if manifest["board_agrees"] is False:
            say(
                console,
                "warning: the firmware does not give what onnxruntime gives for the same model: do not ship it.",
            )
            return 1
        return 0
    searched = repository.find("searched")
    top = next(iter(most_promising(repository.records)), None)
    if top is not None:
        say(console, f"best so far: #{top.candidate.number}, {top.outcome()}")
    if repository.find("finished"):
        say(
            console, f"no finalists (budget.finalists=0): no winner, the test set was not read; report: {folder.report}"
        )
        return 0
    if interrupted or searched is None or searched["interrupted"]:
        return say_interrupted(console, f"Go on with --resume {folder.path}")
    say(console, "no network was found: every candidate, or every finalist, was refused or failed.")
    _say_failures(console, repository.records)
    _say_misses(console, task, repository.records)
    say(console, f"report: {folder.report}")
    return 1


def _say_failures(console: Console, records: Sequence[Record]) -> None:
    """Name the first of those that failed: what comes after, of sizes, would hide that some were not too large."""
    failed = [record for record in records if record.status == "failed"]
    if failed:
        say(console, f"{len(failed)} candidates failed, first #{failed[0].candidate.number}: {failed[0].reason}")


def _say_misses(console: Console, task: Task, records: Sequence[Record]) -> None:
    for line in least_needs(records, task):
        say(console, line)
    for resource, misses in by_resource(records).items():
        say(console, f"nearest misses of {TITLES.get(resource, resource)}:")
        for record in misses:
            needs = "; ".join(advice(violation, task) for violation in shortages(record).values())
            say(console, f"  #{record.candidate.number}: {needs}")


def _say_winner(console: Console, folder: RunFolder, manifest: dict[str, Any]) -> None:
    if "table" in manifest:
        say(console, f"winner #{manifest['number']}: {manifest['architecture']}")
        say(
            console,
            f"{manifest['table']}: validation {manifest['val_accuracy']:.4f}, test {manifest['test_accuracy']:.4f}",
        )
        say(console, f"report: {folder.report}")
        return
    say(
        console,
        f"winner #{manifest['number']}: test accuracy {manifest['test_accuracy']:.4f} ({manifest['precision']}, "
        f"{manifest['test_images']} images; float {manifest['test_accuracy_float']:.4f})",
    )
    if ways := manifest.get("quantised"):
        figures = "; ".join(f"{way['method']} {way['val_accuracy']:.4f}" for way in ways)
        say(console, f"validation: float {manifest['val_accuracy_float']:.4f}; {figures}; {ways[0]['method']} ships")
    if manifest["ram_bytes"] is None:
        say(console, f"memory: not measured by backend {manifest['backend'] or 'analytic'}")
    else:
        say(console, f"RAM {_of(manifest, 'ram')}, Flash {_of(manifest, 'flash')}, by {manifest['backend']}")
    for opinion in manifest["second_opinions"]:
        problems = "; ".join(violation["message"] for violation in opinion["violations"])
        say(console, f"{opinion['backend']}: {problems or 'fits'}")
        for note in opinion["notes"]:
            say(console, f"  {note}")
    if manifest["board"] is None:
        say(
            console,
            "board: not run (board.mode is none, the target has no emulator, or the backend builds no firmware)",
        )
    else:
        say(
            console,
            f"board {manifest['board']}: {_agreement(manifest)}, {manifest['instructions']} instructions per inference",
        )
    say(console, f"bundle: {folder.bundle}")
    say(console, f"report: {folder.report}")


def _agreement(manifest: dict[str, Any]) -> str:
    """Return how the board's outputs compare: bit by bit at int8; float32 sums in another order."""
    if manifest["precision"] == "int8":
        return f"{manifest['bit_equal_images']} of {manifest['board_images']} test images bit-equal to onnxruntime"
    largest = manifest["board_largest_difference"]
    return f"{manifest['board_images']} test images within {largest:.1g} of onnxruntime"


def _of(manifest: dict[str, Any], what: str) -> str:
    used, limit = manifest[f"{what}_bytes"], manifest[f"{what}_limit_bytes"]
    return f"{used / BYTES_PER_KB:.1f} of {limit / BYTES_PER_KB:g} KB"
