"""What a fidelity study compares: networks spread over sizes and depths, probes as changes of a protocol."""

from itertools import pairwise
from pathlib import Path

import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.feasibility import Rung, Violation
from automcu_ray.core.training_recipe import Protocol
from automcu_ray.networks.graph import Graph
from automcu_ray.problem.target import Constraints
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config_files import names
from automcu_ray.sizing.footprint import check_bounds
from automcu_ray.studies.fidelity import FULL, UNTRAINED, draw, load_probes

FULL_PROTOCOL = Protocol(epochs=16, batch_size=64, learning_rate=0.05, crop_padding_px=2)


def test_networks_fit_and_are_spread_over_sizes_and_depths(digits_task: Task) -> None:
    subjects = draw(digits_task, check_bounds, 8, seed=0)
    sizes = [subject.parameters for subject in subjects]
    assert [subject.number for subject in subjects] == list(range(1, 9))
    graphs = [digits_task.graph(one.candidate.spec) for one in subjects if one.candidate.spec]
    assert len(graphs) == 8 and not any(check_bounds(graph, digits_task) for graph in graphs)
    assert sizes == sorted(set(sizes)) and sizes[-1] > 12 * sizes[0]  # eight stretches of a range of 32
    assert all(after < 32 ** (2 / 8) * before for before, after in pairwise(sizes))
    assert len({subject.depth for subject in subjects}) >= 6


@pytest.mark.thorough
def test_a_seed_draws_the_same_networks_again_and_another_seed_others(digits_task: Task) -> None:
    hashes = [[one.candidate.hash for one in draw(digits_task, check_bounds, 5, seed)] for seed in (3, 3, 4)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_limits_that_nothing_fits_are_an_error_that_says_what_to_change(digits_task: Task) -> None:
    def nothing_fits(graph: Graph, task: Task) -> tuple[Violation, ...]:
        return (Violation(rung=Rung.ANALYTIC, resource="ram", message="no"),)

    tight = digits_task.replace(constraints=Constraints(ram_kb=1, flash_kb=1))
    with pytest.raises(ConfigError, match=r"0 of 5 sizes .* constraints\.ram_kb"):
        draw(tight, nothing_fits, 5, seed=0)


@pytest.mark.parametrize("name", names("fidelity"))
def test_the_probes_that_are_offered_change_what_they_say_and_nothing_else(name: str) -> None:
    full, untrained, *probes = load_probes(name, FULL_PROTOCOL)
    assert (full.name, full.protocol, untrained.name, untrained.protocol) == (FULL, FULL_PROTOCOL, UNTRAINED, None)
    protocols = {probe.name: probe.protocol for probe in probes}
    assert protocols["1/4 epoch"] == FULL_PROTOCOL.replace(epochs=1, train_share=0.25)
    assert [probe.shrink for probe in probes if "half size" in probe.name] == [2, 2, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("short: {epoch: 1}", "'short': epoch: Extra inputs"),
        ("short: {epochs: 0}", "greater than 0, found 0"),
        ("short: {shrink: 0}", "shrink"),
        ("short: 3", "wanted `field: value`"),
    ],
)
def test_a_probe_that_cannot_be_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=said) as error:
        load_probes(str(tmp_path / "mine.yaml"), FULL_PROTOCOL)
    assert "\n" not in str(error.value)
