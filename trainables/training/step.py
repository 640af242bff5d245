"""One step of training, as PyTorch runs it or as CUDA replays it, and what the steps add up to: a mean of weights."""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from automcu_ray.core.learning import Learning
from automcu_ray.core.training_recipe import Protocol
from trainables.training.losses import LossFunction, loss_of

WARM_UP_STEPS = 3
PAYING_STEPS = 50  # a recording costs about as much as some of these
RISING = math.nextafter(0.25, 0)  # the part of a one-cycle before its peak; at 1/4, OneCycleLR divides 4 steps by zero

_Tensors = tuple[Tensor, ...] | list[Tensor]
StepFunction = Callable[..., Tensor]  # (batch, labels) or (batch, labels, labels of the partners, share) -> loss


class Step:
    """Forward, loss, backward, update; answers with the loss, which stays on the device: nothing waits for it.

    float32 on a CPU: with bfloat16 a network of full convolutions takes 0.6 of the CPU time there, but one of depthwise
    convolutions 1.4 times as much, and those fit microcontrollers. bfloat16 on a GPU that has it: half the bytes.
    """

    def __init__(
        self,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        protocol: Protocol,
        device: str,
        teacher: nn.Module | None = None,
        loss: LossFunction | None = None,
    ) -> None:
        self.network, self.optimizer = network, optimizer
        self.loss = loss or loss_of(Learning(), protocol)
        self.teacher, self.taught = teacher, protocol.distill
        if teacher is not None:
            teacher.to(device=device, memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
        self.kind, self.bfloat16 = torch.device(device).type, False
        if self.kind == "cuda":
            self.bfloat16 = torch.cuda.get_device_capability() >= (8, 0)

    def __call__(
        self, batch: Tensor, labels: Tensor, others: Tensor | None = None, share: Tensor | None = None
    ) -> Tensor:
        # The cache of cast weights would outlive a recording; each weight is used once anyway.
        with torch.autocast(self.kind, torch.bfloat16, enabled=self.bfloat16, cache_enabled=False):
            logits = self.network(batch)
        logits = logits.float()
        loss = self.loss(logits, labels, batch)
        if others is not None and share is not None:
            loss = loss * share + self.loss(logits, others, batch) * (1 - share)
        if self.teacher is not None:
            # Cross entropy to its classes (Hinton et al. 2015, arXiv:1503.02531) at temperature 1: where a student is
            # a trained network too, often the same one, there is little to soften.
            with torch.no_grad():
                wanted = self.teacher(batch).float().softmax(1)
            loss = loss * (1 - self.taught) + functional.cross_entropy(logits, wanted) * self.taught
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()


class RecordedStep:
    """A step that CUDA replays as one graph: small networks wait for launches, not for arithmetic.

    The first steps run as they are, on a stream of their own, as a recording wants it; so does a batch of another size
    than the first one, which is the short one at the end of an epoch.
    The steps are real ones: nothing is trained twice, nothing is undone.
    Source: "Whole-network capture" in PyTorch's notes on CUDA semantics.
    """

    def __init__(self, step: Step) -> None:
        self.step, self.done = step, 0
        self.stream = _side_stream()
        self.graph: torch.cuda.CUDAGraph | None = None
        self.sizes: list[torch.Size] = []

    def __call__(self, *inputs: Tensor) -> Tensor:
        sizes = [tensor.shape for tensor in inputs]
        if self.done < WARM_UP_STEPS:
            self.sizes = self.sizes or sizes
            self.done += 1
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                loss = self.step(*inputs)
            torch.cuda.current_stream().wait_stream(self.stream)
            return loss
        if sizes != self.sizes:
            return self.step(*inputs)
        if self.graph is None:
            self._record(inputs)
        assert self.graph is not None, "it has just been recorded"
        for place, tensor in zip(self.inputs, inputs, strict=True):
            place.copy_(tensor)
        self.graph.replay()
        return self.loss.clone()

    def _record(self, inputs: tuple[Tensor, ...]) -> None:
        """Record a step on tensors that stay where they are; recording executes nothing."""
        self.inputs = [tensor.clone(memory_format=torch.preserve_format) for tensor in inputs]
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.loss = self.step(*self.inputs)


@functools.cache
def _side_stream() -> torch.cuda.Stream:
    """Return the stream for recordings, one a process: cuBLAS keeps a workspace for each that it has seen."""
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


class RunningMean:
    """The exponential moving average of a network's weights and statistics.

    The decay of the first steps is smaller, (1 + n) / (10 + n) at most, so that they are soon forgotten.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay, self.steps = decay, 0
        self.model = AveragedModel(network, multi_avg_fn=self._blend, use_buffers=True)

    def update(self, network: nn.Module) -> None:
        """Take the network's weights into the mean."""
        self.steps += 1
        self.model.update_parameters(network)

    def put_into(self, network: nn.Module) -> dict[str, Tensor]:
        """Give a network the mean weights; return its own."""
        own = {name: value.clone() for name, value in network.state_dict().items()}
        network.load_state_dict(self.model.module.state_dict())
        return own

    def _blend(self, mean: _Tensors, now: _Tensors, count: Tensor | int) -> None:
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        get_ema_multi_avg_fn(decay)(mean, now, count)  # type: ignore[no-untyped-call]


def make_optimizer(network: nn.Module, protocol: Protocol, device: str) -> torch.optim.SGD:
    """Return SGD as one fused operation; its rate is a tensor on a GPU, where a recorded step reads it."""
    rate = protocol.learning_rate
    return torch.optim.SGD(
        network.parameters(),
        lr=torch.tensor(rate, device=device) if device.startswith("cuda") else rate,
        momentum=protocol.momentum,
        weight_decay=protocol.weight_decay,
        nesterov=protocol.nesterov and protocol.momentum > 0,
        fused=True,
    )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group of weights a learning rate, in place where it is a tensor."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load what `state_dict` gave; rates stay the objects they are, as a recorded step reads its own from a tensor."""
    rates = [group["lr"] for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def learning_rates(protocol: Protocol, steps: int) -> list[float]:
    """Return the rate of each of `steps` steps, by PyTorch's schedules.

    A list, because a training that goes on begins in its middle, and a scheduler reads back a rate that lies on a GPU.
    Source: one_cycle is Smith & Topin 2018 (arXiv:1708.07120) with cosine flanks and PyTorch's defaults but for the
    peak, which comes after a quarter; cosine is Loshchilov & Hutter 2017 (arXiv:1608.03983).
    """
    if protocol.schedule == "constant":
        return [protocol.learning_rate] * steps
    optimizer = torch.optim.SGD([torch.zeros(1)], protocol.learning_rate)
    schedule = (
        OneCycleLR(optimizer, protocol.learning_rate, steps, pct_start=RISING, cycle_momentum=False)
        if protocol.schedule == "one_cycle"
        else CosineAnnealingLR(optimizer, steps)
    )
    optimizer.step()  # of nothing: schedulers want to come after one
    rates = []
    for _ in range(steps):
        rates.append(float(schedule.get_last_lr()[0]))
        schedule.step()
    return rates
