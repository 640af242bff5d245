"""Engines by name: one file and one line here each."""

import os
from collections.abc import Mapping
from typing import Any

from automcu_ray.runtime.plugins import check_options, load
from searchers.engines import small_model
from searchers.engines.base import Engine

ENGINES = {
    "openai": "searchers.engines.openai:OpenAIEngine",
    "cassette": "searchers.engines.recording.replay_engine:ReplayEngine",
    "hf_local": "searchers.engines.hf_local:HfLocalEngine",
    "offline": "searchers.engines.offline.engine:OfflineEngine",
    "simulated": "searchers.engines.simulated:SimulatedEngine",
    "vllm": "searchers.engines.vllm:VllmEngine",
}


def pick_engine(name: str, options: Mapping[str, Any]) -> Engine:
    """Return an engine by name.

    `auto` is `openai` where an endpoint and a model are named, else `hf_local` with SmolLM2 where that is installed,
    else `offline`. Its options are those of `openai`: they are checked even where another engine goes without them.

    Raises:
        ConfigError: no such engine, an option that it does not have, or an endpoint without a model.
    """
    if name != "auto":
        return _make(name, options)
    variables = ("AUTOMCU_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_KEY")  # the key alone: OpenAI itself
    address = options.get("base_url") or any(os.environ.get(variable) for variable in variables)
    if address and (options.get("model") or os.environ.get("AUTOMCU_MODEL")):
        return _make("openai", options)
    check_options("engine", "openai", load("engine", ENGINES, "openai"), options)
    if small_model.missing():
        return _make("offline", {})
    return _make("hf_local", {"model": small_model.NAME})


def _make(name: str, options: Mapping[str, Any]) -> Engine:
    make = load("engine", ENGINES, name)
    engine: Engine = make(**check_options("engine", name, make, options))
    return engine
