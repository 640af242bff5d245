"""Compare searchers: each searcher of a sweep on each task with each seed, as one table, one page and one Parquet."""

import sys
from pathlib import Path
from typing import Annotated

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs from a checkout that is not installed, too

import typer
from rich.console import Console

from automcu_ray.command import run_command
from automcu_ray.config import names
from automcu_ray.sweep import load_sweep, runs

OUT = Path(__file__).resolve().parents[1] / "runs" / "ablate"

EPILOG = """
Examples:

  python scripts/ablate.py --sweep table3

  python scripts/ablate.py --sweep mcu_digits --set engine=openai --out runs/mcu-with-a-model

  python scripts/ablate.py --sweep my_sweep.yaml --seeds 3

A sweep started again goes on where it stopped: a run that is done is not repeated, a run that was cut short is resumed.
Exit status: 0 all runs are done, 1 a run failed, 2 the input or the machine needs fixing, 130 interrupted.
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
    found = load_sweep(sweep)
    if seeds is not None:
        found = found.model_copy(update={"seeds": seeds})
    todo = list(runs(found, settings or ()))
    from automcu_ray.sweeper import run_sweep  # only now that the configuration is sound: Ray takes seconds

    raise typer.Exit(run_sweep(found, todo, out or OUT / Path(sweep).stem, Console()))


def main() -> None:
    """Run the command; errors of the user's input or machine are one line on stderr and exit status 2."""
    run_command(ablate, EPILOG)


if __name__ == "__main__":
    main()
