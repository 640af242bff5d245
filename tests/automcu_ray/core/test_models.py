"""Frozen models: a copy is as sound as what it was made from."""

from typing import Any

import pytest
from pydantic import ValidationError

from automcu_ray.core.cost import Cost


def test_a_copy_has_the_other_values_and_the_model_keeps_its_own() -> None:
    cost = Cost(prompt_tokens=1)
    assert cost.replace(usd=0.5) == Cost(prompt_tokens=1, usd=0.5)
    assert cost == Cost(prompt_tokens=1)


@pytest.mark.parametrize("wrong", [{"usd": "much"}, {"prompt_token": 2}])
def test_a_copy_with_a_value_that_no_model_could_have_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Cost().replace(**wrong)
