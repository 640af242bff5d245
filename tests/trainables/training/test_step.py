"""The pieces of a step: rates, the running mean, the loss of mixed labels; recording needs a GPU."""

import contextlib
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

from automcu_ray.core.training_recipe import Protocol
from trainables.training.losses import balancing
from trainables.training.step import (
    RecordedStep,
    RunningMean,
    Step,
    _side_stream,
    learning_rates,
    make_optimizer,
    set_rate,
)


def falling(share: float) -> float:
    """Return a cosine wave's height, from 1 at its start to 0 at half of it."""
    return (1 + math.cos(math.pi * share)) / 2


def test_one_cycle_rises_for_a_quarter_and_falls_to_nothing() -> None:
    rates = learning_rates(Protocol(epochs=1, learning_rate=0.2), 40)
    rising = [0.008 + 0.192 * falling(1 - step / 9) for step in range(10)]  # from 0.2 / 25
    assert rates == pytest.approx(rising + [8e-7 + (0.2 - 8e-7) * falling((step - 9) / 30) for step in range(10, 40)])


def test_one_cycle_of_few_steps_has_a_rate_for_each() -> None:
    assert learning_rates(Protocol(epochs=1, learning_rate=0.2), 4)[0] == pytest.approx(0.2)  # no step to rise in
    for steps in range(1, 8):
        assert all(0 < rate <= 0.2 for rate in learning_rates(Protocol(epochs=1, learning_rate=0.2), steps))


def test_cosine_falls_from_the_rate_and_constant_stays() -> None:
    cosine = Protocol(epochs=1, learning_rate=0.2, schedule="cosine")
    assert learning_rates(cosine, 4) == pytest.approx([0.2, 0.1 + 0.1 * 0.5**0.5, 0.1, 0.1 - 0.1 * 0.5**0.5])
    assert learning_rates(Protocol(epochs=1, learning_rate=0.2, schedule="constant"), 3) == [0.2] * 3


def test_running_mean_forgets_the_first_steps_sooner() -> None:
    network = nn.Linear(1, 1, bias=False)
    mean = RunningMean(network, decay=0.9)
    for value in (1.0, 2.0, 3.0):
        nn.init.constant_(network.weight, value)
        mean.update(network)
    # 1, then 2 with decay 3/12: 1.75, then 3 with decay 4/13: 0.30769 * 1.75 + 0.69231 * 3
    own = mean.put_into(network)
    assert float(network.weight.detach()) == pytest.approx(4 / 13 * 1.75 + 9 / 13 * 3)
    assert float(own["weight"]) == 3.0


def test_running_mean_takes_the_statistics_of_batch_norms_too() -> None:
    network = nn.BatchNorm2d(1)
    mean = RunningMean(network, decay=0.5)
    mean.update(network)
    network(torch.full((4, 1, 2, 2), 10.0))  # momentum 0.1: running mean 1.0
    mean.update(network)
    mean.put_into(network)
    assert float(network.running_mean[0]) == pytest.approx(0.75)  # type: ignore[index]  # decay 3/12


def test_loss_of_mixed_labels_is_mixed() -> None:
    network, protocol = nn.Linear(3, 3), Protocol(epochs=1, label_smoothing=0.1)
    batch, labels, others = torch.randn(4, 3), torch.tensor([0, 1, 2, 0]), torch.tensor([1, 1, 0, 2])
    logits = network(batch).detach()
    step = Step(network, make_optimizer(network, protocol, "cpu"), protocol, "cpu")
    both = [float(functional.cross_entropy(logits, target, label_smoothing=0.1)) for target in (labels, others)]
    found = step(batch, labels, others, torch.tensor(0.25))
    assert float(found) == pytest.approx(0.25 * both[0] + 0.75 * both[1], rel=1e-5)


def test_balanced_classes_weigh_the_same_whatever_their_number() -> None:
    labels = torch.tensor([0, 0, 0, 1, 2, 2])
    weights = balancing(labels)
    assert torch.allclose(weights, torch.tensor([2 / 3, 2.0, 1.0])) and float(weights[labels].mean()) == pytest.approx(
        1
    )


def test_a_teacher_is_worth_its_share_of_the_loss_and_learns_nothing() -> None:
    network, teacher, protocol = nn.Linear(3, 3), nn.Linear(3, 3), Protocol(epochs=1, distill=0.75)
    batch, labels = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    logits, wanted = network(batch).detach(), teacher(batch).detach().softmax(1)
    own = float(functional.cross_entropy(logits, labels))
    from_teacher = float(-(wanted * logits.log_softmax(1)).sum(1).mean())
    found = Step(network, make_optimizer(network, protocol, "cpu"), protocol, "cpu", teacher)(batch, labels)
    assert float(found) == pytest.approx(0.25 * own + 0.75 * from_teacher, rel=1e-5)
    assert teacher.weight.grad is None


def test_a_step_follows_the_rate_it_is_given() -> None:
    network, protocol = nn.Linear(2, 2), Protocol(epochs=1, momentum=0, weight_decay=0, learning_rate=0.5)
    optimizer = make_optimizer(network, protocol, "cpu")
    before = network.weight.detach().clone()
    for rate in (0.0, 0.1):
        set_rate(optimizer, rate)
        Step(network, optimizer, protocol, "cpu")(torch.ones(1, 2), torch.tensor([0]))
        assert torch.equal(network.weight, before) == (rate == 0)


def test_only_batches_of_the_first_size_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, plain = [], []

    class Recorded(RecordedStep):
        def _record(self, inputs: tuple[torch.Tensor, ...]) -> None:
            recorded.append(len(inputs[0]))
            self.inputs, self.loss = list(inputs), torch.zeros(())
            self.graph = SimpleNamespace(replay=lambda: None)  # type: ignore[assignment]

    def step(batch: torch.Tensor) -> torch.Tensor:
        plain.append(len(batch))
        return torch.zeros(())

    for name in ("Stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda: SimpleNamespace(wait_stream=lambda other: None))
    _side_stream.cache_clear()
    monkeypatch.setattr(torch.cuda, "stream", lambda one: contextlib.nullcontext())
    run = Recorded(step)  # type: ignore[arg-type]
    assert run.stream is Recorded(step).stream, "one for all trainings of a process"  # type: ignore[arg-type]
    for size in (32, 32, 32, 16, 32, 16, 32):  # the fourth, with which recording could begin, is a short one
        run(torch.zeros(size))
    assert (recorded, plain) == ([32], [32, 32, 32, 16, 16])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_recorded_steps_train_as_steps_do() -> None:
    ends = []
    for record in (False, True):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
        network.to("cuda")
        protocol = Protocol(epochs=1, learning_rate=0.1)
        optimizer = make_optimizer(network, protocol, "cuda")
        step = Step(network, optimizer, protocol, "cuda")
        run = RecordedStep(step) if record else step
        for number in range(12):
            set_rate(optimizer, 0.1 / (number + 1))
            size = 16 if number == 8 else 32  # the short batch at the end of an epoch
            run(torch.randn(size, 3, 8, 8, device="cuda"), torch.randint(4, (size,), device="cuda"))
        ends.append([parameter.detach().clone() for parameter in network.parameters()])
    assert all(torch.allclose(one, other, atol=1e-3) for one, other in zip(*ends, strict=True))
