"""Options that several commands have."""

import typer

from automcu_ray.runtime.config_files import names


def group_option(group: str, what: str) -> typer.models.OptionInfo:
    """Return the option that picks a file of `configs/<group>`; its help lists their names."""
    option: typer.models.OptionInfo = typer.Option(
        f"--{group}", metavar="NAME", help=f"{what}: {', '.join(names(group))}, or the path of a YAML file."
    )
    return option
