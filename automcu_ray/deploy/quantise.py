"""Float ONNX to int8 ONNX, by onnxruntime's quantiser and what it leaves in float."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from automcu_ray.core.errors import ToolchainError, first_line
from automcu_ray.deploy import recurrent_steps
from automcu_ray.deploy.onnx_graph import quantise_before_pools
from automcu_ray.deploy.onnx_rewrites import widen_means
from automcu_ray.deploy.tables import Island, excluded, tabulate
from automcu_ray.deploy.tracing import INPUT

SMALLEST_RANGE = 1e-3  # without one, a ReLU that gave zeros alone has zero point 0, and int8 no longer cuts below it


def quantise(
    model: onnx.ModelProto, batches: Sequence[npt.NDArray[np.float32]], islands: Sequence[Island]
) -> onnx.ModelProto:
    """Return the network in int8 by onnxruntime: one scale for each channel of weights, one for each activation.

    The ranges of the activations come from the calibration's batches (N, C, H, W). What is left in float, the islands,
    becomes tables, recurrent layers become loops.

    Raises:
        ToolchainError: onnxruntime cannot.
    """
    recurrent = recurrent_steps.prepare(model)
    if recurrent:
        recurrent = recurrent_steps.measured(model, recurrent, batches)
    with tempfile.TemporaryDirectory(prefix="automcu-quantise-") as folder:
        source, result = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        source.write_bytes(model.SerializeToString())
        try:
            quantize_static(
                source,
                result,
                _Calibration(batches),
                quant_format=QuantFormat.QOperator,  # QDQ models are run in float by the C generator
                per_channel=True,
                activation_type=QuantType.QInt8,
                weight_type=QuantType.QInt8,
                nodes_to_exclude=excluded(model, islands) + recurrent_steps.excluded(recurrent, model),
                extra_options={"MinimumRealRange": SMALLEST_RANGE},
            )
        except Exception as error:  # onnxruntime's errors share no base class
            raise ToolchainError(f"onnxruntime cannot quantise the network: {first_line(error)}") from error
        quantised = onnx.load(result)
    widen_means(model, quantised)
    tabulate(quantised, islands)
    recurrent_steps.put_steps(quantised, recurrent)
    quantise_before_pools(quantised)
    return quantised


class _Calibration(CalibrationDataReader):  # type: ignore[misc]
    """Hands out the calibration images in a few large batches: one at a time costs three times the CPU."""

    def __init__(self, batches: Sequence[npt.NDArray[np.float32]]) -> None:
        self.batches = iter([{INPUT: batch} for batch in batches])

    def get_next(self) -> dict[str, npt.NDArray[np.float32]] | None:
        return next(self.batches, None)
