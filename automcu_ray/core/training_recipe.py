"""Training protocols as data: the same steps for every candidate (paper 000, section III-C)."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from automcu_ray.core.models import FiniteModel, FrozenModel

RankedBy = Literal["accuracy", "loss"]
Positive = Annotated[int, Field(gt=0)]
QAT_RATE = 0.01  # of the learning rate before
PROXY_ERRORS = 3.0  # wrong answers after the proxy's training, for each one after full training, on digits


class Protocol(FiniteModel):
    """One training recipe: SGD with momentum, batches from a uint8 tensor, augmentation on the training device.

    Attributes:
        epochs: passes over the training images, or over `train_share` of them, drawn afresh for each.
        crop_padding_px: images are shifted by up to that many pixels.
        flip: half of the images are mirrored left to right.
        cutout_px: side of a square that is greyed somewhere in each image (DeVries & Taylor 2017, arXiv:1708.04552).
        mixup: parameter alpha of Zhang et al. 2018 (arXiv:1710.09412); 0 mixes nothing.
        cutmix: the same of Yun et al. 2019 (arXiv:1905.04899); where both are given, each batch takes one by chance.
        ema_decay: the network that is scored and kept is a running mean of the weights, with this decay a step (less in
            the first steps); None: the last weights.
        reports_per_epoch: how often an epoch is interrupted to score the network, so that a scheduler or a time limit
            can stop it there.
        patience: stop after so many reports without a better validation accuracy; None: never.
        calibration_images: training images that the ranges of the int8 activations come from.
        qat_epochs: finalists for int8 train on for so many epochs with weights and activations rounded as int8 will
            round them; validation chooses what ships, this or what they were before. Generated code is left as it was.
        class_weights: an example counts the more in the loss the fewer its class has, as if all had equally many.
        distill: share of a finalist's loss that is the answer of its teacher: of `Protocols.teacher`, in all epochs;
            where none is named, of the finalist that validates best in float, in the `qat_epochs`, and all are trained
            in float before the first of them is rounded. Generated code learns from nobody.
    """

    epochs: Positive
    train_share: float = Field(default=1.0, gt=0, le=1)
    batch_size: Positive = 128
    learning_rate: float = Field(default=0.1, gt=0)
    schedule: Literal["one_cycle", "cosine", "constant"] = "one_cycle"
    momentum: float = Field(default=0.9, ge=0, lt=1)
    nesterov: bool = True
    weight_decay: float = Field(default=5e-4, ge=0)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    class_weights: bool = False
    crop_padding_px: int = Field(default=0, ge=0)
    flip: bool = False
    cutout_px: int = Field(default=0, ge=0)
    mixup: float = Field(default=0.0, ge=0)
    cutmix: float = Field(default=0.0, ge=0)
    ema_decay: float | None = Field(default=None, gt=0, lt=1)
    reports_per_epoch: Positive = 1
    patience: Positive | None = None
    calibration_images: Positive = 256
    qat_epochs: int = Field(default=0, ge=0)
    distill: float = Field(default=0.0, ge=0, le=1)

    @property
    def reports(self) -> int:
        """How often the network is scored in a training that runs to its end."""
        return self.epochs * self.reports_per_epoch

    def images_per_epoch(self, images: int) -> int:
        """Return how many of the training images an epoch takes."""
        return max(1, round(self.train_share * images))

    def steps_per_epoch(self, images: int) -> int:
        """Return the steps of an epoch, where there are so many training images."""
        return -(-self.images_per_epoch(images) // self.batch_size)

    @property
    def rounded(self) -> "Protocol":
        """The recipe of the `qat_epochs`: the same one at a small rate that falls to zero."""
        schedule = {"epochs": self.qat_epochs, "learning_rate": self.learning_rate * QAT_RATE, "schedule": "cosine"}
        return self.replace(**schedule, ema_decay=None, reports_per_epoch=1, patience=None)


class Protocols(FrozenModel):
    """How candidates are ranked (`proxy`) and how finalists are trained (`full`).

    `rank_by` is what the search compares candidates by: validation accuracy as deployed, or the proxy's mean training
    loss, unless the searcher writes code. Finalists are compared by validation accuracy in any case.
    `proxy_errors` is how many wrong answers the proxy's training leaves for each one that full training leaves: by it
    the search for the cheapest network foresees which will be accurate enough (docs/speed.md).
    `asha` lets Ray's ASHA scheduler stop the worse part of the trials at 1, 3, 9, ... reports; a trial that it stops
    keeps the float accuracy of its last report, undeployed.
    `teacher` is the folder of a finished run on the same data, with more room: finalists learn from its winner, as far
    as `full.distill` says. Links are followed at once, for runs/latest will soon be another run.
    """

    proxy: Protocol
    full: Protocol
    rank_by: RankedBy = "accuracy"
    proxy_errors: Annotated[float, Field(ge=1)] = PROXY_ERRORS
    asha: bool = False
    teacher: Annotated[Path, AfterValidator(Path.resolve)] | None = None
