"""The training loop: it learns, repeats itself, stops when told, and augments as it says."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from automcu_ray.network import Network
from automcu_ray.protocol import Protocol
from automcu_ray.spec import ArchitectureSpec
from automcu_ray.task import Task
from trainables.datasets.base import Split
from trainables.datasets.digits import digits
from trainables.finalist import load_deployed, save_deployed
from trainables.job import TrainingJob
from trainables.loop import Resident, _Batches, _Course, evaluate, train

SPEC = ArchitectureSpec.model_validate(
    {"backbone": [{"type": "conv", "out_channels": 8}, {"type": "downsample", "out_channels": 16}]}
)
FEW = Protocol(epochs=3, batch_size=64, learning_rate=0.2)


def accuracies(task: Task, protocol: Protocol, seed: int) -> list[float]:
    data = digits()
    job = TrainingJob(task, protocol, data.train, data.val)
    return [epoch.val_accuracy for epoch in job.start(SPEC, seed=seed)]


def test_learns_digits_in_three_epochs(digits_task: Task) -> None:
    assert accuracies(digits_task, FEW, seed=0)[-1] > 0.8


def test_same_seed_same_training_other_seed_another(digits_task: Task) -> None:
    first = accuracies(digits_task, FEW, seed=1)
    assert accuracies(digits_task, FEW, seed=1) == first
    assert accuracies(digits_task, FEW, seed=2) != first


def test_stops_on_a_plateau_and_says_so(digits_task: Task) -> None:
    data = digits()
    frozen = Protocol(epochs=9, batch_size=512, learning_rate=1e-12, schedule="constant", momentum=0, patience=2)
    network = Network(digits_task.space.graph(SPEC))
    for parameter in network.parameters():  # zero logits, whatever the batch norm's statistics do
        torch.nn.init.zeros_(parameter)
    epochs = list(train(network, data.train, data.val, frozen, "cpu", seed=0))
    assert (len(epochs), epochs[-1].last, epochs[-1].stopped_early) == (3, True, True)


def test_divergence_is_an_error(digits_task: Task) -> None:
    wild = Protocol(epochs=3, learning_rate=1e30, schedule="constant")
    with pytest.raises(FloatingPointError, match="diverged"):
        accuracies(digits_task, wild, seed=0)


def test_a_last_step_that_diverges_is_no_accuracy_by_chance(digits_task: Task) -> None:
    """All images are one batch: its loss is that of the first weights, and nothing is trained on the ruined ones."""
    one_step = Protocol(epochs=1, batch_size=2000, learning_rate=1e30, schedule="constant")
    with pytest.raises(FloatingPointError, match="outputs are no longer finite"):
        accuracies(digits_task, one_step, seed=0)


def test_summary_scores_the_deployed_network(digits_task: Task) -> None:
    data = digits()
    job = TrainingJob(digits_task, FEW, data.train, data.val)
    *_, epoch = job.start(SPEC, seed=0)
    summary, deployed = job.finish(epoch)
    assert summary.val_accuracy == deployed.accuracy(data.val.images, data.val.labels)
    assert summary.val_accuracy_float == evaluate(job.network, data.val, "cpu")
    assert deployed.run(data.val.images[:2]).dtype == np.int8
    assert (summary.epochs, summary.stopped_early, summary.seed) == (3, False, 0)
    assert summary.peak_memory_bytes is not None and summary.peak_memory_bytes > 50e6


def test_deployed_network_survives_the_disk(digits_task: Task, tmp_path: object) -> None:
    data = digits()
    job = TrainingJob(digits_task, Protocol(epochs=1), data.train, data.val)
    (epoch,) = job.start(SPEC, seed=0)
    _, deployed = job.finish(epoch)
    save_deployed(deployed, tmp_path)  # type: ignore[arg-type]
    assert load_deployed(tmp_path) == deployed  # type: ignore[arg-type]


def untrained(task: Task) -> Network:
    torch.manual_seed(0)
    return Network(task.space.graph(SPEC))


def weights(network: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in network.parameters()]


def test_mixing_changes_training_and_repeats_itself(digits_task: Task) -> None:
    mixed = FEW.model_copy(update={"epochs": 1, "mixup": 1.0, "cutmix": 1.0})
    first = accuracies(digits_task, mixed, seed=1)
    assert accuracies(digits_task, mixed, seed=1) == first
    assert accuracies(digits_task, FEW, seed=1)[:1] != first


def test_a_share_of_the_images_is_so_many_steps(digits_task: Task) -> None:
    data = digits()
    images = len(data.train)
    share = Resident.of(data.train, "cpu")
    quarter = _Batches(share, Protocol(epochs=2, train_share=0.25, batch_size=32), 0, torch.contiguous_format)
    sizes = [len(inputs[1]) for _, inputs in quarter.until(2)]
    assert sum(sizes) == 2 * round(images / 4)
    assert len(sizes) == quarter.total == 2 * -(-round(images / 4) // 32)


def test_reports_in_the_middle_of_an_epoch_leave_the_training_as_it_is(digits_task: Task) -> None:
    data, found = digits(), []
    for reports in (1, 3):
        network = untrained(digits_task)
        protocol = FEW.model_copy(update={"epochs": 2, "reports_per_epoch": reports})
        epochs = list(train(network, data.train, data.val, protocol, "cpu", seed=0))
        assert [epoch.number for epoch in epochs] == [1] * reports + [2] * reports
        assert [epoch.last for epoch in epochs] == [False] * (2 * reports - 1) + [True]
        found.append(weights(network))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_more_reports_than_steps_are_refused(digits_task: Task) -> None:
    protocol = Protocol(epochs=1, batch_size=2048, reports_per_epoch=2)
    with pytest.raises(ValueError, match="1 steps"):
        accuracies(digits_task, protocol, seed=0)


def test_the_running_mean_is_what_is_scored_and_kept(digits_task: Task) -> None:
    data = digits()
    ends = {}
    for decay in (None, 0.99):
        network = untrained(digits_task)
        protocol = FEW.model_copy(update={"epochs": 2, "ema_decay": decay})
        *_, epoch = train(network, data.train, data.val, protocol, "cpu", seed=0)
        assert epoch.val_accuracy == evaluate(network, data.val, "cpu")
        ends[decay] = weights(network)
    assert not torch.equal(ends[None][0], ends[0.99][0])
    assert float((ends[None][0] - ends[0.99][0]).abs().max()) < 0.5  # near it, behind it


def test_training_maps_the_images_and_copies_nothing() -> None:
    data = digits()
    read_only = data.train.images.view()
    read_only.flags.writeable = False
    resident = Resident.of(Split(read_only, data.train.labels), "cpu")
    assert resident.images.data_ptr() == data.train.images.ctypes.data
    assert resident.labels.data_ptr() == data.train.labels.ctypes.data


def test_split_has_a_length() -> None:
    assert len(Split(np.zeros((3, 1, 2, 2), np.uint8), np.zeros(3, np.int64))) == 3


def test_a_training_that_goes_on_keeps_its_rate_where_a_recorded_step_reads_it() -> None:
    network, protocol = nn.Linear(3, 2), Protocol(epochs=2, batch_size=2)
    data = Resident(torch.zeros(4, 3, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64))
    optimizer = torch.optim.SGD(network.parameters(), lr=torch.tensor(0.5), momentum=0.9)
    course = _Course(network, optimizer, _Batches(data, protocol, 0, torch.contiguous_format), None, protocol)
    state, rate = copy.deepcopy(course.state(network.state_dict())), optimizer.param_groups[0]["lr"]
    course.restore(state)
    assert optimizer.param_groups[0]["lr"] is rate
