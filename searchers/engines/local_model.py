"""What engines that run a model themselves share: which model, whether its packages are there, how they fail."""

import importlib.util
import os
from pathlib import Path

from automcu_ray.core.errors import ConfigError, ToolMissingError
from searchers.engines import small_model


def find_model(engine: str, model: str | None) -> str:
    """Return the model to load: the absolute path of a folder, `smollm2`, or a name that Hugging Face's hub knows.

    Raises:
        ConfigError: neither the option nor AUTOMCU_MODEL names one, or it is a path to no model.
        ToolMissingError: it is `smollm2`, which is not installed.
    """
    found = model or os.environ.get("AUTOMCU_MODEL")
    if not found:
        raise ConfigError(
            f"engine {engine!r} needs a model: set engine.model or AUTOMCU_MODEL, found neither. A small "
            f"one that needs no hub is {small_model.NAME!r}: {small_model.how_to_install()}."
        )
    if found == small_model.NAME:
        small_model.check_installed(engine)
        return found
    folder = Path(found).expanduser()
    if (folder / "config.json").is_file():
        return str(folder.resolve())  # Tune changes the working directory
    if folder.is_dir() or found.startswith(("/", ".", "~")) or found.count("/") > 1:
        raise ConfigError(
            f"engine {engine!r}: engine.model wants a folder with a model's config.json, or a name on the hub, "
            f"found {found!r}."
        )
    return found


def is_local(model: str) -> bool:
    """Return whether a model that was found lies on this machine, so that no hub need be asked."""
    return os.path.isabs(model) or model == small_model.NAME


def folder_or_name(model: str) -> str:
    """Return what transformers and vLLM take for a model that was found; of `smollm2` it is made at the first use."""
    return str(small_model.folder()) if model == small_model.NAME else model


def need_packages(engine: str, extra: str, *packages: str) -> None:
    """Check that an optional extra is installed.

    Raises:
        ToolMissingError: a package is missing; the message says how to install it.
    """
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    if absent:
        raise ToolMissingError(
            f"engine {engine!r} needs Python packages that are not installed: {', '.join(absent)}. "
            f"Install: pip install 'automcu-ray[{extra}]'. Without any: --engine offline."
        )
