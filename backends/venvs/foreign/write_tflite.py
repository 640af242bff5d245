"""Writes net.tflite from an int8 graph, in the environment of backend `vela`, and what it answers to some inputs.

    python write_tflite.py FOLDER     reads graph.json, constants.npz, probe.npy; writes net.tflite, answers.int8

Weights and quantisation are taken over as they are. TensorFlow Lite holds images as NHWC: tensors of four axes are
written that way, and transposed before operators that care about the order alone. Where an operator of TensorFlow Lite
cannot rescale (pooling, concatenation, sigmoid), a QUANTIZE does.
"""

import json
import sys
from pathlib import Path
from typing import Any

import flatbuffers  # type: ignore[import-untyped,unused-ignore]
import numpy as np
from ai_edge_litert import schema_py_generated as schema  # type: ignore[import-not-found]
from ai_edge_litert.interpreter import Interpreter, OpResolverType  # type: ignore[import-not-found]

NHWC, NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
SIGMOID = (1 / 256, -128)  # the only scale and zero point that LOGISTIC writes
LOWEST = -128
TYPES = {"int8": schema.TensorType.INT8, "int32": schema.TensorType.INT32}

Data = dict[str, Any]


class Writer:
    """Appends tensors and operators; a method for each kind of node writes it. Tensors are numbers, as in the file."""

    def __init__(self, graph: Data, constants: Data) -> None:
        self.tensors, self.constants = graph["tensors"], constants
        self.graph = schema.SubGraphT(tensors=[], operators=[], name="main")
        self.model = schema.ModelT(version=3, operatorCodes=[], buffers=[schema.BufferT()], subgraphs=[self.graph])
        self.codes: dict[str, int] = {}
        self.at: dict[tuple[str, bool], int] = {}  # an activation by name, and whether in NHWC order
        self.graph.inputs = [self.declare(graph["input"])]
        for node in graph["nodes"]:
            getattr(self, node["kind"])(node, [self.tensors[name]["shape"] for name in node["inputs"]])
        self.graph.outputs = [self.read(graph["output"])]

    def file(self) -> bytes:
        """Return the model as a file."""
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(self.model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())

    def tensor(
        self,
        name: str,
        shape: Any,
        scales: Any = None,
        zero: int = 0,
        kind: str = "int8",
        data: Any = None,
        axis: int = 0,
    ) -> int:
        """Append a tensor: a constant where it has data, with a scale for each index of `axis` where it has several."""
        made = schema.TensorT(shape=np.array(shape, np.int32), type=TYPES[kind], name=name)
        if scales is not None:
            several = np.atleast_1d(np.asarray(scales, np.float32))
            made.quantization = schema.QuantizationParametersT(
                scale=several, zeroPoint=np.full(len(several), zero, np.int64), quantizedDimension=axis
            )
        if data is not None:
            made.buffer = len(self.model.buffers)
            self.model.buffers.append(schema.BufferT(data=np.ascontiguousarray(data).view(np.uint8).reshape(-1)))
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def numbers(self, values: Any) -> int:
        """Append a constant of int32 values: axes, sizes, paddings."""
        array = np.array(values, np.int32)
        return self.tensor(f"numbers{len(self.graph.tensors)}", array.shape, kind="int32", data=array)

    def operator(self, code: str, inputs: list[int], output: int, kind: str = "", **options: Any) -> int:
        """Append an operator with its options, if it has any, and return its output."""
        if code not in self.codes:
            self.codes[code] = len(self.codes)
            number = getattr(schema.BuiltinOperator, code)
            made = schema.OperatorCodeT(builtinCode=number, deprecatedBuiltinCode=min(number, 127), version=1)
            self.model.operatorCodes.append(made)
        operator = schema.OperatorT(opcodeIndex=self.codes[code], inputs=inputs, outputs=[output])
        if kind:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, f"{kind}Options")
            operator.builtinOptions = getattr(schema, f"{kind}OptionsT")(**options)
        self.graph.operators.append(operator)
        return output

    def declare(self, name: str, nhwc: bool = True) -> int:
        """Append the tensor of an activation, in NHWC order where it has four axes and unless told otherwise."""
        shape = self.tensors[name]["shape"]
        nhwc = nhwc and len(shape) == 4
        shape = [shape[axis] for axis in NHWC] if nhwc else shape
        self.at[name, nhwc] = self.tensor(name if nhwc else f"{name}/onnx", shape, *self.scale(name))
        return self.at[name, nhwc]

    def read(self, name: str, nhwc: bool = True) -> int:
        """Return an activation in the order that is asked for; a TRANSPOSE is written where it is in the other."""
        nhwc = nhwc and len(self.tensors[name]["shape"]) == 4
        if (name, nhwc) not in self.at:
            inputs = [self.at[name, not nhwc], self.numbers(NHWC if nhwc else NCHW)]
            self.operator("TRANSPOSE", inputs, self.declare(name, nhwc), "Transpose")
        return self.at[name, nhwc]

    def scale(self, name: str) -> tuple[float, int]:
        """Return scale and zero point of an activation."""
        return self.tensors[name]["scale"], self.tensors[name]["zero_point"]

    def on_scale(self, node: Data, scale: tuple[float, int]) -> int:
        """Return where an operator that writes on a scale of its own writes to; `settle` ends in the node's output."""
        output = self.declare(node["output"])
        if scale == self.scale(node["output"]):
            return output
        return self.tensor(f"{node['output']}/raw", self.graph.tensors[output].shape, *scale)

    def settle(self, node: Data, written: int) -> None:
        """Rescale what `on_scale` gave into the node's output, unless it is that."""
        if written != (output := self.read(node["output"])):
            self.operator("QUANTIZE", [written], output, "Quantize")

    def rescaled(self, name: str, target: str) -> int:
        """Return an activation on the scale of another."""
        source = self.read(name)
        if self.scale(name) == self.scale(target):
            return source
        made = self.tensor(f"{name}/for/{target}", self.graph.tensors[source].shape, *self.scale(target))
        return self.operator("QUANTIZE", [source], made, "Quantize")

    def padded(self, node: Data, shape: list[int]) -> tuple[int, int]:
        """Return the input, padded by an operator where neither SAME nor VALID means the same, and which of them."""
        options, (name,) = node["options"], node["inputs"]
        pads = options["pads"]
        source = self.read(name)
        if not any(pads):
            return source, schema.Padding.VALID
        windows = [
            (size - 1) * step + 1 for size, step in zip(options["kernel_shape"], options["dilations"], strict=True)
        ]
        if list(pads) == _same(shape[2:], windows, options["strides"]):
            return source, schema.Padding.SAME
        around = np.array([[0, 0], [pads[0], pads[2]], [pads[1], pads[3]], [0, 0]])
        sizes = self.graph.tensors[source].shape + around.sum(axis=1)
        made = self.tensor(f"{node['output']}/padded", sizes, *self.scale(name))
        if node["kind"] != "max_pool":
            return self.operator("PAD", [source, self.numbers(around)], made, "Pad"), schema.Padding.VALID
        least = self.tensor(f"{node['output']}/least", [1], *self.scale(name), data=np.array([LOWEST], np.int8))
        return self.operator("PADV2", [source, self.numbers(around), least], made, "PadV2"), schema.Padding.VALID

    def parameters(self, node: Data, weight: Any, axis: int = 0) -> list[int]:
        """Return weights and bias as constants, with a scale for each output channel (`axis` of the weights)."""
        output = node["output"]
        scales, bias = self.constants[f"{output}/scales"], self.constants[f"{output}/bias"]
        products = scales * np.float32(self.tensors[node["inputs"][0]]["scale"])
        return [
            self.tensor(f"{output}/weight", weight.shape, scales, data=weight, axis=axis),
            self.tensor(f"{output}/bias", bias.shape, products, kind="int32", data=bias),
        ]

    def conv(self, node: Data, shapes: list[list[int]]) -> None:
        options, output, channels = node["options"], node["output"], shapes[0][1]
        weight = self.constants[f"{output}/weight"]
        source, padding = self.padded(node, shapes[0])
        (down, right), (dilate_down, dilate_right) = options["strides"], options["dilations"]
        common = {
            "padding": padding,
            "strideH": down,
            "strideW": right,
            "dilationHFactor": dilate_down,
            "dilationWFactor": dilate_right,
        }
        if options["group"] == channels and weight.shape[1] == 1:
            inputs = [source, *self.parameters(node, weight.transpose(1, 2, 3, 0), axis=3)]
            common["depthMultiplier"] = len(weight) // channels
            self.operator("DEPTHWISE_CONV_2D", inputs, self.declare(output), "DepthwiseConv2D", **common)
        else:
            inputs = [source, *self.parameters(node, weight.transpose(NHWC))]
            self.operator("CONV_2D", inputs, self.declare(output), "Conv2D", **common)

    def linear(self, node: Data, shapes: list[list[int]]) -> None:
        inputs = [self.read(node["inputs"][0]), *self.parameters(node, self.constants[f"{node['output']}/weight"])]
        self.operator("FULLY_CONNECTED", inputs, self.declare(node["output"]), "FullyConnected")

    def pool(self, code: str, node: Data, source: int, padding: int, output: int) -> None:
        """Append a pooling operator."""
        (high, wide), (down, right) = node["options"]["kernel_shape"], node["options"]["strides"]
        window = {"filterHeight": high, "filterWidth": wide, "strideH": down, "strideW": right}
        self.operator(code, [source], output, "Pool2D", padding=padding, **window)

    def max_pool(self, node: Data, shapes: list[list[int]]) -> None:
        if node["options"]["dilations"] != [1, 1]:
            sys.exit(f"{node['name']}: TensorFlow Lite has no dilated pooling.")
        source, padding = self.padded(node, shapes[0])
        self.pool("MAX_POOL_2D", node, source, padding, self.declare(node["output"]))

    def average_pool(self, node: Data, shapes: list[list[int]]) -> None:
        options = node["options"]
        source, padding = self.padded(node, shapes[0])
        counts = padding != schema.Padding.SAME  # PAD's zeros are averaged, those of SAME are not
        if options["dilations"] != [1, 1] or (any(options["pads"]) and counts != bool(options["count_include_pad"])):
            sys.exit(f"{node['name']}: TensorFlow Lite has no average pooling with {options}.")
        written = self.on_scale(node, self.scale(node["inputs"][0]))
        self.pool("AVERAGE_POOL_2D", node, source, padding, written)
        self.settle(node, written)

    def sigmoid(self, node: Data, shapes: list[list[int]]) -> None:
        written = self.on_scale(node, SIGMOID)
        self.operator("LOGISTIC", [self.read(node["inputs"][0])], written)
        self.settle(node, written)

    def leaky_relu(self, node: Data, shapes: list[list[int]]) -> None:
        source, alpha = self.read(node["inputs"][0]), node["options"]["alpha"]
        self.operator("LEAKY_RELU", [source], self.declare(node["output"]), "LeakyRelu", alpha=alpha)

    def add(self, node: Data, shapes: list[list[int]]) -> None:
        self.operator("ADD", [self.read(name) for name in node["inputs"]], self.declare(node["output"]), "Add")

    def mul(self, node: Data, shapes: list[list[int]]) -> None:
        self.operator("MUL", [self.read(name) for name in node["inputs"]], self.declare(node["output"]), "Mul")

    def concat(self, node: Data, shapes: list[list[int]]) -> None:
        axis = node["options"]["axis"] % len(shapes[0])
        axis = NHWC.index(axis) if len(shapes[0]) == 4 else axis
        parts = [self.rescaled(name, node["output"]) for name in node["inputs"]]
        self.operator("CONCATENATION", parts, self.declare(node["output"]), "Concatenation", axis=axis)

    def reshape(self, node: Data, shapes: list[list[int]]) -> None:
        (name,), sizes = node["inputs"], self.tensors[node["output"]]["shape"]
        either = len(shapes[0]) == 4 and 1 in (shapes[0][1], shapes[0][2] * shapes[0][3])  # both orders are one
        inputs = [self.read(name, nhwc=either), self.numbers(sizes)]
        self.operator("RESHAPE", inputs, self.declare(node["output"], nhwc=False), "Reshape", newShape=sizes)

    def transpose(self, node: Data, shapes: list[list[int]]) -> None:
        inputs = [self.read(node["inputs"][0], nhwc=False), self.numbers(node["options"]["perm"])]
        self.operator("TRANSPOSE", inputs, self.declare(node["output"], nhwc=False), "Transpose")

    def resize(self, node: Data, shapes: list[list[int]]) -> None:
        inputs = [self.read(node["inputs"][0]), self.numbers(self.tensors[node["output"]]["shape"][2:])]
        self.operator("RESIZE_NEAREST_NEIGHBOR", inputs, self.declare(node["output"]), "ResizeNearestNeighbor")


def _same(sizes: list[int], windows: list[int], strides: list[int]) -> list[int]:
    """Return the padding (top, left, bottom, right) that SAME means."""
    needs = [(-(-n // step) - 1) * step + w - n for n, w, step in zip(sizes, windows, strides, strict=True)]
    totals = [max(need, 0) for need in needs]
    return [*(total // 2 for total in totals), *(total - total // 2 for total in totals)]


def answers(model: bytes, probe: Any) -> Any:
    """Return what the interpreter's reference operators answer (N, classes) to int8 images (N, C, H, W)."""
    interpreter = Interpreter(
        model_content=model, num_threads=1, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    entry, end = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]
    found = []
    for image in probe:
        interpreter.set_tensor(entry, image[None].transpose(NHWC))
        interpreter.invoke()
        found.append(interpreter.get_tensor(end)[0])
    return np.stack(found)


def main(folder: Path) -> None:
    """Read, write, answer."""
    graph = json.loads((folder / "graph.json").read_text())
    with np.load(folder / "constants.npz") as constants:
        model = Writer(graph, dict(constants)).file()
    (folder / "net.tflite").write_bytes(model)
    answers(model, np.load(folder / "probe.npy")).tofile(folder / "answers.int8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
