"""Accelerators as data, and how they narrow the space of specs."""

from random import Random
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from automcu_ray.core.feasibility import Rung
from automcu_ray.networks.operator_limits import Operator
from automcu_ray.networks.search_space import TYPES, OutsideSpaceError, Space
from automcu_ray.networks.spec import ArchitectureSpec, Layer
from automcu_ray.problem.target import McuTarget
from automcu_ray.runtime.config_files import CONFIGS, names, read_yaml
from searchers.dialogue.reply_schemas import spec_schema

ACCELERATED = [name for name in names("target") if "accelerator" in read_yaml(CONFIGS / "target" / f"{name}.yaml")]


def narrowed(target: str = "max78000", shape: tuple[int, int, int] = (3, 16, 16)) -> Space:
    found = McuTarget.model_validate(read_yaml(CONFIGS / "target" / f"{target}.yaml")).accelerator
    assert found is not None
    return Space(input_shape=shape, num_classes=10, operators=found.operators)


def spec(*layers: dict[str, Any]) -> ArchitectureSpec:
    return ArchitectureSpec.model_validate({"backbone": layers})


def test_max78000_has_the_memories_that_its_own_tool_prints() -> None:
    found = McuTarget.model_validate(read_yaml(CONFIGS / "target" / "max78000.yaml")).accelerator
    assert found is not None
    assert found.weight_memory.total_bytes == 64 * found.weight_memory.part_bytes == 442_368
    assert found.bias_memory.total_bytes == 4 * found.bias_memory.part_bytes == 2_048
    assert found.data_memory.total_bytes == 16 * found.data_memory.part_bytes == 16 * 32_768


@pytest.mark.parametrize("name", ACCELERATED)
def test_every_limit_cites_a_source(name: str) -> None:
    data = read_yaml(CONFIGS / "target" / f"{name}.yaml")["accelerator"]
    assert len(data["operators_source"]) > 10
    assert all(len(limit["source"]) > 10 for limit in data.values() if isinstance(limit, dict))


@pytest.mark.parametrize("name", ACCELERATED)
def test_operators_are_layers_of_the_specification_with_values_of_its_fields(name: str) -> None:
    models = {model.model_fields["type"].annotation: model for model in get_args(get_args(Layer)[0])}
    by_type = {get_args(literal)[0]: model for literal, model in models.items()}
    for operator in narrowed(name).operators:
        assert operator.type in by_type
        for field, values in operator.limited.items():
            for value in values:
                smallest = {"type": operator.type, "out_channels": 8, field: value}
                wanted = by_type[operator.type].model_fields
                by_type[operator.type].model_validate({k: v for k, v in smallest.items() if k in wanted})


@pytest.mark.parametrize("name", ACCELERATED)
def test_the_narrowed_space_proposes_and_mutates_to_nothing_outside(name: str) -> None:
    space, rng = narrowed(name), Random(3)
    candidate, types, kernels = space.sample(rng), set(), set()
    for _ in range(150):
        candidate = space.mutate(candidate, rng) if rng.random() < 0.7 else space.sample(rng)
        assert candidate.spec is not None
        types |= {layer.type for layer in candidate.spec.backbone}
        kernels |= {op.kernel for op in space.graph(candidate.spec).ops if op.kind == "conv"}
    assert types == set(space.types) and kernels == {1, 3}


def test_an_unnarrowed_space_draws_what_it_drew() -> None:
    """Recorded runs and seeds in published figures depend on it: a change is meant, and in CHANGELOG."""
    space = Space(input_shape=(3, 32, 32), num_classes=10)
    assert space.sample(Random(0)).hash == "0d6302c02134"
    assert space.types == TYPES


@pytest.mark.parametrize(
    ("layer", "where", "message"),
    [
        ({"type": "ghost", "out_channels": 8}, "layer_2.type", "must be one of conv, pointwise, bottleneck"),
        ({"type": "conv", "out_channels": 8, "kernel_size": 5}, "layer_2.kernel_size", "must be one of 1, 3"),
        ({"type": "conv", "out_channels": 8, "stride": 2}, "layer_2.stride", "must be one of 1"),
        ({"type": "residual", "out_channels": 8, "activation": "relu6"}, "layer_2.activation", "must be one of relu"),
    ],
)
def test_a_spec_outside_is_refused_with_the_reason(layer: dict[str, Any], where: str, message: str) -> None:
    with pytest.raises(OutsideSpaceError, match=message) as refused:
        narrowed().candidate(spec({"type": "conv", "out_channels": 8}, layer))
    violation = refused.value.violation
    assert (violation.rung, violation.resource, violation.where) == (Rung.ANALYTIC, "operator", where)
    assert "which the target's accelerator runs, found" in violation.message


def test_derived_padding_is_allowed_and_an_odd_one_is_not() -> None:
    space = narrowed()
    space.candidate(spec({"type": "conv", "out_channels": 8, "padding": 2}))
    space.candidate(spec({"type": "conv", "out_channels": 8}))
    with pytest.raises(OutsideSpaceError, match="padding"):
        space.replace(operators=tuple(o.replace(padding=(1,)) for o in space.operators if o.type == "conv")).candidate(
            spec({"type": "conv", "out_channels": 8, "padding": 2})
        )


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        ({"type": "convolution"}, "type should be one of conv, depthwise.*found 'convolution'"),
        ({"type": "bottleneck", "kernel_size": [3]}, r"bottleneck should list values .* found kernel_size: \[3\]"),
        ({"type": "conv", "stride": []}, r"conv should list values .* found stride: \[\]"),
        ({"type": "conv", "kernel_size": [3, 9]}, r"conv\.kernel_size: .* found 9"),
        ({"type": "max_pool", "kernel_size": [1]}, r"max_pool\.kernel_size: .* found 1"),
        ({"type": "conv", "activation": ["gelu"]}, r"conv\.activation: .* found 'gelu'"),
    ],
)
def test_operators_that_the_specification_does_not_know_are_errors_of_the_target(
    operator: dict[str, Any], message: str
) -> None:
    data = read_yaml(CONFIGS / "target" / "max78000.yaml")
    data["accelerator"]["operators"].append(operator)
    with pytest.raises(ValidationError, match=message):
        McuTarget.model_validate(data)


def test_values_that_are_not_usual_are_drawn_where_no_usual_one_runs() -> None:
    only = Operator(type="conv", kernel_size=(7,), activation=("none",))
    space, rng = Space(input_shape=(3, 16, 16), num_classes=4, operators=(only,)), Random(0)
    drawn = space.sample(rng)
    for found in (drawn, space.mutate(drawn, rng)):
        assert found.spec is not None
        assert {(layer.kernel_size, layer.activation) for layer in found.spec.backbone} == {(7, "none")}  # type: ignore[union-attr]
    schema = spec_schema(space)["$defs"]["Conv"]["properties"]
    assert (schema["kernel_size"]["enum"], schema["activation"]["enum"]) == ([7], ["none"])
