"""The errors a user meets: one class per reaction, not per cause."""

import difflib
from collections.abc import Iterable

_MOST_CHARS = 2_400  # of a message: what a stranger's file is quoted with may be as long as the file


class AutoMcuError(Exception):
    """Base class: its message says what was wanted, what was found and what to do next; a long one loses its middle."""

    def __str__(self) -> str:
        text, half = super().__str__(), _MOST_CHARS // 2
        return text if len(text) <= _MOST_CHARS else f"{text[:half]} ... {text[-half:]}"


class ConfigError(AutoMcuError):
    """Fix the file or the flag: scripts print one line and exit with 2."""


class ToolMissingError(AutoMcuError):
    """Fix the machine: a program that a rung needs is not installed."""


class ToolchainError(AutoMcuError):
    """A toolchain broke on this candidate (crash, timeout, rubbish): the candidate becomes a record."""


class BoardError(AutoMcuError):
    """The board (emulated or real) did not answer as agreed: retry once."""


class EngineError(AutoMcuError):
    """An engine gave no usable text: retried with a bound, then recorded."""


def unknown_name(kind: str, found: str, known: Iterable[str], *, of: str = "") -> ConfigError:
    """Return the error for a name that is not in a table (`of` whom), with the nearest valid name."""
    names = sorted(known)
    near = difflib.get_close_matches(found, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    whose = f"{of!r} has" if of else "known"
    return ConfigError(f"unknown {kind} {found!r}: {hint}{whose}: {', '.join(names) or 'none'}.")


def first_line(error: Exception) -> str:
    """Return what kind of error a library gave, and the first line of what it said."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
