"""Let an agent refine firmware against feedback of a board: build, flash, measure, refine."""

from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console

from automcu_ray.core.errors import ConfigError
from automcu_ray.problem.arena import Setting
from automcu_ray.runtime import interruption
from automcu_ray.runtime.command import run_command
from automcu_ray.runtime.config_files import names
from automcu_ray.runtime.run_folder import RunFolder

SETTINGS: tuple[Setting, ...] = get_args(Setting)

EPILOG = """
Examples:

  automcu arena --engine openai --set engine.base_url=http://localhost:8000/v1 --set engine.model=qwen

  automcu arena --task qemu_ram --setting score --setting doc --setting hil --set attempts=5 --engine openai

  automcu arena --resume runs/latest

Settings: score tells the agent whether an artifact was valid and its objective, doc adds documents, hil adds what the
checks, the board and its serial port said. Exit status: 0 a valid artifact was found, 1 none was, 2 the input or the
machine needs fixing, 130 or 143 interrupted: go on with --resume.
"""


def arena(
    task: Annotated[
        str, typer.Option(metavar="NAME", help=f"{', '.join(names('arena'))}, or the path of a YAML file.")
    ] = "qemu_speed",
    searcher: Annotated[str, typer.Option(metavar="NAME", help="Who refines: agent.")] = "agent",
    setting: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help=f"What it is told: {', '.join(SETTINGS)}; can be repeated.", show_default="hil"
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="NAME", help=f"What answers: {', '.join(names('engine'))}, or a YAML file.")
    ] = "auto",
    judge: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What is asked, after all checks by machine, whether an artifact keeps the rules: none, or an engine.",
        ),
    ] = "none",
    seed: Annotated[int, typer.Option(min=0, help="Of the engine's requests.")] = 0,
    boards: Annotated[
        Path | None, typer.Option(help="A map of boards (YAML, key boards).", show_default="one in QEMU")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Of the task, or engine.X, judge.X; can be repeated."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run's folder; made up if left out.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder that holds the runs.")] = Path("runs"),
    resume: Annotated[Path | None, typer.Option(help="Go on with a run: its folder, e.g. runs/latest.")] = None,
) -> None:
    """Play a task of the arena: an agent edits C, a board says what it is worth; write report.html."""
    interruption.postpone()
    told = tuple(one for one in SETTINGS if one in (setting or ["hil"]))
    if unknown := [one for one in setting or [] if one not in SETTINGS]:
        raise ConfigError(f"--setting: one of {', '.join(SETTINGS)}, found {unknown[0][:40]!r}.")
    from automcu_ray.run import run_arena  # only now that the flags are sound: torch and Ray take seconds
    from searchers.engines import pick_engine

    if resume is not None:
        folder, config = run_arena.existing(resume)
    else:
        config = run_arena.compose(task, told, searcher, engine, seed, settings or [], boards, judge)
        folder = RunFolder.named(runs, name, f"{config.task.name}-{searcher}-s{seed}")
    asked = pick_engine(config.engine.name, config.engine.options)
    judging = pick_engine(config.judge.name, config.judge.options) if config.judge else None
    run_arena.check_machine(config, asked, judging)
    raise typer.Exit(run_arena.run(config, asked, folder, Console(), judging))


def main() -> None:
    """Run the command; errors of the user's input or machine are one line on stderr and exit status 2."""
    run_command(arena, EPILOG)
