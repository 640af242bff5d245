"""From a torch network to the model that ships: float32 ONNX, or int8 ONNX with int8 input and output.

One convention for the whole project: images are uint8 NCHW and the network's float input is
`(pixel - 128) / 128`, so the int8 input of a deployed model is exactly `pixel - 128`.
"""

import dataclasses
import functools
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import torch
from onnx import ModelProto

from automcu_ray.core.errors import ToolchainError, first_line
from automcu_ray.core.learning import Learning
from automcu_ray.deploy import recurrent_layers
from automcu_ray.deploy.bounded import CPU_S, run_bounded
from automcu_ray.deploy.equivalents import use_equivalents
from automcu_ray.deploy.exact_products import exact_level
from automcu_ray.deploy.onnx_graph import (
    computes_constants,
    float_operators,
    free_batch,
    integer_ends,
    leading_window,
    named,
    values_per_image,
    with_batch_one,
    worked_out,
)
from automcu_ray.deploy.onnx_graph import operators as operators
from automcu_ray.deploy.onnx_rewrites import rectify_copies
from automcu_ray.deploy.own_names import in_words, take_over
from automcu_ray.deploy.quantise import quantise
from automcu_ray.deploy.step_network import step_network
from automcu_ray.deploy.tables import drop_unread, excluded, mark
from automcu_ray.deploy.trace_check import TracedOtherwise
from automcu_ray.deploy.tracing import INPUT, OUTPUT, TRACED, trace
from automcu_ray.problem.precision import Precision
from automcu_ray.signals.front_end import FrontEnd

INPUT_SCALE = 1 / 128  # with the range [-1, 127/128], int8 covers it exactly: zero point 0
BATCH = 256
IMAGE_S = 0.5  # of CPU time for a foreign network: 850 million products took 0.07 s at int8
MAX_VALUES = 1 << 28  # of all tensors for one batch: 1 GB as float32, where a network is very large


@dataclass(frozen=True)
class DeployedNetwork:
    """A network as it ships, with what is needed to feed it; picklable.

    `onnx` has a dynamic batch axis. For int8 its own input and output are int8, and a real value is
    `(q - zero_point) * scale`; for float32 the scales and zero points are None. All names in it are ours; `labels`
    says of each node, `node0` on, which layer of the spec or the code it belongs to. A `foreign` one, made of a graph
    that a stranger wrote, is never run in this process but in `bounded`'s. `front_end` makes the images of samples,
    where the toolchain is to ship that too.
    """

    precision: Precision
    float_onnx: bytes
    onnx: bytes
    input_shape: tuple[int, int, int]
    num_classes: int
    input_scale: float | None = None
    input_zero_point: int | None = None
    output_scale: float | None = None
    output_zero_point: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    foreign: bool = False
    front_end: FrontEnd | None = None

    def encode(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """Return the model's input for images (N, C, H, W): int8 `pixel - 128`, or normalised float32."""
        if self.precision == "float32":
            return normalize(images)
        return (images.astype(np.int16) - 128).astype(np.int8)

    def run(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """Return the raw outputs (N, num_classes), int8 or float32, as onnxruntime computes them.

        Raises:
            ToolMissingError: this host's onnxruntime does not add int8 products exactly.
            ToolchainError: a foreign network was too much for its process.
        """
        if self.foreign:
            return self._run_bounded(images)
        session = _session(self.onnx, self.precision)
        size = _batch(self.float_onnx)
        parts = [images[i : i + size] for i in range(0, len(images), size)]
        outputs = [session.run([OUTPUT], {INPUT: self.encode(part)})[0] for part in parts]
        return np.concatenate(outputs) if outputs else np.empty((0, self.num_classes), self.output_dtype)

    def _run_bounded(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        about = {name: value for name, value in vars(self).items() if not isinstance(value, bytes)}
        blobs = [self.float_onnx, self.onnx, np.ascontiguousarray(images).tobytes()]
        seconds = CPU_S + len(images) * IMAGE_S
        told, (outputs,) = run_bounded("run", {**about, "foreign": False}, blobs, cpu_s=seconds)
        return np.frombuffer(outputs, self.output_dtype).reshape(told["shape"])

    def with_batch_one(self) -> ModelProto:
        """Return the model for one image with every intermediate's type and shape, as generators need it."""
        if not self.foreign:
            return with_batch_one(self.onnx)
        return onnx.load_from_string(run_bounded("single", {}, [self.onnx])[1][0])

    def values(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Return the outputs (N, outputs) of `run` as real values."""
        return self.real(self.run(images))

    def one_step(self) -> ModelProto:
        """Return the network of one step of a stream, as `with_batch_one` returns the whole: see `step_network`.

        Raises:
            ToolchainError: it has none.
        """
        if self.foreign:
            asked = {"input_shape": self.input_shape}
            return onnx.load_from_string(run_bounded("steps", asked, [self.onnx])[1][0])
        return with_batch_one(step_network(with_batch_one(self.onnx), self.input_shape).SerializeToString())

    def accuracy(self, images: npt.NDArray[np.uint8], labels: npt.NDArray[Any]) -> float:
        """Return the share of images whose largest output is the label's; the first one wins a tie."""
        return self.score(Learning(), images, labels)

    def score(self, learning: Learning, images: npt.NDArray[np.uint8], labels: npt.NDArray[Any]) -> float:
        """Return how well the outputs do what is learnt (`Learning.score`): 1 is perfect."""
        return learning.score(self.values(images), images, labels)

    def real(self, outputs: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return raw outputs, as `run` gives them, as real values."""
        if self.output_scale is None or self.output_zero_point is None:
            return outputs
        return (outputs.astype(np.float32) - np.float32(self.output_zero_point)) * np.float32(self.output_scale)

    @property
    def as_float(self) -> "DeployedNetwork":
        """The same weights, not quantised."""
        model, shape, classes = self.float_onnx, self.input_shape, self.num_classes
        about: Any = {"labels": self.labels, "foreign": self.foreign}
        return DeployedNetwork("float32", model, model, shape, classes, **about)

    def in_words(self, text: str) -> str:
        """Return a tool's message with the network's nodes replaced by the layers that they belong to."""
        return in_words(text, self.labels)

    @property
    def output_dtype(self) -> np.dtype[Any]:
        """Type of a value at the model's input and output: int8 or float32."""
        return np.dtype(np.int8 if self.precision == "int8" else np.float32)


def normalize(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return the network's float input for images: `(pixel - 128) / 128`, in [-1, 1), same shape."""
    return (images.astype(np.float32) - np.float32(128)) / np.float32(128)


def deploy(
    network: torch.nn.Module,
    input_shape: tuple[int, int, int],
    *,
    precision: Precision,
    calibration: npt.NDArray[np.uint8],
) -> DeployedNetwork:
    """Return the network as it ships; the network itself is left as it was.

    Args:
        network: takes (N, *input_shape) float32, returns (N, num_classes) float32.
        input_shape: (channels, height, width).
        precision: float32 exports only; int8 also quantises, per channel, from the calibration's extremes.
        calibration: images (N, *input_shape) for the ranges of the activations; float32 ignores them.

    Raises:
        ToolchainError: it cannot be exported or quantised, stays in float, or gives no row of logits an image.
    """
    try:
        traced = trace(network, input_shape)
    except TracedOtherwise as error:
        raise ToolchainError(f"{error}.") from error
    except Exception as error:  # generated networks fail here in every way there is
        raise ToolchainError(f"torch.onnx.export refused the network: {first_line(error)}") from error
    return deploy_traced(traced, input_shape, precision=precision, calibration=calibration)


def deploy_traced(
    traced: bytes, input_shape: tuple[int, int, int], *, precision: Precision, calibration: npt.NDArray[np.uint8]
) -> DeployedNetwork:
    """Return the network that `tracing.trace` wrote, as it ships; arguments and errors as for `deploy`."""
    model, labels = take_over(onnx.load_from_string(traced))
    try:
        deployed = _deploy(model, input_shape, precision, calibration)
    except ToolchainError as error:
        raise ToolchainError(in_words(str(error), labels)) from error
    return dataclasses.replace(deployed, labels=labels)


def _deploy(
    model: onnx.ModelProto, input_shape: tuple[int, int, int], precision: Precision, calibration: npt.NDArray[np.uint8]
) -> DeployedNetwork:
    if computes_constants(model):
        model = worked_out(model)
    lines = {node.name: node.doc_string for node in model.graph.node}
    free_batch(model, TRACED)
    drop_unread(model.graph)
    if precision == "int8":
        recurrent_layers.check(model)
    recurrent_layers.use_one_form(model)
    use_equivalents(model)
    float_onnx = bytes(model.SerializeToString())
    with _quiet():
        classes = _num_classes(float_onnx, input_shape)
        if precision == "float32":
            return DeployedNetwork("float32", float_onnx, float_onnx, input_shape, classes)
        islands = mark(model)
        rectify_copies(model, excluded(model, islands))
        quantised = quantise(model, _batches(float_onnx, model, calibration), islands)
    if stuck := float_operators(quantised):
        raise ToolchainError(
            f"int8 needs every operator to be quantised; {named(stuck, quantised.graph, lines)} would run in float. "
            "Replace it, or choose precision float32."
        )
    ends = integer_ends(quantised)
    if (ends.input_scale, ends.input_zero_point) != (INPUT_SCALE, 0):
        raise ToolchainError(f"the input's scale should be 1/128 with zero point 0, found {ends}.")
    return DeployedNetwork(
        "int8", float_onnx, quantised.SerializeToString(), input_shape, classes, **dataclasses.asdict(ends)
    )


def _num_classes(float_onnx: bytes, input_shape: tuple[int, int, int]) -> int:
    try:
        images = np.zeros((TRACED + 1, *input_shape), np.float32)
        shape = _session(float_onnx, "float32").run([OUTPUT], {INPUT: images})[0].shape
    except Exception as error:  # onnxruntime's errors share no base class
        raise ToolchainError(f"onnxruntime cannot run the exported network: {first_line(error)}") from error
    if len(shape) != 2 or shape[0] != TRACED + 1:
        raise ToolchainError(
            f"{TRACED + 1} images should give logits of shape ({TRACED + 1}, classes), found {tuple(shape)}."
        )
    return int(shape[1])


def _batches(float_onnx: bytes, model: onnx.ModelProto, calibration: npt.NDArray[np.uint8]) -> list[npt.NDArray[Any]]:
    """Return the network's float inputs for images (N, C, H, W), in large batches (one at a time costs thrice).

    One pixel of the first is set to 0 and one of the last to 255 (a window where a pool comes first), so that the input
    has the range of a pixel whatever the sample holds.
    """
    pinned = calibration.copy()
    window = leading_window(model)
    pinned[0, 0, :window, :window] = 0
    corner = -1 if window == 1 else 0  # pools may pass over the last row and column
    pinned[-1, -1, corner, corner] = 255
    images, size = normalize(pinned), _batch(float_onnx)
    return [images[start : start + size] for start in range(0, len(images), size)]


@functools.lru_cache(maxsize=4)
def _batch(float_onnx: bytes) -> int:
    """Return how many images at once: BATCH, or fewer where that many would take gigabytes."""
    return max(1, min(BATCH, MAX_VALUES // values_per_image(float_onnx)))


@functools.lru_cache(maxsize=4)
def _session(model: bytes, precision: Precision) -> Any:
    options = ort.SessionOptions()
    if precision == "int8":
        options.graph_optimization_level = exact_level()
    else:  # pairs of a file that is quantised already are float operators as any
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # trials share the machine
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@contextmanager
def _quiet() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # quantize_static warns on the root logger about advice we do not take
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
