"""One line for a process that ends without a word: kill -9 ends it so, and Ray's C++ where its object store is gone."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from automcu_ray.runtime import ray_agents


@contextlib.contextmanager
def last_words(line: str) -> Iterator[None]:
    """Have a line said on stderr by a small process beside this one, should this one not come out of the block.

    It then ends the agents of the Ray that this process has started, which would else stay for a minute.
    """
    command = [sys.executable, "-I", "-S", ray_agents.__file__, str(os.getpid()), line]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as beside:
        try:
            yield
        finally:
            assert beside.stdin is not None, "it is a pipe"
            with contextlib.suppress(BrokenPipeError):  # somebody has ended it
                beside.stdin.write(ray_agents.SAID.encode())
                beside.stdin.close()
