"""YAML as anyone may write it: the value that it holds, or one error."""

from typing import Any

import yaml

_DEEPEST = 32
_MOST_VALUES = 100_000  # aliases multiply: a line of a hundred characters can stand for more than memory holds


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text.

    Raises:
        ValueError: it is no YAML, or holds itself, or more than anyone configures; the message is one line.
    """
    try:
        value = yaml.safe_load(text)
    except Exception as error:  # for dates, tags and depth the parser raises whatever its parts do
        raise ValueError(" ".join(str(error).split())[:200] or type(error).__name__) from error
    left, seen = [(value, 0)], 0
    while left:
        one, depth = left.pop()
        seen += 1
        if depth > _DEEPEST or seen > _MOST_VALUES:
            raise ValueError(f"more than {_DEEPEST} levels or {_MOST_VALUES} values")
        if isinstance(one, dict):
            left.extend((part, depth + 1) for pair in one.items() for part in pair)
        elif isinstance(one, list | tuple | set):
            left.extend((part, depth + 1) for part in one)
    return value
