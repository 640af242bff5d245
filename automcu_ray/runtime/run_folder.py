"""A run on disk: where each file lies, and which run is the latest."""

import importlib.metadata
import platform
import re
import time
from pathlib import Path
from typing import Any

import yaml

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.models import FrozenModel
from automcu_ray.runtime.config import RunConfig, validate
from automcu_ray.runtime.config_files import read_yaml

_PACKAGES = ("torch", "ray", "onnx", "onnxruntime", "emx-onnx-cgen", "numpy", "scikit-learn")


class RunFolder:
    """Paths of one run; nothing is created before `create`."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.config = self.path / "config.yaml"
        self.journal = self.path / "journal.jsonl"
        self.parquet = self.path / "records.parquet"
        self.report = self.path / "report.html"
        self.llm = self.path / "llm"
        self.toolchain = self.path / "toolchain"
        self.finalists = self.path / "finalists"
        self.bundle = self.path / "bundle"
        self.tune = self.path / "tune"

    @classmethod
    def new(cls, runs: Path, name: str | None, config: RunConfig) -> "RunFolder":
        """Return a folder for a new run: the given name, or one made from task, searcher, seed and time.

        Raises:
            ConfigError: a run of that name exists, or the name is not a plain file name.
        """
        return cls.named(runs, name, f"{config.task}-{config.searcher.name}-s{config.seed}")

    @classmethod
    def named(cls, runs: Path, name: str | None, about: str) -> "RunFolder":
        """Return a folder for a new run: the given name, or one made from what it is about, and the time.

        Raises:
            ConfigError: a run of that name exists, or the name is not a plain file name.
        """
        name = name or f"{about}-{time.strftime('%Y%m%d-%H%M%S')}"
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,99}", name) or name == "latest":
            raise ConfigError(f"--name wants letters, digits, '-', '_' and '.', found {name!r}.")
        folder = cls(runs / name)
        if folder.path.exists():
            raise ConfigError(f"run {folder.path} exists: choose another --name, or go on with --resume {folder.path}.")
        return folder

    @classmethod
    def existing(cls, path: Path) -> tuple["RunFolder", RunConfig]:
        """Return a run's folder and configuration.

        Raises:
            ConfigError: there is no run.
        """
        folder = cls.begun(path)
        return folder, validate(read_yaml(folder.config))

    @classmethod
    def begun(cls, path: Path) -> "RunFolder":
        """Return the folder of a run of any kind.

        Raises:
            ConfigError: there is no run.
        """
        folder = cls(path)
        if not folder.config.is_file():
            raise ConfigError(f"no run in {path}: a folder that holds config.yaml is wanted, like runs/latest.")
        return folder

    def create(self, config: FrozenModel) -> None:
        """Make the folder, write the configuration, and point `latest` at it."""
        self.path.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
        self.config.write_text(text, encoding="utf-8")
        link = self.path.parent / "latest"
        part = self.path.parent / f".latest-{self.path.name}"
        part.symlink_to(self.path.name)
        part.replace(link)


def versions() -> dict[str, str]:
    """Return the versions of what decides a result."""
    found = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {"python": platform.python_version(), **found}


def host() -> dict[str, Any]:
    """Return what a figure depends on and what is not a version."""
    return {"machine": platform.machine(), "system": platform.platform(terse=True)}
