"""A stranger's graph as a deployed network: what touches it does so in the bounded process."""

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from automcu_ray.deploy.bounded import run_bounded
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.deploy.nearest_spec import Reading
from automcu_ray.deploy.pixels import Pixels
from automcu_ray.deploy.untrusted_onnx import ForeignNetwork
from automcu_ray.problem.precision import Precision

COMPARED = 32  # images that a quantised file is asked for its own answers


@dataclass(frozen=True)
class Adopted:
    """A user's ONNX file in the form of a traced model, and what was changed; `quantised`: it has scales of its own."""

    model: bytes
    changes: list[str]
    quantised: bool


def adopt(model: bytes, input_shape: tuple[int, int, int], num_classes: int, pixels: Pixels) -> Adopted:
    """Return a user's ONNX file in the form of a traced model: see `adoption.adopt`.

    Raises:
        ToolchainError: as there, or it was too much for the process that read it.
    """
    asked = {"input_shape": input_shape, "num_classes": num_classes, "pixels": dataclasses.astuple(pixels)}
    told, (adopted,) = run_bounded("adopt", asked, [model])
    return Adopted(adopted, told["changes"], told["quantised"])


def nearest_spec(model: bytes, image_shape: tuple[int, int, int]) -> Reading:
    """Return the layers of a spec that are nearest to a user's network: see `nearest_spec.read_spec`.

    Raises:
        ToolchainError: as there, or it was too much for the process that read it.
    """
    told, _ = run_bounded("spec", {"input_shape": image_shape}, [model])
    return Reading(**{**told, "lost": Counter(told["lost"])})


def check(model: bytes, input_shape: tuple[int, int, int], num_classes: int, *, pairs: bool = False) -> ForeignNetwork:
    """Return what `check_foreign` says of a traced model.

    Raises:
        ToolchainError: it may not be run here, or was too much for the process that looked at it.
    """
    asked = {"input_shape": input_shape, "num_classes": num_classes, "pairs": pairs}
    about, _ = run_bounded("check", asked, [model])
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


def deploy_quantised(
    adopted: bytes,
    file: bytes,
    input_shape: tuple[int, int, int],
    *,
    pixels: Pixels,
    calibration: npt.NDArray[np.uint8],
) -> tuple[DeployedNetwork, list[str]]:
    """Return a checked file that is quantised already, as it ships, and what a user should know of it.

    Args:
        adopted: what `adopt` made of `file`.
        file: as the user gave it, with whose own answers those of the result are compared.
        input_shape: (channels, height, width).
        pixels: what the file takes for a pixel.
        calibration: images (N, *input_shape) to compare by; for the scale of the answer, where the file has none.

    Raises:
        ToolchainError: an operator has no form of int8, or it was too much for the process.
    """
    asked = {"input_shape": input_shape, "pixels": dataclasses.astuple(pixels), "compared": COMPARED}
    blobs = [adopted, np.ascontiguousarray(calibration).tobytes(), file]
    told, (float_onnx, onnx) = run_bounded("deploy_quantised", asked, blobs)
    about = told["network"] | {"input_shape": input_shape, "foreign": True}
    said = (
        f"quantised already: its own scales are kept, without calibration; on {told['compared']} images its answers "
        f"are at most {told['steps']:g} of 256 steps from those of the file itself in onnxruntime"
    )
    return DeployedNetwork(**about, float_onnx=float_onnx, onnx=onnx), [said, *told["notes"]]
