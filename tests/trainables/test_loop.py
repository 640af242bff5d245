"""The training loop: it learns, repeats itself, stops when told, and augments as it says."""

import numpy as np
import pytest
import torch

from automcu_ray.network import Network
from automcu_ray.protocol import Protocol
from automcu_ray.spec import ArchitectureSpec
from automcu_ray.task import Task
from trainables.datasets.base import Split
from trainables.datasets.digits import digits
from trainables.finalist import load_deployed, save_deployed
from trainables.job import TrainingJob
from trainables.loop import augment, evaluate, normalize, train

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


class TestAugment:
    images = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).reshape(2, 3, 4, 4)

    def test_none_is_normalisation(self) -> None:
        generator = torch.Generator().manual_seed(0)
        assert torch.equal(augment(self.images, Protocol(epochs=1), generator), normalize(self.images))

    def test_normalised_pixel_is_int8_over_128(self) -> None:
        pixels = torch.tensor([0, 128, 255], dtype=torch.uint8)
        assert normalize(pixels).tolist() == [-1.0, 0.0, 127 / 128]

    def test_crop_moves_each_image_by_at_most_the_padding(self) -> None:
        protocol = Protocol(epochs=1, crop_padding_px=1)
        image = torch.zeros(64, 1, 5, 5, dtype=torch.uint8)
        image[:, :, 2, 2] = 255
        moved = augment(image, protocol, torch.Generator().manual_seed(0))
        rows, columns = torch.where(moved[:, 0] == 127 / 128)[1:]
        assert set(rows.tolist()) == set(columns.tolist()) == {1, 2, 3}
        assert len(rows) == 64

    def test_flip_mirrors_about_half_of_them(self) -> None:
        protocol = Protocol(epochs=1, flip=True)
        images = torch.arange(4, dtype=torch.uint8).reshape(1, 1, 1, 4).repeat(1000, 1, 1, 1)
        flipped = augment(images, protocol, torch.Generator().manual_seed(0))[:, 0, 0, 0] == normalize(
            torch.tensor(3, dtype=torch.uint8)
        )
        assert 400 < int(flipped.sum()) < 600


def test_split_has_a_length() -> None:
    assert len(Split(np.zeros((3, 1, 2, 2), np.uint8), np.zeros(3, np.int64))) == 3
