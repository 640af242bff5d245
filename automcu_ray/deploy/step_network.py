"""One step of a recurrent network, whose state outlives it: what a stream needs of it for every sample.

Many networks have such a form: recurrent layers that go forwards read the input as it is, and only what they give at
the last step is read. Whether one has it is tried: a window, step by step, has to give the window's own bits.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import ModelProto, TensorProto, helper, numpy_helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.exact_products import exact_level
from automcu_ray.deploy.tables import drop_unread
from automcu_ray.deploy.tracing import INPUT, OUTPUT

TRIED = 8  # windows of noise
_MOVES = frozenset(("Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))


def step_network(model: ModelProto, input_shape: tuple[int, int, int]) -> ModelProto:
    """Return the int8 network of one step: an image (1, 1, values of a step) in, logits and states out.

    Args:
        model: the int8 network for one image, with all shapes (`DeployedNetwork.with_batch_one`).
        input_shape: (channels, 1, steps) of samples, or (1, steps, values) of a sound's rows.

    Raises:
        ToolchainError: it has no such form.
    """
    made = ModelProto()
    made.CopyFrom(model)
    graph, data = made.graph, _data_of_steps(model)
    for node in graph.node:
        node.input[:] = [INPUT if name == data else name for name in node.input]
    steps, values = step_shape(input_shape)
    del graph.input[:], graph.value_info[:]
    graph.input.append(helper.make_tensor_value_info(INPUT, TensorProto.INT8, [1, 1, values]))
    for node in [node for node in graph.node if set(node.output) & {data}]:
        graph.node.remove(node)
    drop_unread(graph)
    known = [*model.graph.value_info, *model.graph.output]
    shapes = {one.name: [dim.dim_value for dim in one.type.tensor_type.shape.dim] for one in known}
    _take_the_only_step(graph, shapes, steps)
    if any(_is_moved_back(node) for node in graph.node):
        raise _refusal("a layer of it goes backwards")
    windows = np.random.default_rng(0).integers(-128, 128, (TRIED, *input_shape)).astype(np.int8)
    try:
        session = _session(model)
        wanted = [session.run([OUTPUT], {INPUT: window[None]})[0][0] for window in windows]
        found = [run_steps(made, in_steps(window[None])[0], steps)[-1] for window in windows]
    except Exception as error:  # onnxruntime's errors share no base class
        raise _refusal("it reads more than one step at a time") from error
    if not np.array_equal(found, wanted):
        raise _refusal("it reads more than what its recurrent layers give at the last step")
    return made


def step_shape(input_shape: tuple[int, int, int]) -> tuple[int, int]:
    """Return how many steps a window has, and how many values each."""
    channels, height, width = input_shape
    if height != 1 and channels != 1:
        raise _refusal("its input is neither a signal nor rows of one picture")
    return (width, channels) if height == 1 else (height, width)


def in_steps(images: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Return images (N, channels, height, width) as steps (N, steps, values)."""
    turned: npt.NDArray[np.int8] = images[:, :, 0].transpose(0, 2, 1) if images.shape[2] == 1 else images[:, 0]
    return turned


def run_steps(network: ModelProto, data: npt.NDArray[np.int8], restart: int) -> npt.NDArray[np.int8]:
    """Return the logits after each step of data (n, values); the state begins anew after each `restart` steps."""
    model = ModelProto()
    model.CopyFrom(network)
    graph = model.graph
    starts = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    begun, ends = dict[str, npt.NDArray[np.generic]](), list[str]()
    for node in [node for node in graph.node if node.op_type == "Scan"]:
        for at, name in enumerate(node.input[:-1]):
            state = f"{node.name}_state{at}"
            begun[state] = starts[name]
            kind = helper.np_dtype_to_tensor_dtype(starts[name].dtype)
            graph.input.append(helper.make_tensor_value_info(state, kind, starts[name].shape))
            graph.output.append(onnx.ValueInfoProto(name=node.output[at]))
            node.input[at] = state
            ends.append(node.output[at])
    session, states, answers = _session(model), begun, []
    for number, step in enumerate(data):
        states = begun if number % restart == 0 else states
        logits, *after = session.run([OUTPUT, *ends], {INPUT: step[None, None], **states})
        states = dict(zip(begun, after, strict=True))
        answers.append(logits[0])
    return np.array(answers)


def _data_of_steps(model: ModelProto) -> str:
    """Return the tensor (steps, 1, values) that is the input, moved alone, and that recurrent layers read."""
    name = str(model.graph.input[0].name)
    while True:
        readers = [node for node in model.graph.node if name in node.input]
        if readers and all(node.op_type == "Scan" and node.input[-1] == name for node in readers):
            return name
        if len(readers) != 1 or readers[0].op_type not in _MOVES:
            raise _refusal("its recurrent layers do not read the input as it is")
        name = str(readers[0].output[0])


def _take_the_only_step(graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]], steps: int) -> None:
    """Let what takes the last of all steps take the one that is there, and what writes sizes down count one step.

    `shapes` are those of a whole window.
    """
    values = {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in graph.initializer}
    graph.initializer.append(numpy_helper.from_array(np.array([0]), "the_only_step"))
    for node in graph.node:
        sizes = list(shapes.get(node.input[0], ()))
        axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
        if (
            node.op_type == "Gather"
            and sizes
            and sizes[axis] == steps
            and values.get(node.input[1]) in ([steps - 1], [-1])
        ):
            node.input[1] = "the_only_step"
        if node.op_type == "Reshape" and len(sizes) > 2 and steps in (written := values[node.input[1]]):
            written[written.index(steps)] = 1
            node.input[1] = f"{node.name}_of_one_step"
            graph.initializer.append(numpy_helper.from_array(np.array(written), node.input[1]))


def _is_moved_back(node: onnx.NodeProto) -> bool:
    return any(attribute.name == "scan_input_directions" and any(attribute.ints) for attribute in node.attribute)


def _session(model: ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = exact_level()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _refusal(why: str) -> ToolchainError:
    return ToolchainError(f"the network cannot go step by step: {why}. Leave backend.stream at window.")
