"""The vocabulary of the project, and what more than one folder needs.

For notebooks and scripts: `from automcu_ray import search, task`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from automcu_ray.run.api import SearchResult, search, task

__all__ = ["SearchResult", "search", "task"]


def __getattr__(name: str) -> Any:
    """Return a part of the API when it is asked for: torch and Ray take seconds, and most imports need neither."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from automcu_ray.run import api

    return getattr(api, name)
