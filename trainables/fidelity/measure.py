"""The trainings of a fidelity study: one network, one probe, and every score that can be read on the way."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Measured, Score
from automcu_ray.studies.fidelity import FULL, UNTRAINED, Probe
from trainables.datasets.base import Split
from trainables.fidelity.zero_cost import IMAGES, ZERO_COST
from trainables.proxy import candidate_seed
from trainables.training.augment import normalize
from trainables.training.trainer import CANDIDATE_ERRORS, Trainer, device_for, in_words

_REPEATS = 1000  # seeds between the studies of two seeds


@dataclass(frozen=True)
class Ground:
    """What all trainings of a study share; sent to each worker once. `data` tells this data from any other."""

    task: Task
    train: Split
    val: Split
    data: str
    seed: int
    threads: int = 1
    gpus: float = 0.0

    def shrunk(self, times: int) -> "Ground":
        """Return the same ground with images whose sides are `times` shorter: the mean of each square of pixels."""
        if times == 1:
            return self

        def shrunk(split: Split) -> Split:
            count, channels, height, width = split.images.shape
            shape = (count, channels, height // times, times, width // times, times)
            whole = split.images[:, :, : height // times * times, : width // times * times]
            return Split(whole.reshape(shape).mean(axis=(3, 5)).round().astype(whole.dtype), split.labels)

        train, val = shrunk(self.train), shrunk(self.val)
        return replace(self, task=self.task.replace(input_shape=train.images.shape[1:]), train=train, val=val)


@dataclass(frozen=True)
class Training:
    """One network, one probe, one seed: repeat 0 is the proxies', 1 and more are full training's."""

    candidate: Candidate
    probe: Probe
    repeat: int

    def seed(self, ground: Ground) -> int:
        """Return the seed of weights and batches."""
        return candidate_seed(ground.seed * _REPEATS + self.repeat, self.candidate.number)

    def key(self, ground: Ground) -> str:
        """Return 16 hex digits that change with anything the result depends on, but the versions of programs."""
        about = [ground.task.model_dump(mode="json"), ground.data, self.probe.model_dump(), self.seed(ground)]
        return hashlib.sha256(json.dumps([*about, self.candidate.hash]).encode()).hexdigest()[:16]


def measure(training: Training, ground: Ground) -> Measured:
    """Return what a training says; what goes wrong with it is its failure, and scores from before that are kept."""
    torch.set_num_threads(ground.threads)
    read = _untrained if training.probe.protocol is None else _trained
    scores, failure = [], ""
    try:
        for score in read(training, ground.shrunk(training.probe.shrink)):
            scores.append(score)
    except CANDIDATE_ERRORS as error:
        failure = in_words(error)
    return measured(training, ground, scores, failure)


def measured(training: Training, ground: Ground, scores: Sequence[Score], failure: str) -> Measured:
    """Return what is kept of a training."""
    return Measured(
        key=training.key(ground),
        number=training.candidate.number,
        probe=training.probe.name,
        repeat=training.repeat,
        scores=tuple(scores),
        failure=failure,
    )


def _trained(training: Training, ground: Ground) -> Iterator[Score]:
    """Yield what a training gives: of full training also after 1, 2, 4, ... epochs; of every one at its end."""
    probe, candidate = training.probe, training.candidate
    assert probe.protocol is not None and candidate.structure is not None, "specs and cells are trained"
    trainer = Trainer(ground.task, probe.protocol, ground.train, ground.val, gpus=ground.gpus)
    seconds = _stopwatch(trainer.device)
    losses = 0.0
    for epoch in trainer.start(candidate.structure, seed=training.seed(ground)):
        losses += epoch.loss
        if epoch.last or (probe.name == FULL and epoch.number.bit_count() == 1):
            proxy = probe.name if epoch.last else f"{FULL}, stopped after {epoch.number} of {probe.protocol.epochs}"
            spent = seconds()
            yield Score(proxy=proxy, reading="float", value=epoch.val_accuracy, seconds=spent)
            yield Score(proxy=proxy, reading="loss", value=-losses, seconds=spent)
    summary, _ = trainer.finish(epoch)
    yield Score(proxy=probe.name, reading="deployed", value=summary.val_accuracy, seconds=seconds())


def _untrained(training: Training, ground: Ground) -> Iterator[Score]:
    """Yield the zero-cost scores, each with the seconds that it alone takes; one that fails leaves the others."""
    assert training.candidate.structure is not None, "specs and cells are scored"
    device = device_for(ground.gpus)
    images = normalize(torch.as_tensor(ground.train.images[:IMAGES]).to(device))
    labels = torch.as_tensor(ground.train.labels[:IMAGES]).to(device)
    failed: list[str] = []
    for name, score in ZERO_COST.items():
        seconds = _stopwatch(device)
        torch.manual_seed(training.seed(ground))
        network = Network(ground.task.graph(training.candidate.structure)).to(device)
        try:
            value = score(network, images, labels)
        except (RuntimeError, ValueError) as error:
            failed.append(f"{name}: {error}")
        else:
            yield Score(proxy=UNTRAINED, reading=name, value=value, seconds=seconds())
    if failed:
        raise ValueError("; ".join(failed))


def _stopwatch(device: str) -> Callable[[], float]:
    """Return what says how many seconds have passed: of this process's CPU time, or of wall time beside a GPU."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    began = clock()
    return lambda: clock() - began
