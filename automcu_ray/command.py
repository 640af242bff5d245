"""A script's command line: typer for the arguments, one line on stderr for what the user has to fix."""

import sys
from collections.abc import Callable
from typing import Any

import typer

from automcu_ray.errors import AutoMcuError, ConfigError, ToolMissingError

FIX_AND_TRY_AGAIN = 2


def run_command(command: Callable[..., Any], epilog: str = "") -> None:
    """Run a command with the arguments of this process; exit status 2 where the input or the machine needs fixing."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.command(epilog=epilog)(command)
    try:
        app()
    except AutoMcuError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(FIX_AND_TRY_AGAIN if isinstance(error, ConfigError | ToolMissingError) else 1)
