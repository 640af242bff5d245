"""One training of generated code, in a jail: a Trainer that sees no network, only what comes out."""

from collections.abc import Iterator
from pathlib import Path

from automcu_ray.core.training_recipe import Protocol
from automcu_ray.deploy import foreign
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.deploy.untrusted_onnx import ForeignNetwork, network_hash
from automcu_ray.problem.task import Task
from automcu_ray.records.record import TrainingSummary
from automcu_ray.runtime.config import JailConfig
from trainables.datasets.base import Images, Split
from trainables.jail.client import Jail, Traced
from trainables.jail.conversation import CandidateError
from trainables.training.loop import Epoch
from trainables.training.trainer import Trainer


class JailedTrainer(Trainer):
    """Trains code after code in one jail, which starts with the first and stays for the next.

    Every accuracy in the summary is worked out here, from the ONNX file that came out, and the network in it must be
    the one that the same code gives to a check: code can tell training from a check, and grow.
    """

    def __init__(
        self,
        task: Task,
        protocol: Protocol,
        train_split: Split,
        val_split: Split,
        config: JailConfig,
        *,
        threads: int = 1,
        gpus: float = 1.0,
    ) -> None:
        super().__init__(task, protocol, train_split, val_split, gpus=gpus)
        self.jail = Jail(task, config, threads=threads, gpus=gpus if self.device == "cuda" else 0)

    def start(self, code: str, *, seed: int) -> Iterator[Epoch]:  # type: ignore[override]
        """Return the training of a network whose weights are drawn from `seed`, an epoch at a time."""
        self.code, self.seed, self.seconds = code, seed, 0.0
        self.jail.start()
        return self._timed(self._epochs())

    def finish(self, epoch: Epoch) -> tuple[TrainingSummary, DeployedNetwork]:
        summary, deployed = super().finish(epoch)
        accuracy = deployed.as_float.accuracy(self.val_split.images, self.val_split.labels)
        return summary.replace(val_accuracy_float=accuracy), deployed

    def save(self, folder: Path) -> Path:
        """Write the code and the trained float network; return the network's file."""
        (folder / "net.py").write_text(self.code)
        (folder / "trained.onnx").write_bytes(self.traced.inference)
        return folder / "trained.onnx"

    def close(self) -> None:
        self.jail.close()

    def _epochs(self) -> Iterator[Epoch]:
        """Yield epochs; the last one only when the trained network is here, and the one that a check sees."""
        checked = self._structure(self.jail.check(self.code))
        arrays = (self.train_split.images, self.train_split.labels, self.val_split.images)
        last: Epoch | None = None
        for result in self.jail.train(self.code, self.seed, self.protocol, arrays, self.val_split.labels):
            if isinstance(result, Traced):
                if self._structure(result) != checked:
                    raise CandidateError("train", "sandbox", "the network trained is not the one that was checked")
                self.traced = result
            elif result.last:
                last = result
            else:
                yield result
        if last is None:
            raise CandidateError("train", "sandbox", "training ended without a last epoch")
        yield last

    def _structure(self, traced: Traced) -> tuple[ForeignNetwork, str]:
        """Return what must not change while a network trains.

        Raises:
            ToolchainError: it may not be loaded here at all.
        """
        found = foreign.check(traced.inference, self.task.input_shape, self.task.num_classes)
        return found, network_hash(traced.inference)

    def _deploy(self, calibration: Images) -> DeployedNetwork:
        model, shape = self.traced.inference, self.task.input_shape
        return foreign.deploy(model, shape, precision=self.task.precision, calibration=calibration)

    def _peak_memory_bytes(self) -> int | None:
        return self.traced.peak_memory_bytes if self.device == "cpu" else None
