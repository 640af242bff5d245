"""What is learned from sizes that follow a known rule, and when it is known."""

from pathlib import Path
from random import Random

import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.feasibility import Estimate
from automcu_ray.networks.graph import Graph, GraphBuilder
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from automcu_ray.sizing.footprint import footprint
from automcu_ray.sizing.size_model import Estimator, features, known_at_start, learn
from automcu_ray.sizing.verdict_cache import Lesson

STACK, START_UP, AN_OPERATOR, A_CHANNEL, EXPF = 1_100, 1_500, 200, 5, 300


def sizes(spec: ArchitectureSpec, task: Task) -> tuple[int, int]:
    """Return RAM and Flash by a rule of our own: what a toolchain adds to the bounds."""
    graph = task.space.graph(spec)
    found = footprint(graph, task.precision)
    code = START_UP + AN_OPERATOR * len(graph.ops) + A_CHANNEL * sum(op.biases for op in graph.ops)
    library = EXPF if any(op.activation == "sigmoid" for op in graph.ops) else 0  # once, however often it is called
    return found.ram_lower_bound_bytes + STACK, found.flash_lower_bound_bytes + code + library


def lessons(task: Task, count: int, seed: int = 0) -> list[Lesson]:
    rng, found = Random(seed), []
    for _ in range(count):
        spec = task.space.sample(rng).spec
        assert spec is not None
        ram, flash = sizes(spec, task)
        found.append(Lesson(spec=spec, ram_bytes=ram, flash_bytes=flash))
    return found


def taught(task: Task, count: int = 150) -> Estimator:
    estimator = learn(lessons(task, count), task)
    assert estimator is not None
    return estimator


def test_sizes_of_networks_never_seen_follow_the_rule_that_was_learned(digits_task: Task) -> None:
    estimator = taught(digits_task)
    for lesson in lessons(digits_task, 50, seed=1):
        estimate = estimator.estimate(digits_task.space.graph(lesson.spec))
        assert estimate is not None
        assert estimate.ram_bytes == lesson.ram_bytes
        assert abs(estimate.flash_bytes - lesson.flash_bytes) <= 0.01 * lesson.flash_bytes


def test_the_stated_error_is_that_of_networks_left_out_of_the_lesson(digits_task: Task) -> None:
    rng = Random(5)
    noisy = [one.replace(flash_bytes=one.flash_bytes + rng.choice((-900, 900))) for one in lessons(digits_task, 100)]
    estimator = learn(noisy, digits_task)
    assert estimator is not None
    assert 900 < estimator.flash_error.p95_bytes < 2_700  # nobody can foresee a coin; who fits it is off by more
    assert estimator.ram_error.p95_bytes == 0


def test_the_error_of_ram_is_of_networks_left_out_as_well(digits_task: Task) -> None:
    # 11 networks need 1,000 bytes beyond, 9 need 2,000: the median is 1,000, and in the sample most are met exactly.
    # Without a fold of two of the 11 it is 1,500: they are off by 500, those of the 9 by 1,000; the median is 500.
    chain = ArchitectureSpec.model_validate({"backbone": [{"type": "conv", "out_channels": 8}]})
    least = footprint(digits_task.space.graph(chain), "int8").ram_lower_bound_bytes
    told = [Lesson(spec=chain, ram_bytes=least + beyond, flash_bytes=9_000) for beyond in [1_000] * 11 + [2_000] * 9]
    estimator = learn(told, digits_task)
    assert estimator is not None and estimator.ram_beyond_bytes == 1_000
    assert estimator.ram_error.median_percent == pytest.approx(100 * 500 / (least + 1_000))


def test_a_handful_of_verdicts_teaches_nothing(digits_task: Task) -> None:
    assert learn(lessons(digits_task, 19), digits_task) is None
    assert learn(lessons(digits_task, 20), digits_task) is not None


def test_an_operator_that_no_verdict_was_about_has_no_estimate(digits_task: Task) -> None:
    chain = ArchitectureSpec.model_validate({"backbone": [{"type": "conv", "out_channels": 8}]})
    ram, flash = sizes(chain, digits_task)
    estimator = learn([Lesson(spec=chain, ram_bytes=ram, flash_bytes=flash)] * 20, digits_task)
    assert estimator is not None
    assert estimator.estimate(digits_task.space.graph(chain)) is not None
    pooled = ArchitectureSpec.model_validate({"backbone": [{"type": "max_pool"}]})
    assert estimator.estimate(digits_task.space.graph(pooled)) is None


def test_the_error_counts_against_the_network() -> None:
    estimate = Estimate(ram_bytes=1000, flash_bytes=5000, ram_error_bytes=24, flash_error_bytes=100)
    assert estimate.exceeds(1024, 5100) == set()
    assert estimate.exceeds(1023, 5100) == {"ram"}
    assert estimate.exceeds(1023, 5099) == {"ram", "flash"}


def test_a_run_keeps_to_what_was_known_when_it_began(digits_task: Task, tmp_path: Path) -> None:
    first = known_at_start(tmp_path / "llm", None, lambda: lessons(digits_task, 30), digits_task)
    assert first is not None and first.verdicts == 30
    resumed = known_at_start(tmp_path / "llm", None, lambda: lessons(digits_task, 60), digits_task)
    assert resumed == first
    replayed = known_at_start(tmp_path / "other", tmp_path / "llm", lambda: lessons(digits_task, 60), digits_task)
    assert replayed == first


def test_a_run_that_began_without_estimates_goes_on_without(digits_task: Task, tmp_path: Path) -> None:
    assert known_at_start(tmp_path / "llm", None, list, digits_task) is None
    assert known_at_start(tmp_path / "llm", None, lambda: lessons(digits_task, 60), digits_task) is None
    recorded_before = tmp_path / "old"
    assert known_at_start(tmp_path / "new", recorded_before, lambda: lessons(digits_task, 60), digits_task) is None


def test_a_damaged_estimator_is_an_error(digits_task: Task, tmp_path: Path) -> None:
    (tmp_path / "estimator.json").write_text('{"precision": "int8", "verdi')
    with pytest.raises(ConfigError, match=r"estimator\.json"):
        known_at_start(tmp_path, None, list, digits_task)


def test_features_count_operators_and_note_once_what_is_linked_once() -> None:
    builder = GraphBuilder((8, 4, 4))
    builder.linear(builder.global_pool(builder.conv("conv", -1, 8, kernel=3, groups=8)), 10)
    graph = Graph((8, 4, 4), tuple(builder.ops))
    found = features(graph, None)
    assert (found["grouped conv 3x3 stride 1"], found["conv"], found["one pixel"]) == (1, 1, 2)
    assert found["channels"] == 8 + 10
    assert found["any linear of 2^3"] == found["any relu"] == 1
    assert "any element-wise" not in found
    known = features(graph, "cortex-m4f")
    assert (known["conv"], known["channels"], known["operators"]) == (1, 8 + 10, 3)
    assert known["any depthwise alone"] == known["calls depthwise alone"] == 1
