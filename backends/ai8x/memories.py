"""How much of its memories a layer takes, and where there is room: the rules of ai8xize's own allocators.

Sources: izer/kernels.py and izer/kbias.py of analogdevicesinc/ai8x-synthesis.
"""

import math
from collections.abc import Sequence

from automcu_ray.problem.accelerator import Accelerator
from backends.ai8x.limits import GROUP, SHARING, passes, processors, too_large
from backends.ai8x.network import Layer

KERNEL_BYTES = 9  # a word of the weight memory


def weight_words(layer: Layer) -> int:
    """Return how many words of each of its processors' weight memories a layer takes."""
    out, reading = layer.shape[0], passes(layer.in_shape[0])
    if layer.flatten:
        return math.ceil(out * math.prod(layer.in_shape[1:]) * reading / KERNEL_BYTES)
    kernels = reading if layer.groups > 1 else processors(out) * passes(out) * reading
    return math.ceil(kernels * layer.kernel**2 / KERNEL_BYTES)


def lowest_free(used: Sequence[int], columns: int) -> int:
    """Return the lowest column, a multiple of four, from which on so many are free in all these memories."""
    taken = 0
    for bits in used:
        taken |= bits
    column, wanted = 0, (1 << columns) - 1
    while taken >> column & wanted:
        column += SHARING
    return column


def bias_bytes(layers: Sequence[Layer], reads: Sequence[int], writes: Sequence[int], accelerator: Accelerator) -> int:
    """Return the bytes of all biases; each layer's go to one group in use, the longest first, to the emptiest.

    A depthwise layer needs each bias in the group of its processor, so those come before all others.

    Args:
        layers: all of the network.
        reads: bit masks of the processors of each layer's input.
        writes: the same for its output.
        accelerator: its limits.

    Raises:
        Refused: a group's bias memory is full.
    """
    groups = [g for g in range(4) if any(mask >> g * GROUP & 0xFFFF for mask in (*reads, writes[-1]))]
    used = dict.fromkeys(range(4), 0)
    depthwise = [at for at, layer in enumerate(layers) if layer.groups > 1]
    others = [at for at, layer in enumerate(layers) if layer.biases and layer.groups == 1]
    for at in (*depthwise, *sorted(others, key=lambda at: (not layers[at].flatten, -layers[at].biases))):
        if layers[at].groups > 1:
            _add_depthwise(layers[at], reads[at], used)
        else:
            used[min(groups, key=lambda g: used[g])] += layers[at].biases
        need, limit = max(used.values()), accelerator.bias_memory.part_bytes
        if need > limit:
            what = f"biases of {layers[at].name} would reach byte {need:,} of a bias memory, which"
            raise too_large("bias_memory", layers[at].name, need, limit, what)
    return sum(used.values())


def _add_depthwise(layer: Layer, mask: int, used: dict[int, int]) -> None:
    """Append a byte for each pass and processor of every group up to the last one, none behind the last bias."""
    first, last = ((mask & -mask).bit_length() - 1) // GROUP, (mask.bit_length() - 1) // GROUP
    channels, count = layer.shape[0], processors(layer.shape[0])
    lanes = [lane % SHARING * SHARING + lane // SHARING for lane in range(GROUP)]  # the order in which they are read
    share = [(last - first) * GROUP + lane for lane in lanes]
    filled = [p < count and turn * count + p < channels for turn in range(passes(channels)) for p in share]
    for group in range(last + 1):
        if group >= first:
            used[group] = math.ceil(used[group] / SHARING) * SHARING
        used[group] += len(filled)
    used[last] -= filled[::-1].index(True)
