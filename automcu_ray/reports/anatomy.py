"""What a report says of one network: whom it descends from, what it is made of, what it gets wrong."""

import base64
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from automcu_ray.networks.graph import NETWORK_INPUT, Graph, Op, Shape
from automcu_ray.records.record import Record


class Block(NamedTuple):
    """A layer of the spec: its operators in words, its output's shape, and what else it reads than the layer before."""

    layer: str
    operators: tuple[str, ...]
    shape: Shape
    parameters: int
    macs: int
    also_reads: tuple[str, ...]


def lineage(records: Sequence[Record], number: int) -> list[Record]:
    """Return the records that a candidate was made from, one after the other, itself last."""
    by_number = {record.candidate.number: record for record in records}
    of_hash = {record.candidate.hash: record for record in reversed(records) if record.candidate.hash}
    line: list[Record] = []
    record = by_number.get(number)
    while record is not None and record not in line:
        line.insert(0, record)
        mine = record.candidate
        record = of_hash.get(mine.parent) if mine.parent else by_number.get(mine.origin)
    return line


def blocks(graph: Graph) -> list[Block]:
    """Return the layers of a network in their order."""
    found: list[Block] = []
    layers = [_layer(op) for op in graph.ops]
    for layer, numbers in groupby(range(len(layers)), key=layers.__getitem__):
        ops = [graph.ops[number] for number in numbers]
        last = found[-1].layer if found else ""
        read = {"input" if at == NETWORK_INPUT else layers[at] for op in ops for at in op.inputs}
        found.append(
            Block(
                layer=layer,
                operators=tuple(_in_words(op) for op in ops),
                shape=ops[-1].shape,
                parameters=sum(op.weights + op.biases for op in ops),
                macs=sum(op.macs for op in ops),
                also_reads=tuple(sorted(read - {layer, last or "input"})),
            )
        )
    return found


def pictures(path: Path) -> str:
    """Return a PNG as a URI that needs nothing from outside; "" where there is none."""
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}" if path.is_file() else ""


def _layer(op: Op) -> str:
    return op.name.partition(".")[0]


def _in_words(op: Op) -> str:
    words = [op.kind.replace("_", " ")]
    if op.kind in ("conv", "max_pool", "avg_pool"):
        words.append("x".join(map(str, op.window)))
    if op.kind == "conv" and op.groups > 1:
        words.append("depthwise" if op.groups == op.in_shape[0] else f"{op.groups} groups")
    if op.stride > 1:
        words.append(f"stride {op.stride}")
    if op.dilation > 1:
        words.append(f"dilation {op.dilation}")
    return " ".join(words if op.activation == "none" else [*words, op.activation])
