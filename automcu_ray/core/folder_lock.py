"""A lock on a folder: one process holds it, and a dead one does not."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from automcu_ray.core.errors import ConfigError


def hold(folder: Path) -> int:
    """Return an open file that locks a folder until it is closed, by the process's end at the latest.

    Raises:
        BlockingIOError: another process holds it.
        OSError: no such folder, or a disk without locks.
    """
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise
    return file


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Make a folder of results, and work in it alone; one in which nothing was written goes again.

    Raises:
        ConfigError: another process works in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = None
    try:
        file = hold(folder.resolve())
    except BlockingIOError:
        raise ConfigError(
            f"{folder} is in use: another process is working there. Wait for its end, or take another folder."
        ) from None
    except OSError:  # a disk without locks: it does without
        pass
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # it is not empty
            folder.rmdir()
        if file is not None:
            os.close(file)
