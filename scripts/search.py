"""Find, train, verify and package a neural network for a microcontroller."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs from a checkout that is not installed, too

import typer
from rich.console import Console

from automcu_ray.command import run_command
from automcu_ray.config import RunConfig, compose, names
from automcu_ray.errors import ConfigError
from automcu_ray.run_folder import RunFolder

if TYPE_CHECKING:
    from automcu_ray.plan import Plan

RUNS = Path(__file__).resolve().parents[1] / "runs"

EPILOG = """
Examples:

  python scripts/search.py --searcher random --set budget.trained=8

  python scripts/search.py --task cifar10 --target stm32f407 --set constraints.ram_kb=96

  python scripts/search.py --engine openai --set engine.base_url=http://localhost:8000/v1 --set engine.model=qwen

  python scripts/search.py --resume runs/latest

  python scripts/search.py --target rp2040 --warm-start runs/latest

  python scripts/search.py --searcher llm --show-prompt

KB means 1024 bytes. Any key of a run's config.yaml can be given to --set. Exit status: 0 a network was found,
1 none was, 2 the input or the machine needs fixing, 130 interrupted (what is finished is kept; go on with --resume).
"""


def _group(group: str, what: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        f"--{group}", metavar="NAME", help=f"{what}: {', '.join(names(group))}, or the path of a YAML file."
    )
    return option


def search(
    searcher: Annotated[str | None, _group("searcher", "Who proposes")] = None,
    task: Annotated[str | None, _group("task", "Data set, target and limits")] = None,
    target: Annotated[str | None, _group("target", "Microcontroller (scripts/doctor.py tells more)")] = None,
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Data set, or table of nasbench201, in place of the task's.")
    ] = None,
    engine: Annotated[str | None, _group("engine", "What answers an LLM searcher")] = None,
    backend: Annotated[str | None, _group("backend", "Toolchain")] = None,
    trainer: Annotated[str | None, _group("trainer", "Training protocols")] = None,
    precision: Annotated[str | None, typer.Option(help="int8 or float32.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of proposals, weights and batches.")] = None,
    warm_start: Annotated[
        list[Path] | None, typer.Option(help="Begin with the best of this run, whatever its target; can be repeated.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other key; can be repeated.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run's folder; made up if left out.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder that holds the runs.", show_default="runs")] = RUNS,
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
    choices = dict(task=task, dataset=dataset, searcher=searcher, target=target, engine=engine, backend=backend)
    choices["trainer"] = trainer
    points = json.dumps([str(path) for path in warm_start]) if warm_start else None
    flags = {"precision": precision, "seed": seed, "warm_start.runs": points}
    if resume is not None:
        if any(change is not None for change in (*choices.values(), *flags.values(), name, settings)):
            raise ConfigError("--resume goes on with the run's own config.yaml: leave the other flags out.")
        folder, config = RunFolder.existing(resume)
    else:
        extra = [f"{key}={value}" for key, value in flags.items() if value is not None]
        config = compose(choices, [*(settings or []), *extra])
        folder = RunFolder.new(runs, name, config)
    if show_prompt:
        _show_prompt(config, folder)
        return
    raise typer.Exit(_run(config, folder, resumed=resume is not None, dry_run=dry_run))


def _show_prompt(config: RunConfig, folder: RunFolder) -> None:
    from automcu_ray.assembly import next_prompts
    from automcu_ray.screen import show_prompts

    show_prompts(Console(), next_prompts(_prepare(config, folder), folder))


def _prepare(config: RunConfig, folder: RunFolder) -> "Plan":
    """Return the plan of a run; one that goes on needs no other run any more, which may be gone by now."""
    from automcu_ray.plan import prepare
    from automcu_ray.repository import Repository

    return prepare(config, begun=bool(Repository(folder.journal).proposed))


def _run(config: RunConfig, folder: RunFolder, *, resumed: bool, dry_run: bool) -> int:
    """Run and return the exit status."""
    from automcu_ray import supervisor  # only now that the configuration is sound: torch and Ray take seconds
    from automcu_ray.screen import intro, outcome, show_config

    console = Console()
    plan = _prepare(config, folder)
    if dry_run:
        show_config(console, config)
        return 0
    intro(console, plan.config, plan.task, plan.engine, folder)
    manifest, interrupted = None, False
    try:
        manifest = supervisor.run(plan, folder, console, resumed=resumed)
    except KeyboardInterrupt:
        interrupted = True
    return outcome(console, folder, plan.task, manifest, interrupted=interrupted)


def main() -> None:
    """Run the command; errors of the user's input or machine are one line on stderr and exit status 2."""
    run_command(search, EPILOG)


if __name__ == "__main__":
    main()
