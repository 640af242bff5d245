"""Options out of their range are one line, before anything is proposed."""

from typing import Any

import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config import Plugin
from searchers import pick_proposer


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("evolution", {"population": -1}),
        ("evolution", {"sample": 0}),
        ("evolution", {"start": 0}),
        ("evolution", {"repair": 7}),
        ("evolution", {"error_bound": 0}),
        ("evolution", {"macs_bound": 0}),
        ("bayesian", {"startup": 0}),
        ("capacity", {"startup": -1}),
        ("heuristic", {"first_width": 0}),
        ("heuristic", {"guesses": -1}),
        ("mixed", {"exploration": -1}),
        ("mixed", {"exploration": float("nan")}),
        ("mixed", {"discount": 1}),
        ("mixed", {"usd_per_hour": 0}),
        ("llm", {"specs_per_call": 0}),
        ("llm", {"top_p": 1.5}),
        ("llm_memory", {"memory": -1}),
        ("llm_memory", {"temperature": -0.1}),
        ("llm_memory", {"max_tokens": 0}),
    ],
)
def test_out_of_range(task: Task, name: str, options: dict[str, Any]) -> None:
    (key,) = options
    with pytest.raises(ConfigError, match=rf"^searcher\.{key}: Input should be .*found") as caught:
        pick_proposer(Plugin(name=name, **options), task, seed=0)
    assert "\n" not in str(caught.value)


def test_a_type_is_named_as_it_is_written_in_yaml(task: Task) -> None:
    with pytest.raises(ConfigError, match=r"proposers: Input should be a list, like \[a, b\], found 3"):
        pick_proposer(Plugin.model_validate({"name": "mixed", "proposers": 3}), task, seed=0)
    with pytest.raises(ConfigError, match=r"proposers: Input should be `key: value` lines, found"):
        pick_proposer(Plugin.model_validate({"name": "mixed", "proposers": [3]}), task, seed=0)
