"""A command line: typer for the arguments, one line on stderr for what the user has to fix."""

import errno
import os
import sys
from collections.abc import Callable
from typing import Any

import typer

from automcu_ray.core.errors import AutoMcuError, ConfigError, ToolMissingError
from automcu_ray.runtime import interruption

FIX_AND_TRY_AGAIN = 2
KEPT = "What is finished is kept: go on (search: --resume; else by the same command)."
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
STYLE: dict[str, Any] = dict(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")


def run_command(command: Callable[..., Any], epilog: str = "") -> None:
    """Run one command with the arguments of this process; errors as in `run_app`."""
    app = typer.Typer(**STYLE)
    app.command(epilog=epilog)(command)
    run_app(app)


def run_app(app: typer.Typer) -> None:
    """Run an app with the arguments of this process.

    Exit status 2 where the input, the machine or the disk needs fixing, 130 after Ctrl-C, 143 after SIGTERM.
    """
    interruption.listen()
    try:
        _run(app)
    finally:
        if interruption.urgent():  # Ray has died, and would be waited for at this process's end
            ended = sys.exc_info()[1]
            if not isinstance(ended, SystemExit):  # its death came while an error of another kind was on its way
                print(f"error: Ray has ended before its time ({type(ended).__name__}). {KEPT}", file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ended.code if isinstance(ended, SystemExit) and isinstance(ended.code, int) else FIX_AND_TRY_AGAIN)


def _run(app: typer.Typer) -> None:
    try:
        app()
    except SystemExit as ended:  # 130: perhaps typer's, of a KeyboardInterrupt that nobody below has handled
        sys.exit(interruption.status() if ended.code == 130 else ended.code)
    except AutoMcuError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(FIX_AND_TRY_AGAIN if isinstance(error, ConfigError | ToolMissingError) else 1)
    except Exception as error:
        if (trouble := _of_the_disk(error)) is None:
            raise
        where = f"{trouble.filename}: " if trouble.filename else ""
        print(
            f"error: {where}{trouble.strerror}. Make room, or the folder writable. {KEPT}",
            file=sys.stderr,
        )
        sys.exit(FIX_AND_TRY_AGAIN)


def _of_the_disk(error: BaseException) -> OSError | None:
    """Return the first error of a full or write-protected disk that led to an error."""
    found, seen = None, set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        if isinstance(one, OSError) and one.errno in _DISK:
            found = one
        one = one.__cause__ or one.__context__
    return found
