"""Families: what a layout becomes at a width, and how it is recognised again."""

from random import Random

import pytest

from automcu_ray.networks.layouts import FAMILIES, Layout, read, usual
from automcu_ray.networks.search_space import Space
from automcu_ray.problem.target import McuTarget
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config_files import CONFIGS, read_yaml


def test_a_layout_at_a_width_is_a_stem_and_stages_that_halve_the_image_and_double_the_width(digits_task: Task) -> None:
    spec = Layout(family="residual", blocks=(2, 1)).spec(8, digits_task.space)
    assert spec is not None
    assert spec.compact()["backbone"] == [
        {"type": "conv", "out_channels": 8},
        {"type": "residual", "out_channels": 8},
        {"type": "residual", "out_channels": 8},
        {"type": "residual", "out_channels": 16, "stride": 2},
    ]


def test_widths_that_grow_by_a_half_are_rounded_to_even_ones(digits_task: Task) -> None:
    spec = Layout(family="conv", blocks=(1, 1, 1), growth=1.5).spec(6, digits_task.space)
    assert spec is not None
    assert [layer["out_channels"] for layer in spec.compact()["backbone"]] == [6, 6, 8, 14]  # 6, 9, 13.5


def test_pools_halve_the_image_where_an_accelerator_has_no_stride(digits_task: Task) -> None:
    target = McuTarget.model_validate(read_yaml(CONFIGS / "target" / "max78000.yaml"))
    space = digits_task.replace(target=target).space
    layout = Layout(family="residual", blocks=(1, 1), early=True)
    spec = layout.spec(4, space)
    assert spec is not None
    assert [layer.type for layer in spec.backbone] == ["max_pool", "conv", "residual", "max_pool", "residual"]
    assert read(spec, space) == (layout, 4)
    assert space.candidate(spec).hash  # nothing in it that the accelerator does not run
    assert {one.family for one in usual(space, residual=True)} == {"residual", "bottleneck"}


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 49, 65)])
def test_every_usual_layout_and_its_neighbours_are_read_back_from_their_specs(shape: tuple[int, int, int]) -> None:
    space = Space(input_shape=shape, num_classes=10)
    layouts = {*usual(space, residual=True), *usual(space, residual=False)}
    layouts |= {near for one in sorted(layouts, key=str)[::5] for near in one.neighbours() if near.allowed(space)}
    for layout in layouts:
        spec = layout.spec(12, space)
        assert spec is not None
        found = read(spec, space)
        assert found is not None
        assert found[1] == 12
        assert found[0].spec(12, space) == spec  # growth says nothing in a single stage
        assert space.candidate(spec).hash


def test_what_no_layout_gives_is_not_read(digits_task: Task) -> None:
    space = digits_task.space
    assert all(read(space.sample(Random(seed)).spec, space) is None for seed in range(30))  # type: ignore[arg-type]
    spec = Layout(family="residual", blocks=(2, 1)).spec(8, space)
    assert spec is not None
    odd = spec.backbone[1].replace(kernel_size=5)
    assert read(spec.replace(backbone=(spec.backbone[0], odd, *spec.backbone[2:])), space) is None


def test_the_last_stage_sees_at_least_two_rows(digits_task: Task) -> None:
    space = digits_task.space  # 8x8
    assert Layout(family="conv", blocks=(1, 1, 1)).allowed(space)
    assert not Layout(family="conv", blocks=(1, 1, 1), early=True).allowed(space)
    assert not Layout(family="conv", blocks=(1, 1, 1, 1)).allowed(space)
    assert not Layout(family="conv", blocks=(1, 0)).allowed(space)
    assert not Layout(family="conv", blocks=()).allowed(space)


def test_neighbours_differ_in_depth_downsampling_growth_or_family() -> None:
    near = set(Layout(family="residual", blocks=(2, 1)).neighbours())
    moved = {one.blocks for one in near if one.family == "residual" and not one.early and one.growth == 2.0}
    assert moved == {(3, 1), (1, 1), (2, 2), (2, 0), (3, 0), (1, 2), (2, 1, 1), (2,)}
    assert {one.family for one in near} == set(FAMILIES)
    assert any(one.early for one in near)
    assert {one.growth for one in near} == {2.0, 1.5, 1.0}
