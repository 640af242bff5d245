"""Plugins by name, as "module:Class", imported when used, so that no one needs what they do not use.

Ours are in tables; those of other packages are entry points of the groups automcu.searchers, automcu.engines,
automcu.backends and automcu.datasets.
"""

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from automcu_ray.core.errors import ConfigError, unknown_name
from automcu_ray.core.models import rule


def known(kind: str, table: Iterable[str] = ()) -> list[str]:
    """Return the names of a kind of plugin: those of our `table`, then those of other packages' entry points."""
    return list(dict.fromkeys([*table, *sorted(_entries(kind).names)]))


def load(kind: str, table: Mapping[str, str], name: str) -> Any:
    """Return the class or function that our table, or an entry point of another package, has under `name`.

    Raises:
        ConfigError: no such name (the nearest one is offered), more than one, or another package's cannot be imported.
    """
    found = list(_entries(kind).select(name=name))
    claims = [table[name]] if name in table else []
    claims += [f"{entry.value} of package {entry.dist.name if entry.dist else '?'}" for entry in found]
    if not claims:
        raise unknown_name(kind, name, known(kind, table))
    if len(claims) > 1:
        raise ConfigError(
            f"{kind} {name!r} is both {' and '.join(claims)}: have one renamed, or uninstall its package."
        )
    if name in table:
        return EntryPoint(name, table[name], _group(kind)).load()
    try:
        return found[0].load()
    except Exception as error:  # strangers' code: anything
        told = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ConfigError(
            f"{kind} {name!r}, {claims[0]}, cannot be imported: {told}. Repair or uninstall it."
        ) from error


def _group(kind: str) -> str:
    return f"automcu.{kind}s"


def _entries(kind: str) -> EntryPoints:
    return _installed(_group(kind), tuple(sys.path))


@lru_cache
def _installed(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Return a group's entry points of all packages on the import `path`: milliseconds to read, so they are kept."""
    return entry_points(group=group)


def options_of(make: Callable[..., Any]) -> list[str]:
    """Return the names of a plugin's options: its keyword-only arguments."""
    parameters = inspect.signature(make).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]


def check_options(
    kind: str, name: str, make: Callable[..., Any], options: Mapping[str, Any], *, given: Collection[str] = ()
) -> dict[str, Any]:
    """Return the options with their values in the types that `make` declares for its keyword-only arguments.

    `given` are arguments that the caller fills in itself: no option may.

    Raises:
        ConfigError: an option that `make` does not have, or a value of the wrong type or out of its range.
    """
    known = [option for option in options_of(make) if option not in given]
    hints = get_type_hints(make.__init__ if inspect.isclass(make) else make, include_extras=True)  # with their ranges
    checked = {}
    for key, value in options.items():
        if key not in known:
            raise unknown_name(f"{kind} option", key, known, of=name)
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(hints[key], config=ConfigDict(arbitrary_types_allowed=True))
            checked[key] = adapter.validate_python(value)
        except ValidationError as error:
            raise ConfigError(f"{kind}.{key}: {rule(error.errors()[0])}, found {value!r}.") from error
    return checked
