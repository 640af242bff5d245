"""A float graph as one path with branches beside it: which operators lie on the way, and where others leave it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx
from onnx import NodeProto, TensorProto

_JOINS = ("Add", "Concat", "Mul")
_WEIGHTED = ("Conv", "Gemm", "MatMul")
_TOO_MANY = 2_000  # operators of one branch


@dataclass(frozen=True)
class Branches:
    """`forks` say at which tensor the branches part that a node joins; `aside` are nodes of the shorter ones."""

    forks: dict[str, str] = field(default_factory=dict)
    aside: dict[str, str] = field(default_factory=dict)  # and which node joins them


def branches(graph: onnx.GraphProto, constants: Mapping[str, TensorProto]) -> Branches:
    """Return where a graph parts and joins: at sums and joins the branch of fewer weights is aside, at gates the gate.

    Nodes should have names, each once.
    """
    makers = {name: node for node in graph.node for name in node.output}
    found = Branches()
    for node in graph.node:
        data = [name for name in node.input if name and name not in constants]
        if node.op_type not in _JOINS or len(data) < 2 or node.name in found.aside:
            continue
        chains = [_chain(name, makers, constants) for name in data]
        common = next((name for name in chains[0] if all(name in chain for chain in chains[1:])), None)
        if common is None:
            continue
        parts = [_until(chain, common, makers) for chain in chains]
        lengths = [_length(part, constants) for part in parts]
        main = lengths.index(min(lengths) if node.op_type == "Mul" else max(lengths))
        found.forks[node.name] = common
        main_names = {one.name for one in parts[main]}
        for at, part in enumerate(parts):
            if at != main:
                found.aside.update({one.name: node.name for one in part if one.name not in main_names})
    return found


def _chain(name: str, makers: Mapping[str, NodeProto], constants: Mapping[str, TensorProto]) -> list[str]:
    """Return a tensor and what it was made of, back to the input: at joins along the first operand."""
    chain = [name]
    while (node := makers.get(chain[-1])) is not None and len(chain) < _TOO_MANY:
        before = next((one for one in node.input if one and one not in constants), None)
        if before is None:
            break
        chain.append(before)
    return chain


def _length(part: Sequence[NodeProto], constants: Mapping[str, TensorProto]) -> tuple[int, int, int]:
    """Return how long a branch is: operators with weights, all operators, pixels of its windows."""
    weighted = [node for node in part if node.op_type in _WEIGHTED]
    held = [constants[node.input[1]] for node in weighted if node.input[1] in constants]
    return len(weighted), len(part), sum(math.prod(tensor.dims[2:]) for tensor in held)


def _until(chain: Sequence[str], common: str, makers: Mapping[str, NodeProto]) -> list[NodeProto]:
    return [makers[name] for name in chain[: chain.index(common)]]
