"""Where a network lies in the memories of a MAX78000 or MAX78002, and what does not fit there.

Where weights and biases come to lie once processors are chosen follows ai8xize's own rules (izer/kernels.py,
izer/kbias.py, izer/backend/max7800x.py of ai8x-synthesis). Processors and places of the data are ours to choose, by
rules of thumb and a bounded number of tries: what finds no place here, this backend refuses, though another choice
might have one. The extra weight memory of four of a MAX78002's processors is left out.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from automcu_ray.networks.graph import NETWORK_INPUT, Shape
from automcu_ray.problem.accelerator import Accelerator
from backends.ai8x.limits import GROUP, PROCESSORS, SHARING, Refused, check_counts, passes, processors, too_large
from backends.ai8x.memories import KERNEL_BYTES, bias_bytes, lowest_free, weight_words
from backends.ai8x.network import Layer

TRIES = 32  # of other processors, 4 ms in all; 200 found room for no more of 40 networks


@dataclass(frozen=True)
class Placement:
    """Where every layer reads and writes; offsets in bytes within a part of the data memory.

    Attributes:
        reads: bit masks of the processors that each layer's input belongs to.
        writes: the same for each layer's output.
        in_offsets: where each layer's input begins.
        out_offsets: where its output begins.
        weight_bytes: of all layers, as the toolchain counts them.
        bias_bytes: of all layers.
        data_bytes: up to the highest address in use, all parts of the data memory together.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    in_offsets: tuple[int, ...]
    out_offsets: tuple[int, ...]
    weight_bytes: int
    bias_bytes: int
    data_bytes: int


def place(layers: Sequence[Layer], input_shape: Shape, accelerator: Accelerator) -> Placement:
    """Return where a network lies; the same network always lies in the same place.

    Raises:
        Refused: a count or memory of the accelerator is exceeded, or none of our tries found room in one. Of a part of
            a memory it says how far the first try reached, which is no lower bound.
    """
    check_counts(layers, accelerator)
    weight_bytes = sum(layer.weight_bytes for layer in layers)
    limit = accelerator.weight_memory.total_bytes
    if weight_bytes > limit:
        heaviest = max(layers, key=lambda layer: layer.weight_bytes)
        raise too_large(
            "weight_memory", heaviest.name, weight_bytes, limit, f"weights need {weight_bytes:,} bytes, the accelerator"
        )
    try:
        return _try(layers, _Tensors(layers, input_shape), accelerator, None)
    except Refused:
        # Other processors could help, unless all are taken or a map is larger than any place for it.
        rng, tensors, indices = Random(0), _Tensors(layers, input_shape), range(NETWORK_INPUT, len(layers))
        too_wide = any(tensors.size_bytes(index) > accelerator.data_memory.part_bytes for index in indices)
        free = any(tensors.root(i) not in tensors.start and tensors.count(i) <= PROCESSORS - GROUP for i in indices)
        for _ in range(TRIES if free and not too_wide else 0):
            with contextlib.suppress(Refused):
                return _try(layers, _Tensors(layers, input_shape), accelerator, rng)
        raise


def _try(layers: Sequence[Layer], tensors: "_Tensors", accelerator: Accelerator, rng: Random | None) -> Placement:
    """Return where a network lies with processors by rule of thumb, or by chance."""
    _choose_processors(layers, tensors, accelerator, rng)
    first = [layer.inputs[0] for layer in layers]
    reads = tuple(tensors.mask(index) for index in first)
    writes = tuple(tensors.mask(index) for index in range(len(layers)))
    biases = bias_bytes(layers, reads, writes, accelerator)
    part_bytes = accelerator.data_memory.part_bytes
    try:
        offsets, data_bytes = _fill(layers, tensors, part_bytes, both_ends=False)
    except Refused as error:
        try:
            offsets, data_bytes = _fill(layers, tensors, part_bytes, both_ends=True)
        except Refused:
            raise error from None
    return Placement(
        reads=reads,
        writes=writes,
        in_offsets=tuple(offsets[index] for index in first),
        out_offsets=tuple(offsets[index] for index in range(len(layers))),
        weight_bytes=sum(layer.weight_bytes for layer in layers),
        bias_bytes=biases,
        data_bytes=data_bytes,
    )


@dataclass
class _Tensors:
    """The image and the outputs of all layers; those that must share their processors form one class."""

    layers: Sequence[Layer]
    input_shape: Shape
    parent: dict[int, int] = field(default_factory=dict)
    start: dict[int, int] = field(default_factory=dict)  # first processor of a class

    def __post_init__(self) -> None:
        for at, layer in enumerate(self.layers):
            passed_on = (at,) if layer.weights == "none" or layer.groups > 1 else ()
            for index in (*layer.inputs[1:], *passed_on):
                self.parent[self.root(index)] = self.root(layer.inputs[0])
        self.start[self.root(NETWORK_INPUT)] = 0  # the toolchain wants the first group of processors in use

    def root(self, index: int) -> int:
        while index in self.parent and self.parent[index] != index:
            index = self.parent[index]
        return index

    def shape(self, index: int) -> Shape:
        return self.input_shape if index == NETWORK_INPUT else self.layers[index].shape

    def count(self, index: int) -> int:
        return processors(self.shape(index)[0])

    def mask(self, index: int) -> int:
        return ((1 << self.count(index)) - 1) << self.start.get(self.root(index), 0)

    def size_bytes(self, index: int) -> int:
        """Return the bytes of a tensor within the parts of the data memory that it lies in."""
        channels, height, width = self.shape(index)
        words = height * width * passes(channels)
        wide = index != NETWORK_INPUT and self.layers[index].wide
        return words * SHARING * (4 if wide else 1)


def _choose_processors(
    layers: Sequence[Layer], tensors: _Tensors, accelerator: Accelerator, rng: Random | None
) -> None:
    """Give every class of tensors its processors: where the weights of its readers come to lie lowest, or at random.

    As the toolchain does it, layers that take all processors are placed first, each layer at the lowest column that
    is a multiple of four and free in all its processors.
    """
    used = [0] * PROCESSORS  # a bit for each column of the processor's weight memory
    limit = accelerator.weight_memory.part_bytes // KERNEL_BYTES
    with_weights = [at for at, layer in enumerate(layers) if layer.weights != "none"]
    for at in sorted(with_weights, key=lambda at: tensors.count(layers[at].inputs[0]) < len(used)):
        layer, source = layers[at], layers[at].inputs[0]
        columns = weight_words(layer)
        count, root = tensors.count(source), tensors.root(source)
        starts = [tensors.start[root]] if root in tensors.start else [*range(0, len(used) - count + 1, GROUP)]
        starts = [rng.choice(starts)] if rng else starts
        column, start = min((lowest_free(used[start : start + count], columns), start) for start in starts)
        if column + columns > limit:
            need = (column + columns) * KERNEL_BYTES
            what = f"weights of {layer.name} would reach byte {need:,} of a processor's weight memory, which"
            raise too_large("weight_memory", layer.name, need, limit * KERNEL_BYTES, what)
        tensors.start[root] = start
        for processor in range(start, start + count):
            used[processor] |= ((1 << columns) - 1) << column


def _fill(layers: Sequence[Layer], tensors: _Tensors, limit: int, *, both_ends: bool) -> tuple[dict[int, int], int]:
    """Return the offset of every tensor, and the bytes in use; a tensor keeps its place until its last reader is done.

    The two operands of a sum lie interleaved, one word apart, in a block of their own.
    """
    last = {index: at for at, layer in enumerate(layers) for index in layer.inputs}
    pairs = {index: layer.inputs for layer in layers if len(layer.inputs) > 1 for index in layer.inputs}
    offsets: dict[int, int] = {}
    placed: list[tuple[int, int, int, int]] = []  # parts (mask), begin, end, last reader
    for at in range(NETWORK_INPUT, len(layers)):
        if at in offsets:
            continue
        pair = pairs.get(at, (at,))
        size = tensors.size_bytes(at) * len(pair)
        parts = sum(1 << part for part in range(16) if tensors.mask(at) >> part * SHARING & 0xF)
        alive = sorted((begin, end) for mask, begin, end, until in placed if mask & parts and until >= at)
        begin = _gap(alive, size)
        if both_ends and len(placed) % 2:
            begin = limit - size - _gap([(limit - end, limit - low) for low, end in reversed(alive)], size)
        if not 0 <= begin <= limit - size:
            name = "input" if at == NETWORK_INPUT else layers[at].name
            what = f"the output of {name} would reach byte {begin + size:,} of a part of the data memory, which"
            raise too_large("data_memory", name, begin + size, limit, what)
        placed.append((parts, begin, begin + size, max(last.get(index, at) for index in pair)))
        offsets |= {index: begin + SHARING * operand for operand, index in enumerate(pair)}
    top = [max((end for mask, _, end, _ in placed if mask >> part & 1), default=0) for part in range(16)]
    return offsets, sum(top)


def _gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """Return the lowest offset with `size` free bytes between sorted ranges."""
    begin = 0
    for low, high in taken:
        if begin + size <= low:
            break
        begin = max(begin, high)
    return begin
