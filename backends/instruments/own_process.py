"""An instrument in a process of its own, behind a lock: a driver that hangs or crashes harms nobody.

The lock is the process's: with kill -9 it is gone, and whoever shares the folder shares the instrument.
"""

import multiprocessing
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from automcu_ray.core.errors import AutoMcuError, ConfigError, ToolMissingError
from automcu_ray.core.folder_lock import hold
from automcu_ray.runtime import plugins
from backends.instruments import INSTRUMENTS
from backends.instruments.base import Instrument, InstrumentError, Trace

ANSWER_S = 30.0
END_S = 5.0
_ERRORS = {error.__name__: error for error in (ConfigError, ToolMissingError)}


class Attached:
    """An instrument that another process drives."""

    def __init__(self, name: str, channel: Connection, timeout_s: float) -> None:
        self.name, self._channel, self._timeout_s = name, channel, timeout_s

    def start(self) -> None:
        """Begin to record.

        Raises:
            InstrumentError, ConfigError, ToolMissingError: the instrument's own, or its process has ended or hangs.
        """
        self._ask("start")

    def stop(self) -> Trace:
        """End the recording and return it; errors as for `start`."""
        found: Trace = self._ask("stop")
        return found

    def _ask(self, word: str) -> Any:
        try:
            self._channel.send(word)
            return self._answer()
        except (OSError, EOFError) as error:
            raise InstrumentError(
                f"instrument {self.name!r}: its process has ended ({type(error).__name__})."
            ) from error

    def _answer(self) -> Any:
        if not self._channel.poll(self._timeout_s):
            raise InstrumentError(f"instrument {self.name!r} should answer within {self._timeout_s:g} s; given up.")
        kind, found = self._channel.recv()
        if kind != "ok":
            raise _ERRORS.get(kind, InstrumentError)(found)
        return found


@contextmanager
def attached(name: str, options: Mapping[str, Any], locks: Path, *, timeout_s: float = ANSWER_S) -> Iterator[Attached]:
    """Start the process of an instrument and have it alone; the process is ended on every way out.

    Args:
        name: of `INSTRUMENTS`, or a plugin's.
        options: its own.
        locks: a folder that all share who share the instrument.
        timeout_s: how long it may take to answer.

    Raises:
        ConfigError: no such instrument or option.
        InstrumentError: somebody else has it, or it does not answer.
    """
    make = plugins.load("instrument", INSTRUMENTS, name)
    checked = plugins.check_options("instrument", name, make, dict(options))
    where = re.sub(r"\W+", "-", str(checked.get("port") or checked.get("path") or ""))[-60:]
    folder = locks / f"{name}{where and '.'}{where}"
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_serve, args=(name, checked, folder, theirs), name=f"instrument-{name}", daemon=True
    )
    process.start()
    theirs.close()
    served = Attached(name, ours, timeout_s)
    try:
        try:
            served._answer()
        except (OSError, EOFError) as error:
            raise InstrumentError(f"instrument {name!r}: its process did not start.") from error
        yield served
        with suppress(OSError):
            ours.send("close")
        process.join(END_S)
    finally:
        ours.close()
        process.kill()
        process.join()


def _serve(name: str, options: Mapping[str, Any], folder: Path, channel: Connection) -> None:
    """Drive an instrument by what comes through the channel, until it closes."""
    instrument: Instrument | None = None
    try:
        held = hold(folder)
    except BlockingIOError:
        channel.send(("InstrumentError", f"instrument {name!r} is in use by another process: {folder}."))
        return
    try:
        instrument = plugins.load("instrument", INSTRUMENTS, name)(**options)
        channel.send(("ok", None))
        while (word := channel.recv()) != "close":
            try:
                channel.send(("ok", instrument.start() if word == "start" else instrument.stop()))
            except AutoMcuError as error:
                channel.send((type(error).__name__, str(error)))
            except Exception as error:  # whatever a driver raises
                channel.send(("InstrumentError", f"instrument {name!r} broke: {type(error).__name__}: {error}"))
    except AutoMcuError as error:
        channel.send((type(error).__name__, str(error)))
    except EOFError:
        pass
    finally:
        if instrument is not None:
            with suppress(Exception):  # the process ends, and with it what it held
                instrument.close()
        os.close(held)
