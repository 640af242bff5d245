"""What is changed in Ray from outside, for want of an option; each is left as it is where Ray has renamed it."""

import logging
from typing import Any

from ray._private import worker

from automcu_ray.runtime import interruption


def apply() -> None:
    """Let no signal abort this process while Ray connects it, and keep Ray's tracebacks off the screen."""
    for name, ours in (("connect", _connect), ("print_to_stdstream", _say_nothing)):
        if hasattr(worker, name):
            setattr(worker, name, ours)


def hush() -> None:
    """Leave a trial's failure to its record and its error.txt; called once Ray has set up its loggers."""
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)


_rays_connect = getattr(worker, "connect", None)


def _connect(*arguments: Any, **options: Any) -> Any:
    """Connect; for these seconds SIGTERM would print Ray's own stack and abort, until our handlers are back."""
    assert _rays_connect is not None
    with interruption.postponed():
        return _rays_connect(*arguments, **options)


def _say_nothing(data: Any, ignore_prefix: bool) -> None:
    """Print nothing where Ray would print what its other processes say: a dead one's last words take 25 lines."""
