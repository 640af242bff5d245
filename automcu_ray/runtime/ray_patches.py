"""What is changed in Ray from outside, for want of an option: its tracebacks stay off the screen."""

import logging
from typing import Any

from ray._private import worker


def hush() -> None:
    """Leave a trial's failure to its record and its error.txt; called once Ray has set up its loggers."""
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    if hasattr(worker, "print_to_stdstream"):  # left as it is where Ray has renamed it
        worker.print_to_stdstream = _say_nothing


def _say_nothing(data: Any, ignore_prefix: bool) -> None:
    """Print nothing where Ray would print what its other processes say: a dead one's last words take 25 lines."""
