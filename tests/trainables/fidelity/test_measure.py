"""A study's trainings: what each of them reads, what its key depends on, and that none is made twice."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from automcu_ray.core.training_recipe import Protocol
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from automcu_ray.records.events import NetworkMeasured
from automcu_ray.records.journal import Repository
from automcu_ray.records.record import Measured
from automcu_ray.run import run_fidelity
from automcu_ray.run.run_fidelity import run_study, trainings
from automcu_ray.studies.fidelity import FULL, UNTRAINED, Probe, Subject
from trainables.datasets.base import Split
from trainables.datasets.digits import digits
from trainables.fidelity.measure import Ground, Training, measure
from trainables.fidelity.zero_cost import ZERO_COST

pytestmark = pytest.mark.training

SHORT = Probe(name="short", protocol=Protocol(epochs=1))
PROBES = [Probe(name=FULL, protocol=Protocol(epochs=5)), SHORT, Probe(name=UNTRAINED)]


@pytest.fixture(scope="module")
def ground(digits_task: Task) -> Ground:
    data = digits()
    train = Split(data.train.images[:128], data.train.labels[:128])
    return Ground(task=digits_task, train=train, val=data.val, data="digits", seed=0)


def subject(task: Task, number: int, *kinds: str) -> Subject:
    layers = [{"type": kind, **({"out_channels": 4 + number} if kind == "conv" else {})} for kind in kinds]
    candidate = task.space.candidate(ArchitectureSpec.model_validate({"backbone": layers}), number=number)
    return Subject(candidate=candidate, parameters=number, macs=number, depth=len(kinds))


def training(task: Task, probe: Probe, repeat: int = 0, *kinds: str) -> Training:
    return Training(subject(task, 1, *(kinds or ("conv",))).candidate, probe, repeat)


def test_full_training_is_read_after_1_2_4_epochs_and_at_its_end(ground: Ground) -> None:
    found = measure(training(ground.task, PROBES[0], 1), ground)
    float_proxies = [score.proxy for score in found.scores if score.reading == "float"]
    assert float_proxies == [*(f"full, stopped after {epochs} of 5" for epochs in (1, 2, 4)), "full"]
    assert [score.reading for score in found.scores[-3:]] == ["float", "loss", "deployed"]
    losses = [score.value for score in found.scores if score.reading == "loss"]
    assert losses == sorted(losses, reverse=True) and losses[-1] < -2  # what is summed only grows
    seconds = [score.seconds for score in found.scores]
    assert seconds == sorted(seconds) and seconds[0] > 0
    assert not found.failure


def test_a_proxy_is_read_at_its_end_alone_and_repeats_itself(ground: Ground) -> None:
    first, again = (measure(training(ground.task, SHORT), ground) for _ in range(2))
    assert [(score.proxy, score.reading) for score in first.scores] == [
        ("short", reading) for reading in ("float", "loss", "deployed")
    ]
    assert [score.value for score in first.scores] == [score.value for score in again.scores]


def test_an_untrained_network_has_every_zero_cost_score(ground: Ground) -> None:
    found = measure(training(ground.task, PROBES[2]), ground)
    assert [(score.proxy, score.reading) for score in found.scores] == [(UNTRAINED, name) for name in ZERO_COST]


def test_an_untrained_network_without_relu_keeps_the_scores_it_can_have(ground: Ground) -> None:
    found = measure(training(ground.task, PROBES[2], 0, "max_pool"), ground)
    assert [score.reading for score in found.scores] == ["synflow", "gradient norm"]
    assert "NASWOT" in found.failure


def test_half_the_size_is_another_network_or_a_failure_with_a_reason(ground: Ground) -> None:
    half = SHORT.replace(shrink=2)
    assert not measure(training(ground.task, half), ground).failure
    found = measure(training(ground.task, half, 0, "max_pool", "max_pool", "max_pool"), ground)
    assert found.scores == () and "layer_3.kernel_size" in found.failure


def test_divergence_is_a_failure(ground: Ground) -> None:
    wild = Probe(name="wild", protocol=Protocol(epochs=3, learning_rate=1e30, schedule="constant"))
    found = measure(training(ground.task, wild), ground)
    assert (found.scores, "diverged" in found.failure) == ((), True)


def test_smaller_images_are_means_of_squares_and_a_last_odd_row_goes(ground: Ground) -> None:
    split = Split(np.array([[[[1, 3, 9], [5, 7, 9], [9, 9, 9]]]], np.uint8), np.array([0]))
    half = replace(ground, train=split, val=split).shrunk(2)
    assert half.train.images.tolist() == half.val.images.tolist() == [[[[4]]]]
    assert (half.train.images.dtype, half.task.input_shape) == (np.uint8, (1, 1, 1))


def test_a_key_changes_with_all_that_a_result_depends_on(ground: Ground) -> None:
    plain = training(ground.task, SHORT)
    others = [
        training(ground.task, SHORT, 0, "conv", "conv").key(ground),
        training(ground.task, SHORT, 1).key(ground),
        training(ground.task, SHORT.replace(shrink=2)).key(ground),
        training(ground.task, SHORT.replace(name="renamed")).key(ground),
        training(ground.task, PROBES[0]).key(ground),
        plain.key(replace(ground, seed=1)),
        plain.key(replace(ground, data="other")),
        plain.key(replace(ground, task=ground.task.replace(precision="float32"))),
    ]
    assert len({plain.key(ground), *others}) == 9
    assert plain.key(ground) == training(ground.task, SHORT).key(replace(ground, threads=2))


def test_full_trainings_come_first_and_those_of_a_few_twice(digits_task: Task) -> None:
    subjects = [subject(digits_task, number, "conv") for number in range(1, 5)]
    todo = [(one.probe.name, one.repeat, one.candidate.number) for one in trainings(subjects, PROBES, 2)]
    assert todo[:4] == [(FULL, 1, number) for number in (4, 3, 2, 1)]  # the dearest first
    assert todo[4:6] == [(FULL, 2, 1), (FULL, 2, 3)]
    assert len(todo) == 4 * 3 + 2


class InLine:
    """Stands for Ray: one item after the other, at most `stop_after`, then Ctrl-C."""

    def __init__(self, stop_after: int) -> None:
        self.stop_after, self.made = stop_after, list[Training]()

    def __call__(
        self, function: Callable[[Training, Ground], Measured], left: list[Training], ground: Ground, **shares: float
    ) -> Iterator[tuple[Training, Measured]]:
        assert shares == {"cpus": 1, "gpus": ground.gpus}
        for number, one in enumerate(left):
            if number == self.stop_after:
                raise KeyboardInterrupt
            self.made.append(one)
            yield one, function(one, ground)


def test_a_study_that_was_stopped_goes_on_and_repeats_nothing(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subjects = [subject(ground.task, number, "conv") for number in (1, 2)]
    todo = trainings(subjects, [Probe(name=FULL, protocol=Protocol(epochs=1)), Probe(name=UNTRAINED)], 1)
    statuses, made = [], []
    for stop_after in (2, 9, 9):
        inline = InLine(stop_after)
        monkeypatch.setattr(run_fidelity, "in_parallel", inline)
        console = Console(quiet=True)
        statuses.append(run_study("two networks", subjects, todo, ground, tmp_path, console, cpus=1))
        made.append(len(inline.made))
    assert (statuses, made) == ([130, 0, 0], [2, 3, 0])
    assert len((tmp_path / "journal.jsonl").read_text().splitlines()) == 5
    assert (tmp_path / "table.md").exists()


def test_a_worker_that_broke_is_its_trainings_failure(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(function: Any, left: list[Training], *rest: Any, **shares: Any) -> Iterator[tuple[Training, str]]:
        yield from ((one, "the worker broke: killed") for one in left)

    monkeypatch.setattr(run_fidelity, "in_parallel", breaks)
    subjects = [subject(ground.task, 1, "conv")]
    todo = trainings(subjects, PROBES, 1)
    assert run_study("one network", subjects, todo, ground, tmp_path, Console(quiet=True), cpus=1) == 0
    rows = [event.measured for event in Repository(tmp_path / "journal.jsonl").all(NetworkMeasured)]
    assert [row.key for row in rows] == [one.key(ground) for one in todo] and len(rows) == 4
    assert {(row.failure, row.scores) for row in rows} == {("the worker broke: killed", ())}
