"""Training protocols as data: the same steps for every candidate (paper 000, section III-C)."""

from typing import Annotated, Literal

from pydantic import Field

from automcu_ray.frozen import Frozen

Positive = Annotated[int, Field(gt=0)]


class Protocol(Frozen):
    """One training recipe: SGD with momentum, batches from a uint8 tensor, augmentation on the training device.

    `crop_padding_px` shifts images by up to that many pixels, `flip` mirrors them left to right, `patience` stops
    after so many epochs without a better validation accuracy (None: never).
    """

    epochs: Positive
    batch_size: Positive = 128
    learning_rate: float = Field(default=0.1, gt=0)
    schedule: Literal["one_cycle", "cosine", "constant"] = "one_cycle"
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=5e-4, ge=0)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    crop_padding_px: int = Field(default=0, ge=0)
    flip: bool = False
    patience: Positive | None = None
    calibration_images: Positive = 256


class Protocols(Frozen):
    """How candidates are ranked (`proxy`) and how finalists are trained (`full`)."""

    proxy: Protocol
    full: Protocol
