"""Plugins by name: tables of "module:Class", imported when used, so that no one needs what they do not use."""

import importlib
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from automcu_ray.errors import ConfigError, unknown_name
from automcu_ray.frozen import rule


def load(kind: str, table: Mapping[str, str], name: str) -> Any:
    """Return the class or function that a table lists under `name`.

    Raises:
        ConfigError: no such name; the nearest one is offered.
    """
    if name not in table:
        raise unknown_name(kind, name, table)
    module, _, attribute = table[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def check_options(
    kind: str, name: str, make: Callable[..., Any], options: Mapping[str, Any], *, given: Collection[str] = ()
) -> dict[str, Any]:
    """Return the options with their values in the types that `make` declares for its keyword-only arguments.

    `given` are arguments that the caller fills in itself: no option may.

    Raises:
        ConfigError: an option that `make` does not have, or a value of the wrong type or out of its range.
    """
    parameters = inspect.signature(make).parameters.values()
    known = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY and p.name not in given]
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
