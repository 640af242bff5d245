"""The training loop: it learns, repeats itself, stops when told, and augments as it says."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from automcu_ray.core.training_recipe import Protocol
from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from trainables.datasets.base import Split
from trainables.datasets.digits import digits
from trainables.finalists.finalist import load_deployed, save_deployed
from trainables.training.loop import Batches, Resident, evaluate, train
from trainables.training.step import load_optimizer
from trainables.training.trainer import Trainer

SPEC = ArchitectureSpec.model_validate(
    {"backbone": [{"type": "conv", "out_channels": 8}, {"type": "downsample", "out_channels": 16}]}
)
DATA = digits()
FEW = Protocol(epochs=3, batch_size=64, learning_rate=0.2)


def accuracies(task: Task, protocol: Protocol, seed: int) -> list[float]:
    trainer = Trainer(task, protocol, DATA.train, DATA.val)
    return [epoch.val_accuracy for epoch in trainer.start(SPEC, seed=seed)]


@pytest.mark.thorough
def test_learns_digits_in_three_epochs(digits_task: Task) -> None:
    assert accuracies(digits_task, FEW, seed=0)[-1] > 0.8


@pytest.mark.thorough
@pytest.mark.parametrize("protocol", [FEW, FEW.replace(epochs=1, mixup=1.0, cutmix=1.0)], ids=["plain", "mixed"])
def test_same_seed_same_training_other_seed_another(protocol: Protocol, digits_task: Task) -> None:
    first = accuracies(digits_task, protocol, seed=1)
    assert accuracies(digits_task, protocol, seed=1) == first
    assert accuracies(digits_task, protocol, seed=2) != first


def test_stops_on_a_plateau_and_says_so(digits_task: Task) -> None:
    frozen = Protocol(epochs=9, batch_size=512, learning_rate=1e-12, schedule="constant", momentum=0, patience=2)
    network = Network(digits_task.space.graph(SPEC))
    for parameter in network.parameters():  # zero logits, whatever the batch norm's statistics do
        torch.nn.init.zeros_(parameter)
    epochs = list(train(network, DATA.train, DATA.val, frozen, "cpu", seed=0))
    assert (len(epochs), epochs[-1].last, epochs[-1].stopped_early) == (3, True, True)


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        ({"epochs": 3}, "the loss became .*: training diverged"),
        # All images are one batch: its loss is that of the first weights, and nothing is trained on the ruined ones.
        ({"epochs": 1, "batch_size": 2000}, "outputs are no longer finite"),
    ],
)
def test_divergence_is_an_error_and_no_accuracy_by_chance(
    protocol: dict[str, Any], words: str, digits_task: Task
) -> None:
    with pytest.raises(FloatingPointError, match=words):
        accuracies(digits_task, Protocol(learning_rate=1e30, schedule="constant", **protocol), seed=0)


def test_summary_scores_the_deployed_network_which_survives_the_disk(digits_task: Task, tmp_path: Path) -> None:
    trainer = Trainer(digits_task, FEW, DATA.train, DATA.val)
    *_, epoch = trainer.start(SPEC, seed=0)
    summary, deployed = trainer.finish(epoch)
    assert summary.val_accuracy == deployed.accuracy(DATA.val.images, DATA.val.labels)
    assert summary.val_accuracy_float == evaluate(trainer.network, DATA.val, "cpu")
    assert deployed.run(DATA.val.images[:2]).dtype == np.int8
    assert (summary.epochs, summary.stopped_early, summary.seed) == (3, False, 0)
    assert summary.peak_memory_bytes is not None and summary.peak_memory_bytes > 50e6
    save_deployed(deployed, tmp_path)
    assert load_deployed(tmp_path) == deployed


def untrained(task: Task) -> Network:
    torch.manual_seed(0)
    return Network(task.space.graph(SPEC))


def weights(network: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in network.parameters()]


def test_a_share_of_the_images_is_so_many_steps(digits_task: Task) -> None:
    images = len(DATA.train)
    share = Resident.of(DATA.train, "cpu")
    quarter = Batches(share, Protocol(epochs=2, train_share=0.25, batch_size=32), 0, torch.contiguous_format)
    sizes = [len(inputs[1]) for _, inputs in quarter.until(2)]
    assert sum(sizes) == 2 * round(images / 4)
    assert len(sizes) == quarter.total == 2 * -(-round(images / 4) // 32)


def test_reports_in_the_middle_of_an_epoch_leave_the_training_as_it_is(digits_task: Task) -> None:
    found = []
    for reports in (1, 3):
        network = untrained(digits_task)
        protocol = FEW.replace(epochs=2, reports_per_epoch=reports)
        epochs = list(train(network, DATA.train, DATA.val, protocol, "cpu", seed=0))
        assert [epoch.number for epoch in epochs] == [1] * reports + [2] * reports
        assert [epoch.last for epoch in epochs] == [False] * (2 * reports - 1) + [True]
        found.append(weights(network))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_more_reports_than_steps_are_refused(digits_task: Task) -> None:
    protocol = Protocol(epochs=1, batch_size=2048, reports_per_epoch=2)
    with pytest.raises(ValueError, match="1 steps"):
        accuracies(digits_task, protocol, seed=0)


def test_the_running_mean_is_what_is_scored_and_kept(digits_task: Task) -> None:
    ends = {}
    for decay in (None, 0.99):
        network = untrained(digits_task)
        protocol = FEW.replace(epochs=2, ema_decay=decay)
        *_, epoch = train(network, DATA.train, DATA.val, protocol, "cpu", seed=0)
        assert epoch.val_accuracy == evaluate(network, DATA.val, "cpu")
        ends[decay] = weights(network)
    assert not torch.equal(ends[None][0], ends[0.99][0])
    assert float((ends[None][0] - ends[0.99][0]).abs().max()) < 0.5  # near it, behind it


def test_training_maps_the_images_and_copies_nothing() -> None:
    read_only = DATA.train.images.view()
    read_only.flags.writeable = False
    resident = Resident.of(Split(read_only, DATA.train.labels), "cpu")
    assert resident.images.data_ptr() == DATA.train.images.ctypes.data
    assert resident.labels.data_ptr() == DATA.train.labels.ctypes.data


def test_a_training_that_goes_on_keeps_its_rate_where_a_recorded_step_reads_it() -> None:
    optimizer = torch.optim.SGD(nn.Linear(3, 2).parameters(), lr=torch.tensor(0.5), momentum=0.9)
    state, rate = copy.deepcopy(optimizer.state_dict()), optimizer.param_groups[0]["lr"]
    load_optimizer(optimizer, state)
    assert optimizer.param_groups[0]["lr"] is rate
