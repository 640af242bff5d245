from collections.abc import Callable
from pathlib import Path

import pytest

from backends.venvs.environment import ENVIRONMENTS


@pytest.fixture
def look_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let an environment look ready that is empty."""
    monkeypatch.setenv("AUTOMCU_CACHE", str(tmp_path / "cache"))

    def one(name: str) -> None:
        environment = ENVIRONMENTS[name]
        environment.python.parent.mkdir(parents=True)
        environment.python.touch()
        (environment.folder / "complete").touch()

    return one
