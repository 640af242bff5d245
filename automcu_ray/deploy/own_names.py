"""The one place where a traced or foreign ONNX graph comes in: from here on every name in it is ours.

Names of modules, nodes and tensors are a stranger's text, and generators write names into C, YAML and linker scripts.
So the graph is written anew, from what ONNX defines and nothing else. What the nodes were called stays as data.
"""

import re

import onnx
from onnx import AttributeProto, TensorProto, helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.torch_network import spec_names
from automcu_ray.deploy.tracing import INPUT, OUTPUT

MAX_LABEL = 60  # characters
_IR = 4  # the first version of files whose initializers need not be inputs
_WORDS = re.compile(rb"[\w ,.>-]{0,200}")  # of a string attribute: a mode, or an Einsum's equation
_FRAME = re.compile(r"[^\n]{1,300}?\.py\((\d{1,6})\): ", re.ASCII)
_MAX_FRAMES = 4_000  # characters
_OURS = re.compile(r"\b(node\d+)(?:_\w+)?")  # what follows is the quantiser's, or a tool's


def take_over(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Return the same network with our names, `node0` on, and the label of each node: its layer in spec or code.

    Input and output are called `tracing.INPUT` and `OUTPUT`. Comments, metadata and the shapes that the file claims for
    intermediates are left out, but for the line of code that a comment names.

    Raises:
        ToolchainError: an operator or an attribute that ONNX does not define, a tensor that nothing gives.
    """
    source = model.graph
    constants = {tensor.name: f"const{number}" for number, tensor in enumerate(source.initializer)}
    inputs = [value for value in source.input if value.name not in constants]
    if len(inputs) != 1 or len(source.output) != 1:
        raise _refusal(f"it should have one input and one output, found {len(inputs)} and {len(source.output)}")
    tensors = {"": "", **constants, inputs[0].name: INPUT}
    for number, node in enumerate(source.node):
        for place, name in enumerate(node.output):
            tensors[name] = f"node{number}_out{place or ''}" if name else ""
    if source.output[0].name not in tensors or tensors[source.output[0].name] == INPUT:
        raise _refusal("its output is worked out by no operator")
    tensors[source.output[0].name] = OUTPUT
    versions = {entry.domain: entry.version for entry in model.opset_import}
    nodes, labels = [], {}
    for number, node in enumerate(source.node):
        if unknown := [name for name in node.input if name not in tensors]:
            raise _refusal(f"nothing gives the tensor {label(unknown[0])}")
        made = onnx.NodeProto(op_type=_operator(node, versions), name=f"node{number}", doc_string=line(node.doc_string))
        made.input.extend(tensors[name] for name in node.input)
        made.output.extend(tensors[name] for name in node.output)
        made.attribute.extend(_attribute(attribute, node, versions[""]) for attribute in node.attribute)
        nodes.append(made)
        labels[made.name] = label(node.name or node.op_type)
    weights = [_tensor(tensor, constants[tensor.name]) for tensor in source.initializer]
    ends = [_end(inputs[0], INPUT), _end(source.output[0], OUTPUT)]
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], weights)
    ours = helper.make_model(graph, opset_imports=[helper.make_opsetid("", versions[""])])
    ours.ir_version = max(_IR, model.ir_version)
    return ours, labels


def label(name: str) -> str:
    """Return what people call the layer of a node, in letters, digits and dots: `/body/body.0/Conv` is `body.0`.

    A name that is no UTF-8 comes as bytes.
    """
    plain = re.sub(r"[^\w./]", "_", str(name), flags=re.ASCII)[: 4 * MAX_LABEL]
    return spec_names(f"{plain}_quant").strip("/").removesuffix("_quant").replace("/", ".")[-MAX_LABEL:]


def line(frames: str) -> str:
    """Return "line 11" where an exporter's comment tells in which line of its author's code an operator stands.

    torch writes stack frames, the innermost first, `net.py(11): forward`; those of installed packages are passed over.
    """
    for frame in frames[:_MAX_FRAMES].splitlines():
        found = _FRAME.match(frame)
        if found and "site-packages" not in frame:
            return f"line {found[1]}"
    return ""


def in_words(text: str, labels: dict[str, str]) -> str:
    """Return a tool's message with our names replaced by the layers that they stand for."""
    told = _OURS.sub(lambda found: labels.get(found[1], found[0]), text)
    return re.sub(
        r"\b(\w+) \(\1(?:\)|, (?=line))", lambda found: found[1] + (" (" if found[0][-1] == " " else ""), told
    )


def _operator(node: onnx.NodeProto, versions: dict[str, int]) -> str:
    if node.domain not in ("", "ai.onnx") or "" not in versions or not onnx.defs.has(node.op_type):
        raise _refusal(f"operator {label(node.domain)}.{label(node.op_type)} is not one of ONNX's own")
    kind: str = node.op_type
    return kind


def _attribute(attribute: AttributeProto, node: onnx.NodeProto, version: int) -> AttributeProto:
    known = onnx.defs.get_schema(node.op_type, version, "").attributes
    if attribute.name not in known or attribute.ref_attr_name:
        raise _refusal(f"operator {node.op_type} has an attribute that ONNX does not define")
    if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        raise _refusal(f"operator {node.op_type} has a graph of its own")
    if any(not _WORDS.fullmatch(word) for word in (attribute.s, *attribute.strings)):
        raise _refusal(f"operator {node.op_type} has an attribute {attribute.name} that is no word")
    made = AttributeProto()
    made.CopyFrom(attribute)
    made.ClearField("doc_string")
    if made.HasField("t"):
        made.t.CopyFrom(_tensor(made.t, ""))
    return made


def _tensor(tensor: TensorProto, name: str) -> TensorProto:
    if tensor.external_data or tensor.data_location != TensorProto.DEFAULT:
        raise _refusal("a tensor should lie in the file itself")
    made = TensorProto()
    made.CopyFrom(tensor)
    for field in ("doc_string", "metadata_props", "segment"):
        made.ClearField(field)
    made.name = name
    return made


def _end(value: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
    """Return an input or output with sizes that are numbers; others are left open."""
    kind = value.type.tensor_type
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
    return helper.make_tensor_value_info(name, kind.elem_type, sizes)


def _refusal(why: str) -> ToolchainError:
    return ToolchainError(f"the exported network is refused: {why}.")
