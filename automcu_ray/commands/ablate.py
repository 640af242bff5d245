"""Compare searchers: each searcher of a sweep on each task with each seed, as one table, one page and one Parquet."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from automcu_ray.runtime import interruption
from automcu_ray.runtime.command import run_command
from automcu_ray.runtime.config_files import names
from automcu_ray.studies.sweep import load_sweep, runs

EPILOG = """
Examples:

  automcu ablate --sweep table3

  automcu ablate --sweep mcu_digits --set engine=openai --out runs/mcu-with-a-model

  automcu ablate --sweep my_sweep.yaml --seeds 3

A sweep started again goes on where it stopped: a run that is done is not repeated, a run that was cut short is resumed.
Exit status: 0 all runs are done, 1 a run failed, 2 the input or the machine needs fixing, 130 or 143 interrupted.
"""


def ablate(
    sweep: Annotated[
        str, typer.Option(metavar="NAME", help=f"{', '.join(names('sweep'))}, or the path of a YAML file.")
    ] = "table3",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many seeds, in place of the sweep's own number.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="For every run; can be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the results.", show_default="runs/ablate/NAME")] = None,
) -> None:
    """Run a sweep, or what is left of it, and write table.md, results.parquet and index.html."""
    interruption.postpone()
    found = load_sweep(sweep)
    if seeds is not None:
        found = found.replace(seeds=seeds)
    todo = list(runs(found, settings or ()))
    from automcu_ray.run.run_sweep import run_sweep  # only now that the configuration is sound: Ray takes seconds

    raise typer.Exit(run_sweep(found, todo, out or Path("runs", "ablate", Path(sweep).stem), Console()))


def main() -> None:
    """Run the command; errors of the user's input or machine are one line on stderr and exit status 2."""
    run_command(ablate, EPILOG)
