"""The YAML files that configurations are made of: those of configs/ by group and name, and a user's own by path."""

from pathlib import Path
from typing import Any

from automcu_ray.core.errors import ConfigError, unknown_name
from automcu_ray.core.yaml_text import parse_yaml
from automcu_ray.runtime import plugins

CONFIGS = Path(__file__).resolve().parents[2] / "configs"  # beside this package, in a checkout and where pip put it


def names(group: str) -> list[str]:
    """Return the names that configs/<group> offers, and those of plugins in packages of their own."""
    return plugins.known(group, sorted(path.stem for path in (CONFIGS / group).glob("*.yaml")))


def read_yaml(path: Path) -> dict[str, Any]:
    """Return a YAML mapping.

    Raises:
        ConfigError: no such file, or not a mapping.
    """
    try:
        data = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no file {path}: give the path of a YAML file.") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {' '.join(str(error).split())[:200]}.") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold `key: value` lines, found {type(data).__name__}.")
    return data


def load(group: str, name: str) -> dict[str, Any]:
    """Return a file of configs/<group> by name, or any YAML file by its path; of a plugin without file its name.

    Raises:
        ConfigError: no such name or file, or not a mapping.
    """
    if name.endswith((".yaml", ".yml")):
        return read_yaml(Path(name))
    if name not in names(group):
        raise unknown_name(group, name, names(group))
    path = CONFIGS / group / f"{name}.yaml"
    return read_yaml(path) if path.exists() else {"name": name}
