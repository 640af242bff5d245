"""A deployed network as vendors' ONNX importers want it: batch 1, and int8 as float operators between Q/DQ pairs.

Whoever runs the file in onnxruntime on an x86 processor sets `session.qdqisint8allowed` to "1" (or
`session.x64quantprecision`, or optimises no further than ORT_ENABLE_BASIC). Else it is rewritten with uint8
activations, whose kernels saturate sums of products at 16 bits on processors without VNNI: other values come out.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import DeployedNetwork
from backends.int8_graph import Int8Graph, Node, Tensor, read_int8_graph

OPSET, IR_VERSION = 17, 8  # what torch's exporter writes; importers lag behind ONNX
_FLOAT_OPERATORS = {
    "conv": "Conv",
    "linear": "Gemm",
    "add": "Add",
    "mul": "Mul",
    "concat": "Concat",
    "sigmoid": "Sigmoid",
    "leaky_relu": "LeakyRelu",
    "average_pool": "AveragePool",
    "max_pool": "MaxPool",
    "reshape": "Reshape",
    "transpose": "Transpose",
    "resize": "Resize",
}
_NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def importable(deployed: DeployedNetwork) -> bytes:
    """Return the network as ONNX with float input and output and batch size 1.

    At int8 each tensor is followed by QuantizeLinear and DequantizeLinear with the scale it was scored with, weights
    and biases are int8 and int32 behind a DequantizeLinear: the same quantised network as `deployed.onnx`, in the form
    that importers outside onnxruntime read ("tensor-oriented"). A node's result has the node's name.

    Raises:
        ToolchainError: an operator that cannot be written this way; it is named.
    """
    if deployed.precision == "float32":
        model: onnx.ModelProto = deployed.with_batch_one()
        return bytes(model.SerializeToString())
    return bytes(_Writer(read_int8_graph(deployed)).model().SerializeToString())


def result_name(node_name: str) -> str:
    """Return the name of the float tensor that a node of the deployed network gives in `importable`'s graph."""
    return node_name.removesuffix("_quant")


class _Writer:
    """Writes an Int8Graph node by node; every activation exists as `<name>` in int8 and `<name>_float`."""

    def __init__(self, graph: Int8Graph) -> None:
        self.graph = graph
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def model(self) -> onnx.ModelProto:
        graph = self.graph
        entry, end = graph.tensors[graph.input], graph.tensors[graph.output]
        self._quantise(graph.input, f"{graph.input}_int8", entry)
        for node in graph.nodes:
            self._write(node)
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, tensor.shape)
            for name, tensor in ((graph.input, entry), (f"{graph.output}_float", end))
        ]
        made = helper.make_graph(self.nodes, "network", ends[:1], ends[1:], self.constants)
        return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)

    def _write(self, node: Node) -> None:
        graph = self.graph
        inputs = [f"{name}_float" for name in node.inputs]
        options: dict[str, Any] = dict(node.options)
        if node.kind in ("conv", "linear"):
            weight, scales, bias = (graph.constants[f"{node.output}/{part}"] for part in ("weight", "scales", "bias"))
            of_products = np.float32(graph.tensors[node.inputs[0]].scale) * scales
            inputs.append(self._dequantised(f"{node.output}/weight", weight, scales))
            inputs.append(self._dequantised(f"{node.output}/bias", bias, of_products))
        if node.kind == "average_pool" and options.pop("dilations") != [1, 1]:
            raise ToolchainError(f"{node.name}: ONNX {OPSET} has no dilated average pooling.")
        if node.kind == "linear":
            options["transB"] = 1
        elif node.kind == "reshape":
            inputs.append(self._constant(f"{node.output}/shape", np.array(graph.tensors[node.output].shape)))
        elif node.kind == "resize":
            before, after = (np.array(graph.tensors[name].shape) for name in (node.inputs[0], node.output))
            inputs += ["", self._constant(f"{node.output}/factors", (after / before).astype(np.float32))]
            options = dict(_NEAREST)
        result = result_name(node.name)
        self.nodes.append(helper.make_node(_FLOAT_OPERATORS[node.kind], inputs, [result], name=node.name, **options))
        self._quantise(result, node.output, graph.tensors[node.output])

    def _dequantised(self, name: str, values: npt.NDArray[Any], scales: npt.NDArray[Any]) -> str:
        zeros = np.zeros(len(scales), values.dtype)
        parts = [self._constant(name, values)]
        parts += [self._constant(f"{name}_{part}", array) for part, array in (("scale", scales), ("zero", zeros))]
        self.nodes.append(helper.make_node("DequantizeLinear", parts, [f"{name}_float"], axis=0))
        return f"{name}_float"

    def _quantise(self, name: str, int8_name: str, tensor: Tensor) -> None:
        """Quantise a float tensor and dequantise it again; the graph's own input gives way to its int8 form."""
        float_name = f"{name if name == self.graph.input else int8_name}_float"
        scale = self._constant(f"{int8_name}_scale", np.array(tensor.scale, np.float32))
        zero = self._constant(f"{int8_name}_zero", np.array(tensor.zero_point, np.int8))
        self.nodes.append(helper.make_node("QuantizeLinear", [name, scale, zero], [int8_name]))
        self.nodes.append(helper.make_node("DequantizeLinear", [int8_name, scale, zero], [float_name]))

    def _constant(self, name: str, values: npt.NDArray[Any]) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(values, order="C"), name))
        return name
