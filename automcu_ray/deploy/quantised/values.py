"""What the tensors of a quantised file hold while it is read, and what onnxruntime makes of functions of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import NodeProto, helper, numpy_helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.tracing import OPSET

Array = npt.NDArray[Any]
EVERY = np.arange(-128, 128, dtype=np.int8)


@dataclass(frozen=True)
class Grid:
    """Scale and zero point of an int8 tensor: a real value is `(q - zero) * scale`."""

    scale: np.float32
    zero: int


@dataclass(frozen=True)
class Held:
    """A constant: its real values, and the integers that they came from, with scales and zero points along an axis."""

    real: Array
    integers: Array | None = None
    scales: Array | None = None
    zeros: Array | None = None
    axis: int = 0


@dataclass(frozen=True)
class Integers:
    """An int8 tensor of the new graph; `offset` is 128 where the file has it as uint8.

    `pads` are zeros around it (before, then after each spatial axis) that whoever reads it has still to add.
    """

    name: str
    offset: int = 0
    pads: tuple[int, ...] = ()


@dataclass(frozen=True)
class Real:
    """The real values of an int8 tensor; `pads` as there."""

    name: str
    grid: Grid
    pads: tuple[int, ...] = ()

    @property
    def root(self) -> str:
        """What functions of it begin with: a file may dequantise one tensor for each of its readers."""
        return f"{self.name}_{self.grid.scale.tobytes().hex()}_{self.grid.zero}"


@dataclass(frozen=True)
class Function:
    """A function of single values of a tensor: the file's operators from `root` to `result`, in order."""

    source: Real
    root: str
    result: str
    nodes: tuple[NodeProto, ...]


@dataclass(frozen=True)
class Entry:
    """Operators between the images, which are float, and the first rounding; then `moves` of what that gives."""

    result: str
    nodes: tuple[NodeProto, ...] = ()
    moves: tuple[NodeProto, ...] = ()


@dataclass
class Pending:
    """What an operator works out, which no scale has been met for yet.

    `write` puts the operator of int8 into the new graph, for a scale and zero point, and returns its tensor. `after`
    are functions of single values, and moves, that stand between the operator and its rounding.
    """

    kind: str
    node: NodeProto
    write: Callable[[Grid], str]
    weighted: "Weighted | None" = None
    after: tuple[NodeProto, ...] = ()
    written: dict[tuple[bytes, int], str] = field(default_factory=dict)


@dataclass(frozen=True)
class Weighted:
    """A convolution or product: int8 weights around zero, outputs first; real `scales` and `bias` of each output.

    `exact` is the bias in units of the products, where the file has it so.
    """

    node: NodeProto
    x: Real
    weights: Array
    scales: Array
    bias: Array
    exact: Array | None = None


Value = Held | Integers | Real | Function | Entry | Pending


def outcomes(
    nodes: Sequence[NodeProto], constants: Mapping[str, Array], given: Mapping[str, Array], result: str
) -> Array:
    """Return what onnxruntime makes of operators, without any rewriting.

    Raises:
        ToolchainError: it refuses them.
    """
    read = {name for node in nodes for name in node.input if name}
    tensors = [numpy_helper.from_array(np.ascontiguousarray(constants[name]), name) for name in read & constants.keys()]
    ends = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    graph = helper.make_graph(list(nodes), "part", ends, [onnx.ValueInfoProto(name=result)], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found: Array = session.run([result], dict(given))[0]
    except Exception as error:  # onnxruntime's errors share no base class
        raise ToolchainError(f"onnxruntime cannot work out {nodes[-1].op_type}: {type(error).__name__}.") from error
    return found


def rounded(real: Array, scale: Array | np.float32, zero: Array | np.float32, low: int, high: int) -> Array:
    """Return integers as QuantizeLinear rounds: half to even, then cut."""
    made: Array = np.clip(np.rint(real / scale) + zero, low, high)
    return made


def along(values: Array, axis: int, of: Array) -> Array:
    """Return scales or zero points shaped so that they repeat over a tensor, where they are along an axis of it."""
    shape = [1] * of.ndim if values.size > 1 else [1]
    if values.size > 1:
        shape[axis % of.ndim] = values.size
    made: Array = values.reshape(shape)
    return made


def integers_on(grid: Grid, real: Array) -> npt.NDArray[np.int8]:
    """Return real values on a grid."""
    made: npt.NDArray[np.int8] = rounded(real, grid.scale, np.float32(grid.zero), -128, 127).astype(np.int8)
    return made
