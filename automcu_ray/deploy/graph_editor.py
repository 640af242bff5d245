"""A float ONNX graph that is rewritten node by node."""

from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, helper, numpy_helper

from automcu_ray.core.errors import ToolchainError

Array = npt.NDArray[Any]


class Editor:
    """A float graph that is rewritten node by node; `shapes` have 0 for the batch."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model, self.graph, self.steps = model, model.graph, 0
        self.refresh()

    def refresh(self) -> None:
        """Work shapes and types out anew."""
        try:
            known = onnx.shape_inference.infer_shapes(self.model).graph
        except (onnx.shape_inference.InferenceError, ValueError) as error:  # the second: a type that does not exist
            said = (str(error).strip().splitlines() or ["no reason"])[-1][:200]
            raise ToolchainError(f"the shapes of its operators contradict each other: {said}") from error
        every = [*known.input, *known.value_info, *known.output]
        self.shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in every}
        self.types = {v.name: v.type.tensor_type.elem_type for v in every}
        self.constants: dict[str, Array] = {
            tensor.name: numpy_helper.to_array(tensor) for tensor in self.graph.initializer
        }
        self.shapes |= {name: array.shape for name, array in self.constants.items()}

    def constant(self, near: str, values: npt.ArrayLike) -> str:
        """Add a constant; return its name."""
        array = np.asarray(values)
        names = (f"{near}_value{number}" for number in count(len(self.constants)))
        name = next(name for name in names if name not in self.shapes and name not in self.constants)
        self.constants[name] = array
        self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def readers(self, name: str) -> list[NodeProto]:
        """Return the nodes that read a tensor."""
        return [node for node in self.graph.node if name in node.input]

    def maker(self, name: str) -> NodeProto | None:
        """Return the node that gives a tensor."""
        return next((node for node in self.graph.node if name in node.output), None)


class Chain:
    """Nodes one after the other, from a node's input to its output; the last takes the node's own name."""

    def __init__(self, editor: Editor, node: NodeProto, source: str) -> None:
        self.editor, self.node, self.at, self.nodes = editor, node, source, list[NodeProto]()

    def then(self, kind: str, *constants: npt.ArrayLike, **options: Any) -> "Chain":
        names = [self.editor.constant(self.node.name, values) for values in constants]
        self.editor.steps += 1  # a step may be rewritten in steps, too: each has a name of its own
        step = f"step{self.editor.steps}"
        result = f"{self.node.output[0]}_{step}"
        made = helper.make_node(kind, [self.at, *names], [result], name=f"{self.node.name}_{step}", **options)
        self.nodes.append(made)
        self.at = result
        return self

    def reshaped(self, *sizes: int) -> "Chain":
        return self.then("Reshape", np.array([0, *sizes], np.int64))

    def done(self) -> list[NodeProto]:
        self.nodes[-1].output[0], self.nodes[-1].name = self.node.output[0], self.node.name
        return self.nodes


def options_of(node: NodeProto) -> dict[str, Any]:
    """Return the attributes of a node."""
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
