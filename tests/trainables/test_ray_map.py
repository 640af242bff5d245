"""Many items as Ray tasks: a worker that dies is tried again, and a finalist then goes on from its last epoch."""

import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from automcu_ray.core.training_recipe import Protocol
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Finalist
from automcu_ray.runtime.cluster import ray
from tests.trainables.finalists.pipelines import CANDIDATE, pipeline
from trainables.finalists import finalist, schedule
from trainables.finalists.finalist import EPOCH, FinalistPipeline, run_finalist
from trainables.finalists.schedule import run_finalists
from trainables.ray_map import RETRIES, in_parallel

PROTOCOL = Protocol(epochs=3, qat_epochs=2)


def test_items_come_with_their_results_and_what_is_left_is_told(ray_cluster: None) -> None:
    def power(base: int, exponent: int) -> int:
        return base**exponent

    left: list[set[int]] = []
    found = in_parallel(power, [2, 3, 4], 2, cpus=1, gpus=0, on_wait=lambda items: left.append(set(items)))
    assert dict(found) == {2: 4, 3: 9, 4: 16}
    assert left[-1] == set() and all(later <= earlier for earlier, later in itertools.pairwise(left))


def test_a_worker_that_dies_each_time_costs_its_item_alone(ray_cluster: None, tmp_path: Path) -> None:
    def die_of_two(item: int, log: Path) -> int:
        with log.open("a") as lines:
            lines.write(f"{item}\n")
        if item == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    found = dict(in_parallel(die_of_two, [1, 2, 3], tmp_path / "log", cpus=1, gpus=0))
    assert (found[1], found[3]) == (1, 3)
    assert str(found[2]).startswith("the worker broke: ")
    assert (tmp_path / "log").read_text().split().count("2") == 1 + RETRIES


def test_the_worker_of_an_item_that_had_a_gpu_ends_and_frees_it(ray_cluster: None) -> None:
    def process(item: int, shared: None) -> int:
        return os.getpid()

    with_gpu, without = (dict(in_parallel(process, [1, 2], None, cpus=1, gpus=gpus)) for gpus in (1, 0))
    assert with_gpu[1] != with_gpu[2] and without[1] == without[2]


def test_an_error_of_the_function_is_raised_unless_it_is_to_cost_its_item_alone(
    ray_cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No task that has ended is cancelled: Ray's C++ may then meet its reply, and abort the process (seen once)."""
    cancelled: list[object] = []
    monkeypatch.setattr(ray, "cancel", lambda ref, **options: cancelled.append(ref))

    def fail(item: int, shared: None) -> int:
        raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        list(in_parallel(fail, [1], None, cpus=1, gpus=0))
    ((_, reason),) = in_parallel(fail, [1], None, cpus=1, gpus=0, breaks=ray.exceptions.RayError)
    assert reason == "the worker broke: KeyError: 'ours'"
    assert not cancelled


@pytest.mark.parametrize(
    ("last", "epochs"),
    [("2", ["1", "2", "3", "4", "5"]), ("4", ["1", "2", "3", "4", "3", "5"])],
    ids=["in float", "with rounding"],
)
def test_a_finalist_whose_worker_is_killed_goes_on_from_its_last_epoch(
    ray_cluster: None, digits_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, epochs: list[str]
) -> None:
    """The worker dies at the end of an epoch, each time that it gets there: from its start it would never end."""
    log = tmp_path / "log"

    def killed(candidate: Candidate, about: FinalistPipeline) -> Finalist:
        before = finalist.write_whole

        def note(path: Path, content: bytes) -> None:
            if path.name == EPOCH:
                with log.open("a") as lines:
                    lines.write(f"{content.decode()}\n")
                if content == last.encode():
                    os.kill(os.getpid(), signal.SIGKILL)
            before(path, content)

        finalist.write_whole = note
        return run_finalist(candidate, about)

    whole = run_finalist(CANDIDATE, pipeline(digits_task, tmp_path / "whole", PROTOCOL))
    monkeypatch.setattr(schedule, "run_finalist", killed)
    done: list[Finalist] = []
    told: list[str] = []
    about = pipeline(digits_task, tmp_path / "killed", PROTOCOL)
    hears: Any = {"on_result": done.append, "on_wait": told.append, "on_teacher": pytest.fail}  # nobody teaches
    run_finalists([CANDIDATE], about, cpus=1, gpus=0, **hears)
    assert log.read_text().split() == epochs
    assert whole.training and len(whole.training.quantised) == 2
    assert [one.training and one.training.quantised for one in done] == [whole.training.quantised]
    networks = [(tmp_path / way / "abc" / "float32.onnx").read_bytes() for way in ("whole", "killed")]
    assert networks[0] == networks[1]
    assert told[-1] == "" and any(line.startswith("#3 epoch ") for line in told)
