"""A command line: typer for the arguments, one line on stderr for what the user has to fix."""

import sys
from collections.abc import Callable
from typing import Any

import typer

from automcu_ray.core.errors import AutoMcuError, ConfigError, ToolMissingError

FIX_AND_TRY_AGAIN = 2
STYLE: dict[str, Any] = dict(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")


def run_command(command: Callable[..., Any], epilog: str = "") -> None:
    """Run one command with the arguments of this process; errors as in `run_app`."""
    app = typer.Typer(**STYLE)
    app.command(epilog=epilog)(command)
    run_app(app)


def run_app(app: typer.Typer) -> None:
    """Run an app with the arguments of this process; exit status 2 where the input or the machine needs fixing."""
    try:
        app()
    except AutoMcuError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(FIX_AND_TRY_AGAIN if isinstance(error, ConfigError | ToolMissingError) else 1)
