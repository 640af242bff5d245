"""The proxy trial: one candidate, a short protocol, the accuracy of the network as deployed."""

from collections.abc import Iterator
from statistics import fmean
from typing import Any

import torch
from ray import tune

from automcu_ray.core.training_recipe import Protocol, RankedBy
from automcu_ray.networks.candidate import Candidate
from automcu_ray.problem.task import Task
from automcu_ray.records.record import TrainingSummary
from automcu_ray.runtime.config import JailConfig
from trainables.datasets.base import Split
from trainables.jail.jailed_trainer import JailedTrainer
from trainables.training.loop import Epoch
from trainables.training.trainer import CANDIDATE_ERRORS, Trainer, in_words


class ProxyTrainable(tune.Trainable):  # type: ignore[misc]
    """Trains a spec or a cell, or code in a jail, whichever `config` has: a report a step.

    Each result has a TrainingSummary in "training": of the float network while training goes on, where a scheduler may
    stop it, and of the deployed one in the last result; "val_accuracy" and "score" are its.
    What goes wrong with a candidate (diverged, out of memory, not convertible) is a result with "failure", and with the
    "seconds" that its training took.
    Arguments beside the config come through `tune.with_parameters`, the splits by Ray's object store.
    """

    def setup(
        self,
        config: dict[str, Any],
        task: Task,
        protocol: Protocol,
        train_split: Split,
        val_split: Split,
        seed: int = 0,
        threads: int = 1,
        gpus: float = 1.0,
        jail: JailConfig | None = None,
        rank_by: RankedBy = "accuracy",
    ) -> None:
        data, jail = (train_split, val_split), jail or JailConfig()
        self.spec_trainer = Trainer(task, protocol, *data, gpus=gpus)
        self.code_trainer = JailedTrainer(task, protocol, *data, jail, threads=threads, gpus=gpus)
        self.run_seed, self.rank_by = seed, rank_by
        torch.set_num_threads(threads)
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start the next candidate in this worker: milliseconds, where a new worker costs seconds."""
        self.config = new_config
        self.epochs: Iterator[Epoch] | None = None
        self.losses: list[float] = []
        return True

    def step(self) -> dict[str, Any]:
        try:
            if self.epochs is None:
                self.candidate = Candidate.of_trial(self.config)
                seed, structure = candidate_seed(self.run_seed, self.config["number"]), self.candidate.structure
                self.trainer: Trainer = self.code_trainer if structure is None else self.spec_trainer
                self.trainer.seconds = 0.0
                if structure is None:
                    self.epochs = self.code_trainer.start(self.candidate.code, seed=seed)
                else:
                    self.epochs = self.spec_trainer.start(structure, seed=seed)
            epoch = next(self.epochs)
            self.losses.append(epoch.loss)
            if not epoch.last:
                return {**self._result(self.trainer.so_far(epoch)), "epoch": epoch.number}
            summary, _ = self.trainer.finish(epoch)
        except torch.AcceleratorError:
            raise  # this process has lost its GPU, whoever's fault: Tune tries again in another
        except CANDIDATE_ERRORS as error:
            result = {"failure": in_words(error), "seconds": self.trainer.seconds, "done": True}
            return {"val_accuracy": float("-inf"), "score": float("-inf"), **result}  # Tune insists on its metrics
        return {**self._result(summary), "done": True}

    def cleanup(self) -> None:
        self.code_trainer.close()

    def _result(self, summary: TrainingSummary) -> dict[str, Any]:
        if not self.candidate.code:  # generated code says its loss itself, and what it says decides nothing
            summary = summary.replace(train_loss=fmean(self.losses), ranked_by=self.rank_by)
        return summary.reported()


def candidate_seed(run_seed: int, number: int) -> int:
    """Return the seed of a candidate's weights and batches: its own, whatever worker it lands on."""
    return run_seed * 100_000 + number
