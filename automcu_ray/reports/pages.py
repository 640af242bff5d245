"""HTML pages from the templates of this package."""

from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

_TEMPLATES = Path(__file__).parent / "templates"


def template(name: str, **filters: Callable[..., str]) -> Template:
    """Return a template; whatever is put into it is escaped, and a value that it misses is an error."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return environment.get_template(name)
