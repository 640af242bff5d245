"""A file that came quantised, as it ships: its own scales, no calibration; and how near its own answers are."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import BATCH, DeployedNetwork, normalize
from automcu_ray.deploy.onnx_graph import free_batch
from automcu_ray.deploy.operator_cost import PAIR
from automcu_ray.deploy.own_names import in_words, take_over
from automcu_ray.deploy.pixels import Pixels
from automcu_ray.deploy.quantised.file import is_quantised
from automcu_ray.deploy.quantised.operators import read
from automcu_ray.deploy.quantised.reader import Reader
from automcu_ray.deploy.quantised.values import Grid, Held, Integers, Real
from automcu_ray.deploy.tracing import INPUT, OUTPUT, TRACED

_LEVELS = 256


def quantised_already(adopted: bytes) -> bool:
    """Return whether a traced or adopted model has pairs of its own."""
    return is_quantised(onnx.load_from_string(adopted))


def deploy_quantised(
    adopted: bytes, input_shape: tuple[int, int, int], calibration: npt.NDArray[np.uint8]
) -> tuple[DeployedNetwork, list[str]]:
    """Return a file of pairs, as `adoption.adopt` writes it, in int8, and what of it had to be rounded.

    Scales, zero points and weights are the file's. Calibration images (N, *input_shape) are looked at only where the
    file has no scale for its answer.

    Raises:
        ToolchainError: an operator has no form of int8, or the file leaves it in float; says which, and why.
    """
    model, labels = take_over(onnx.load_from_string(adopted))
    free_batch(model, TRACED)
    float_onnx = bytes(model.SerializeToString())
    reader = Reader(model)
    try:
        for node in list(model.graph.node):
            read(reader, node)
        name, grid = _answer(reader, float_onnx, calibration)
    except ToolchainError as error:
        raise ToolchainError(in_words(str(error), labels)) from error
    classes = model.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    int8 = reader.to.model(input_shape, classes, name)
    taken = reader.input_grid
    deployed = DeployedNetwork(
        "int8",
        float_onnx,
        bytes(int8.SerializeToString()),
        input_shape,
        classes,
        input_scale=float(taken.scale),
        input_zero_point=taken.zero,
        output_scale=float(grid.scale),
        output_zero_point=grid.zero,
        labels=labels,
    )
    return deployed, [in_words(note, labels) for note in sorted(reader.notes)]


def _answer(reader: Reader, float_onnx: bytes, calibration: npt.NDArray[np.uint8]) -> tuple[str, Grid]:
    """Return the int8 tensor of the answer, and its grid."""
    found = reader.values.get(OUTPUT)
    if isinstance(found, Real):
        return found.name, found.grid
    if found is None or isinstance(found, Held | Integers):
        raise ToolchainError("int8 needs an output that is worked out from the input: this network has none.")
    images = calibration[:BATCH]
    if not len(images):
        raise ToolchainError("the file has no scale for its answer; training images are wanted to find one.")
    answers = _session(float_onnx).run([OUTPUT], {INPUT: normalize(images)})[0]
    low, high = min(0.0, float(answers.min())), max(0.0, float(answers.max()))
    scale = max(high - low, 1e-6) / (_LEVELS - 1)
    grid = Grid(np.float32(scale), int(np.clip(np.rint(-128 - low / scale), -128, 127)))
    reader.notes[f"the file has no scale for its answer: {scale:.3g}, from {len(images)} training images"] += 1
    return reader.on(found, grid, onnx.NodeProto(op_type="QuantizeLinear", name="answer")), grid


# The file itself ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OwnAnswers:
    """What a user's file says itself for some images: rows of real logits, or of its integers less `offset`."""

    answers: npt.NDArray[np.float64]
    integers: bool


def own_answers(
    file: bytes, input_shape: tuple[int, int, int], pixels: Pixels, images: npt.NDArray[np.uint8]
) -> OwnAnswers:
    """Return what onnxruntime, without any optimisation, makes of a user's file as it is, but for a last softmax.

    Args:
        file: an ONNX file that `adoption.adopt` has taken.
        input_shape: (channels, height, width).
        pixels: what it takes for a pixel, where its input is float.
        images: (N, *input_shape).
    """
    model = onnx.load_from_string(file)
    constants = {tensor.name for tensor in model.graph.initializer}
    entry = next(value for value in model.graph.input if value.name not in constants)
    kind = entry.type.tensor_type
    answer = _before_softmax(model.graph)
    if answer != model.graph.output[0].name:
        del model.graph.output[:]
        model.graph.output.append(onnx.ValueInfoProto(name=answer))
    fed: npt.NDArray[np.generic]
    if kind.elem_type == onnx.TensorProto.FLOAT:
        fed = pixels.of(images)
    else:
        fed = images if kind.elem_type == onnx.TensorProto.UINT8 else (images.astype(np.int16) - 128).astype(np.int8)
    sizes = [dim.dim_value for dim in kind.shape.dim]
    if any(had not in (0, size) for had, size in zip(sizes[1:], input_shape, strict=True)):
        fed = fed.transpose(0, 2, 3, 1)
    batch = sizes[0] or 1
    session, rows = _session(bytes(model.SerializeToString())), []
    for at in range(0, len(fed) // batch * batch, batch):
        found = session.run([answer], {entry.name: np.ascontiguousarray(fed[at : at + batch])})[0]
        rows.append(found.reshape(batch, -1))
    made = np.concatenate(rows)
    integers = made.dtype in (np.int8, np.uint8)
    return OwnAnswers(made.astype(np.float64) - (128 if made.dtype == np.uint8 else 0), integers)


def steps_apart(deployed: DeployedNetwork, own: OwnAnswers, outputs: npt.NDArray[np.int8]) -> float:
    """Return the largest difference of int8 outputs from a file's own answers, in steps of the answer's scale."""
    wanted = own.answers
    if not own.integers:
        assert deployed.output_scale is not None and deployed.output_zero_point is not None
        wanted = np.clip(wanted / deployed.output_scale + deployed.output_zero_point, -128, 127)
    return round(float(np.abs(outputs[: len(wanted)] - wanted).max(initial=0)), 2)


def _before_softmax(graph: onnx.GraphProto) -> str:
    """Return the tensor that a last softmax reads, through pairs too; else the output."""
    makers = {name: node for node in graph.node for name in node.output}
    name, seen = graph.output[0].name, set[str]()
    while (node := makers.get(name)) is not None and name not in seen:
        seen.add(name)
        if node.op_type in ("Softmax", "LogSoftmax", "QLinearSoftmax"):
            return str(node.input[0])
        if node.op_type not in PAIR:
            break
        name = node.input[0]
    return str(graph.output[0].name)


def _session(model: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
