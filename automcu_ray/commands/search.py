"""Find, train, verify and package a neural network for a microcontroller."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from automcu_ray.commands.options import group_option
from automcu_ray.core.errors import ConfigError
from automcu_ray.runtime import interruption
from automcu_ray.runtime.command import run_command
from automcu_ray.runtime.config import compose, validate
from automcu_ray.runtime.run_folder import RunFolder
from automcu_ray.runtime.sentence import Reading, describe, understand

SentenceReader = Callable[[str, Mapping[str, str | None]], Reading]

EPILOG = """
Examples:

  automcu search "handwritten digits on an STM32F407 in 32 KB RAM and 64 KB flash, at least 97 %"

  automcu search --searcher random --set budget.trained=8

  automcu search --task cifar10 --target stm32f407 --set constraints.ram_kb=96

  automcu search --engine openai --set engine.base_url=http://localhost:8000/v1 --set engine.model=qwen

  automcu search --set objective=instructions --set constraints.accuracy=0.98

  automcu search --resume runs/latest

  automcu search --target rp2040 --warm-start runs/latest

  automcu search --start-from model.onnx --dry-run

  automcu search --address auto --runs /shared/runs

  automcu search --searcher llm --show-prompt

KB means 1024 bytes. Any key of a run's config.yaml can be given to --set, sizes and times with their units as well
(constraints.ram=24KB, budget.time=10min). Exit status: 0 a network was found,
1 none was, 2 the input or the machine needs fixing, 130 (Ctrl-C) or 143 (SIGTERM) interrupted: what is finished is
kept; go on with --resume.
"""


def search(
    sentence: Annotated[
        str | None, typer.Argument(metavar="[SENTENCE]", help="What is wanted, in words; flags go over it.")
    ] = None,
    searcher: Annotated[str | None, group_option("searcher", "Who proposes")] = None,
    task: Annotated[str | None, group_option("task", "Data set, target and limits")] = None,
    target: Annotated[str | None, group_option("target", "Microcontroller (automcu doctor tells more)")] = None,
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Data set, or table of nasbench201, in place of the task's.")
    ] = None,
    engine: Annotated[str | None, group_option("engine", "What answers an LLM searcher")] = None,
    backend: Annotated[str | None, group_option("backend", "Toolchain")] = None,
    trainer: Annotated[str | None, group_option("trainer", "Training protocols")] = None,
    precision: Annotated[str | None, typer.Option(help="int8 or float32.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of proposals, weights and batches.")] = None,
    warm_start: Annotated[
        list[Path] | None, typer.Option(help="Begin with the best of this run, whatever its target; can be repeated.")
    ] = None,
    start_from: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Begin with a network of your own, model.onnx or net.py: read as the nearest spec and made to fit; "
            "with searcher.form=code, net.py is the code that is improved. Weights are not taken over.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other key; can be repeated.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(metavar="auto|HOST:PORT", help="Join this Ray cluster; with --resume, too.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run's folder; made up if left out.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder that holds the runs.")] = Path("runs"),
    resume: Annotated[Path | None, typer.Option(help="Go on with a run: its folder, e.g. runs/latest.")] = None,
    show_prompt: Annotated[
        bool, typer.Option("--show-prompt", help="Print what an engine would be asked next, stop.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, show the configuration, stop.")] = False,
) -> None:
    """Search for the best network that fits a microcontroller, and package it.

    Every candidate meets the toolchain before it is trained. The best ones are trained fully, compiled with
    their weights, run on the emulated board, and the winner sees the test set once. Without flags: handwritten
    digits on an STM32F405 within 24 KB RAM and 48 KB Flash, in a few minutes on two cores.
    """
    interruption.postpone()
    choices = dict(task=task, dataset=dataset, searcher=searcher, target=target, engine=engine, backend=backend)
    choices["trainer"] = trainer
    points = json.dumps([str(path) for path in warm_start]) if warm_start else None
    flags = {"precision": precision, "seed": seed, "warm_start.runs": points}
    flags["start_from"] = json.dumps(str(start_from)) if start_from else None
    joined = {"ray_address": address} if address is not None else {}
    if resume is not None:
        if any(change is not None for change in (*choices.values(), *flags.values(), name, settings, sentence)):
            raise ConfigError("--resume goes on with the run's own config.yaml: leave the other flags out.")
        folder, config = RunFolder.existing(resume)
        config = validate({**config.model_dump(), "resources": {**config.resources.model_dump(), **joined}})
    else:
        reading = None
        if sentence is not None:
            reading = asked_for(sentence, choices, Console(), _readers(engine, settings))
            wish = reading.understood.wish
            choices |= {key: value for key, value in wish.choices.items() if choices[key] is None}
            settings = [*wish.settings, *(settings or [])]
        extra = [f"{key}={value}" for key, value in flags.items() if value is not None]
        extra += [f"resources.{key}={json.dumps(value)}" for key, value in joined.items()]
        config = compose(choices, [*(settings or []), *extra])
        folder = RunFolder.new(runs, name, config)
    from automcu_ray.records.events import SentenceRead
    from automcu_ray.records.journal import Repository  # only now that the configuration is sound: torch takes seconds
    from automcu_ray.reports.console import intro, outcome, say, show_config, show_prompts
    from automcu_ray.run import supervisor
    from automcu_ray.run.assembly import next_prompts
    from automcu_ray.run.plan import prepare

    console = Console()
    # A run that goes on needs no other run any more, which may be gone by now.
    plan = prepare(config, begun=bool(Repository(folder.journal).proposed))
    if show_prompt:
        show_prompts(console, next_prompts(plan, folder))
        return
    if dry_run:
        show_config(console, config)
        for line in plan.started_from:
            say(console, line)
        return
    intro(console, plan.config, plan.task, plan.engine, folder)
    for line in plan.started_from:
        say(console, line)
    manifest, interrupted, read = None, False, None
    if sentence is not None and reading is not None and reading.said:
        read = SentenceRead(sentence=sentence, said=reading.said, cost=reading.cost)
    try:
        manifest = supervisor.run(plan, folder, console, resumed=resume is not None, sentence=read)
    except KeyboardInterrupt:
        interrupted = True
    raise typer.Exit(outcome(console, folder, plan.task, manifest, interrupted=interrupted))


def asked_for(
    sentence: str, given: Mapping[str, str | None], console: Console, read: SentenceReader | None = None
) -> Reading:
    """Return what a sentence asks for, after showing it; at a terminal its questions are asked there.

    `read` is who else reads it, where the grammar leaves something open; the cost is that of all readings.

    Raises:
        ConfigError: something is missing or contradictory, and there is nobody to ask.
    """
    read = read or (lambda text, known: Reading(understand(text, known)))
    understood, by, cost = read(sentence, given)
    while understood.questions and sys.stdin.isatty() and console.is_terminal:
        what, question = next(iter(understood.questions.items()))
        answer = console.input(Text(f"{question} "))
        if not answer.strip():
            break
        sentence = f"{sentence}; {what}: {answer}"
        understood, by, more = read(sentence, given)
        cost += more
    if by:
        console.print(Text(by))
    if understood.questions:
        raise ConfigError("the sentence leaves open: " + " ".join(understood.questions.values()))
    console.print(Text("understood: " + "; ".join(describe(understood.wish))))
    if understood.passed_over:
        console.print(Text("passed over: " + ", ".join(understood.passed_over)[:300]))
    return Reading(understood, by, cost)


def _readers(engine: str | None, settings: Sequence[str] | None) -> SentenceReader:
    """Return a reader: the grammar, and the engine of these flags where it can read what the grammar leaves open."""

    def read(sentence: str, given: Mapping[str, str | None]) -> Reading:
        alone = understand(sentence, given)
        if not alone.questions and not alone.passed_over:
            return Reading(alone)
        from automcu_ray.reports.console import harmless  # only now: most sentences need none of this
        from automcu_ray.run.sentence_engine import read_sentence
        from searchers.engines import pick_engine

        mine = [setting for setting in settings or () if setting.startswith("engine")]
        config = compose({"engine": engine}, mine).engine
        picked = pick_engine(config.name, config.options)
        if not picked.reads_sentences:
            return Reading(alone)
        try:
            found = read_sentence(picked, sentence, given)
            return found._replace(said=harmless(found.said))
        finally:
            picked.close()

    return read


def main() -> None:
    """Run the command; errors of the user's input or machine are one line on stderr and exit status 2."""
    run_command(search, EPILOG)
