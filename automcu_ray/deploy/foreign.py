"""A stranger's graph as a deployed network: what touches it does so in the bounded process."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from automcu_ray.deploy.bounded import run_bounded
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.deploy.pixels import Pixels
from automcu_ray.deploy.untrusted_onnx import ForeignNetwork
from automcu_ray.problem.precision import Precision


def adopt(model: bytes, input_shape: tuple[int, int, int], num_classes: int, pixels: Pixels) -> tuple[bytes, list[str]]:
    """Return a user's ONNX file in the form of a traced model, and what was changed: see `adoption.adopt`.

    Raises:
        ToolchainError: as there, or it was too much for the process that read it.
    """
    asked = {"input_shape": input_shape, "num_classes": num_classes, "pixels": dataclasses.astuple(pixels)}
    told, (adopted,) = run_bounded("adopt", asked, [model])
    return adopted, told["changes"]


def check(model: bytes, input_shape: tuple[int, int, int], num_classes: int) -> ForeignNetwork:
    """Return what `check_foreign` says of a traced model.

    Raises:
        ToolchainError: it may not be run here, or was too much for the process that looked at it.
    """
    about, _ = run_bounded("check", {"input_shape": input_shape, "num_classes": num_classes}, [model])
    return ForeignNetwork(**about)


def deploy(
    model: bytes, input_shape: tuple[int, int, int], *, precision: Precision, calibration: npt.NDArray[np.uint8]
) -> DeployedNetwork:
    """Return a checked model as it ships, as `export.deploy_traced` does; it runs in the bounded process for ever.

    Raises:
        ToolchainError: as `deploy_traced`, or it was too much for the process.
    """
    asked: dict[str, Any] = {"input_shape": input_shape, "precision": precision}
    about, (float_onnx, onnx) = run_bounded("deploy", asked, [model, np.ascontiguousarray(calibration).tobytes()])
    about |= {"input_shape": input_shape, "foreign": True}
    return DeployedNetwork(**about, float_onnx=float_onnx, onnx=onnx)
