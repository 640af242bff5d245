"""Compare runs on one page."""

from pathlib import Path
from typing import Annotated

import typer

from automcu_ray.core.errors import ConfigError

EPILOG = """
Examples:

  automcu report runs/a runs/b

  automcu report runs/digits-* --to digits.html

A run has a page of its own, RUN/report.html, which `automcu watch RUN` shows while it is written.
"""


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of two or more runs, finished or not.")],
    to: Annotated[Path, typer.Option(help="The page to write.")] = Path("comparison.html"),
) -> None:
    """Write one page that compares runs: figures, settings that differ, best accuracy so far."""
    from automcu_ray.studies.comparison import read_runs, write_comparison  # takes a second: others need not wait

    if len(runs) < 2:
        raise ConfigError(f"two or more runs are wanted, found one: its own page is {runs[0] / 'report.html'}.")
    if not to.parent.is_dir():
        raise ConfigError(f"--to {to}: there is no folder {to.parent}.")
    write_comparison(to, read_runs(runs))
    print(f"comparison: {to}")
