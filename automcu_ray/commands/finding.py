"""One thing that `automcu doctor` found, and how whatever breaks meanwhile becomes one."""

from collections.abc import Callable
from dataclasses import dataclass

MAX_CHARS = 300


@dataclass(frozen=True)
class Finding:
    """One thing that a run may need: usable, or what it `needs`; `does` says what it measures or is for."""

    kind: str
    name: str
    usable: bool
    version: str = ""
    does: str = ""
    needs: str = ""


def check(kind: str, name: str, look: Callable[[], Finding]) -> Finding:
    """Return what `look` finds; whatever breaks there, in a plugin that nobody here wrote, is the finding."""
    try:
        return look()
    except Exception as error:
        return broken(kind, name, error)


def broken(kind: str, name: str, error: Exception) -> Finding:
    """Return the finding that something is broken."""
    text = " ".join(str(error).split()) or "no reason given"
    known = type(error).__module__.startswith("automcu_ray")
    needs = text if known else f"it is broken: {type(error).__name__}: {text}"
    return Finding(kind, name, usable=False, needs=needs[:MAX_CHARS])
