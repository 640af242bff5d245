"""One training from spec to deployed network: what a proxy trial and a finalist have in common."""

import functools
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.training_recipe import Protocol
from automcu_ray.deploy.export import DeployedNetwork, deploy
from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.candidate import Structure
from automcu_ray.problem.task import Task
from automcu_ray.records.record import TrainingSummary
from trainables.datasets.base import Images, Split
from trainables.training.augment import normalize
from trainables.training.checkpoint import Checkpoint
from trainables.training.loop import Epoch, Resident, train
from trainables.training.process_memory import forget_peak_memory, limit_gpu_memory, peak_memory_bytes
from trainables.training.qat import Rounded

WEIGHTS = "weights.pt"
CANDIDATE_ERRORS = (MemoryError, RuntimeError, ValueError, FloatingPointError, ToolchainError)  # what one can cause


class Trainer:
    """Trains one spec or cell after the other on the same data; `start` yields epochs, `finish` deploys the last one.

    `gpus` is its share of a GPU, and of that one's memory; 0 keeps it off GPUs.
    """

    def __init__(
        self, task: Task, protocol: Protocol, train_split: Split, val_split: Split, *, gpus: float = 1.0
    ) -> None:
        self.task, self.protocol, self.gpus = task, protocol, gpus
        self.train_split, self.val_split = train_split, val_split
        self.seconds = 0.0
        self.device = device_for(gpus)
        self.network: nn.Module = nn.Identity()

    def start(
        self,
        structure: Structure,
        *,
        seed: int,
        checkpoint: Checkpoint | None = None,
        teacher: Network | None = None,
    ) -> Iterator[Epoch]:
        """Build the network with weights drawn from `seed`, and return its training, an epoch at a time.

        Where `checkpoint` has a state, that is the training's rest. A trained `teacher` has its share of the loss
        (`Protocol.distill`).
        """
        self.network = nn.Identity()  # the worker is reused: the last candidate's memory must not count
        if self.device == "cuda":
            torch.cuda.empty_cache()
            limit_gpu_memory(self.gpus)
        self.peak_is_its_own = forget_peak_memory(self.device)
        self.seed, self.seconds = seed, checkpoint.seconds if checkpoint else 0.0
        torch.manual_seed(seed)
        self.network = Network(self.task.graph(structure))
        return self._timed(
            train(
                self.network,
                self._resident,
                self.val_split,
                self.protocol,
                self.device,
                seed,
                checkpoint=checkpoint,
                teacher=teacher,
                learning=self.task.learning,
            )
        )

    def start_rounded(self, checkpoint: Checkpoint, teacher: Network | None = None) -> Iterator[Epoch]:
        """Return more training of the network just trained, rounded as int8 rounds it, an epoch at a time.

        The `teacher` is as in `start`. After the last epoch `finish` deploys what came of it; `seconds` go on.
        """
        assert isinstance(self.network, Network), "a spec or a cell has been trained"
        protocol, network = self.protocol.rounded, self.network.to(self.device).eval()
        self.seconds += checkpoint.seconds
        rounded = Rounded(network, normalize(self._resident.images[: protocol.calibration_images]))
        yield from self._timed(
            train(
                rounded,
                self._resident,
                self.val_split,
                protocol,
                self.device,
                self.seed,
                recorded=False,
                checkpoint=checkpoint,
                teacher=teacher,
                learning=self.task.learning,
            )
        )
        self.network = rounded.shipped()

    @functools.cached_property
    def _resident(self) -> Resident:
        """The training images where they are needed, for all candidates of this worker."""
        return Resident.of(self.train_split, self.device)

    def _timed(self, epochs: Iterator[Epoch]) -> Iterator[Epoch]:
        """Yield the epochs, counting the seconds that they take and not those in which nobody asks for the next."""
        while True:
            started_s = time.perf_counter()
            try:
                epoch = next(epochs, None)
            finally:  # a failure has taken its time too
                self.seconds += time.perf_counter() - started_s
            if epoch is None:
                return
            yield epoch

    def finish(self, epoch: Epoch) -> tuple[TrainingSummary, DeployedNetwork]:
        """Return the summary, with the validation accuracy of the deployed network, and that network.

        int8 ranges come from training images alone.

        Raises:
            ToolchainError: the network cannot be exported or quantised.
        """
        started_s = time.perf_counter()
        try:
            deployed = self._deploy(self.train_split.images[: self.protocol.calibration_images])
            accuracy = deployed.score(self.task.learning, self.val_split.images, self.val_split.labels)
        finally:  # a failure has taken its time too
            self.seconds += time.perf_counter() - started_s
        summary = self._summary(epoch, accuracy, stopped_early=epoch.stopped_early)
        return summary.replace(peak_memory_bytes=self._peak_memory_bytes()), deployed

    def so_far(self, epoch: Epoch) -> TrainingSummary:
        """Return what is known should the training be stopped here: nothing is deployed, float accuracy is all."""
        return self._summary(epoch, epoch.val_accuracy, stopped_early=True)

    def _deploy(self, calibration: Images) -> DeployedNetwork:
        network = self.network.to("cpu").eval()
        return deploy(network, self.task.input_shape, precision=self.task.precision, calibration=calibration)

    def _peak_memory_bytes(self) -> int | None:
        return peak_memory_bytes(self.device) if self.peak_is_its_own else None

    def _summary(self, epoch: Epoch, accuracy: float, *, stopped_early: bool) -> TrainingSummary:
        return TrainingSummary(
            val_accuracy=accuracy,
            val_accuracy_float=epoch.val_accuracy,
            metric=self.task.learning.metric,
            metric_value=self.task.learning.reported(accuracy),
            epochs=epoch.number,
            stopped_early=stopped_early,
            seconds=self.seconds,
            device=torch.cuda.get_device_name() if self.device == "cuda" else "cpu",
            seed=self.seed,
        )

    def save(self, folder: Path) -> Path:
        """Write the trained weights and return the file."""
        torch.save(self.network.state_dict(), folder / WEIGHTS)
        return folder / WEIGHTS

    def close(self) -> None:
        """Give back what the trainer holds."""


def device_for(gpus: float) -> str:
    """Return torch's name of the device that a training with this share of a GPU runs on."""
    return "cuda" if gpus and torch.cuda.is_available() else "cpu"


def in_words(error: Exception) -> str:
    """Return what a record says of an error: its kind and its message, cut to 500 characters."""
    return f"{type(error).__name__}: {error}"[:500]
