"""One line for a process that ends without a word: kill -9 ends it so, and Ray's C++ where its object store is gone."""

import contextlib
import subprocess
from collections.abc import Iterator

_SAY_UNLESS_TOLD = 'read -r _ || echo "$0" >&2'  # the other end of its input is this process alone: its end closes that


@contextlib.contextmanager
def last_words(line: str) -> Iterator[None]:
    """Have a line said on stderr by a small process beside this one, should this one not come out of the block."""
    with subprocess.Popen(
        ["sh", "-c", _SAY_UNLESS_TOLD, line], stdin=subprocess.PIPE, start_new_session=True
    ) as beside:
        try:
            yield
        finally:
            with contextlib.suppress(BrokenPipeError):  # somebody has ended it
                beside.communicate(b"\n")
