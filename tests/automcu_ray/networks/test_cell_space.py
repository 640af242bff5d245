"""Cells: what their drawing says, and that asking for one gives that one."""

from random import Random

import pytest

from automcu_ray.networks.cell import EDGES, OPERATIONS, CellSpec
from automcu_ray.networks.cell_network import Skeleton
from automcu_ray.networks.cell_space import CellSpace, has_residual_path, kernel_area


def cell(**edges: str) -> CellSpec:
    """A cell by edges like e03="skip_connect"; the others carry nothing."""
    return CellSpec.model_validate({"operations": [edges.get(f"e{a}{b}", "none") for a, b in EDGES]})


@pytest.mark.parametrize(
    ("drawn", "residual"),
    [
        (cell(e03="skip_connect"), True),
        (cell(e01="skip_connect", e13="skip_connect"), True),
        (cell(e01="skip_connect", e12="skip_connect", e23="skip_connect"), True),
        (cell(e01="skip_connect", e23="skip_connect"), False),
        (cell(e03="nor_conv_3x3"), False),
        (cell(e01="skip_connect", e13="avg_pool_3x3"), False),
    ],
)
def test_a_residual_path_is_made_of_identities_alone(drawn: CellSpec, residual: bool) -> None:
    assert has_residual_path(drawn) is residual


@pytest.mark.parametrize(
    ("drawn", "area"),
    [
        (cell(e03="nor_conv_3x3"), 9),
        (cell(e01="nor_conv_3x3", e13="nor_conv_1x1"), 10),
        (cell(e01="nor_conv_3x3", e03="nor_conv_1x1"), 1),  # node 1 leads nowhere
        (cell(e23="nor_conv_3x3", e03="skip_connect"), 0),  # nothing reaches node 2
        (cell(e01="avg_pool_3x3", e12="nor_conv_3x3", e23="skip_connect"), 9),
    ],
)
def test_convolutions_off_the_way_do_not_count(drawn: CellSpec, area: int) -> None:
    assert kernel_area(drawn) == area


def test_capacity_puts_residual_paths_first_and_then_area() -> None:
    order = CellSpace().by_capacity(Random(0))
    keys = [(not has_residual_path(found), -kernel_area(found)) for found in order]
    assert len(set(order)) == 15_625 and keys == sorted(keys)
    assert kernel_area(order[0]) == 45 and order[0].operations[3] == "skip_connect"


def test_ties_of_capacity_fall_by_seed() -> None:
    one, two, again = (CellSpace().by_capacity(Random(seed)) for seed in (0, 1, 0))
    assert one == again != two
    assert one[0] == two[0]  # the only one of its rank


def test_a_cell_asked_for_is_the_cell_that_comes() -> None:
    space, rng = CellSpace(), Random(0)
    for _ in range(50):
        found = space.sample(rng)
        answers = space.answers(found)
        again = space.compose(answers.__getitem__)
        assert again is not None and again.cell == found.cell
        assert all(question.values == OPERATIONS for question in answers)


def test_a_mutant_differs_in_one_edge() -> None:
    space, rng = CellSpace(), Random(0)
    parent = space.sample(rng)
    assert parent.cell is not None
    for _ in range(50):
        child = space.mutate(parent, rng)
        assert child.cell is not None and child.parent == parent.hash
        assert sum(a != b for a, b in zip(child.cell.operations, parent.cell.operations, strict=True)) == 1


def test_a_cell_without_a_way_is_one_of_a_table_and_no_network() -> None:
    nothing, identity = ["none"] * len(EDGES), ["skip_connect"] * len(EDGES)
    table, networks = CellSpace(), CellSpace(skeleton=Skeleton())
    assert table.candidate_or_none(nothing) == table.candidate(nothing)
    assert networks.candidate_or_none(nothing) is None
    assert networks.candidate_or_none(identity, parent="x") == networks.candidate(identity, parent="x")
