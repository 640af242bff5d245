"""Where networks lie in the accelerator's memories; numbers by hand, and from published networks."""

from random import Random
from typing import Any

import pytest

from automcu_ray.networks.graph import NETWORK_INPUT
from backends.ai8x import placement
from backends.ai8x.limits import Refused, passes, processors
from backends.ai8x.memories import lowest_free, weight_words
from backends.ai8x.network import Layer, layers
from backends.ai8x.placement import Placement, place
from tests.backends.ai8x.networks import conv, make_graph, make_task, read_target

FIT_LATER: dict[str, tuple[list[dict[str, Any]], tuple[int, int, int]]] = {
    "data": ([conv(256), conv(256, kernel_size=1), {"type": "max_pool"}, conv(16, kernel_size=1)], (3, 32, 32)),
    "weights": (
        [conv(48, kernel_size=1), {"type": "max_pool"}, conv(16, kernel_size=1), *map(conv, (128, 96, 96, 128, 48))],
        (3, 16, 16),
    ),
}


def put(spec: list[dict[str, Any]], shape: tuple[int, int, int] = (3, 16, 16), target: str = "max78000") -> Placement:
    graph = make_graph(spec, shape, target)
    accelerator = read_target(target).accelerator
    assert accelerator is not None
    return place(layers(graph), graph.input_shape, accelerator)


def kernels(inputs: int, outputs: int, size: int) -> Layer:
    return Layer("conv", (NETWORK_INPUT,), (inputs, 8, 8), (outputs, 8, 8), "own", kernel=size)


def test_weights_are_counted_as_the_tool_counts_those_of_its_own_examples() -> None:
    fc = Layer("fc", (0,), (12, 4, 4), (10, 1, 1), "own", flatten=True)
    mnist = [kernels(1, 60, 3), kernels(60, 60, 3), kernels(60, 56, 3), kernels(56, 12, 3), fc]
    assert sum(layer.weight_bytes for layer in mnist) == 71_148
    shapes = [(3, 64, 3), (64, 32, 1), (32, 64, 3), (64, 32, 3), (32, 64, 1), (64, 128, 3), (128, 128, 1)]
    shapes += [(128, 64, 3), (64, 128, 3), (128, 128, 1), (512, 10, 1)]
    assert sum(kernels(*shape).weight_bytes for shape in shapes) == 301_760


def test_more_channels_than_processors_take_several_passes() -> None:
    assert [passes(channels) for channels in (1, 64, 65, 128, 129)] == [1, 1, 2, 2, 3]
    assert [processors(channels) for channels in (3, 64, 100, 128, 130)] == [3, 64, 52, 64, 44]


def test_a_word_holds_one_3x3_kernel_or_nine_of_1x1() -> None:
    assert weight_words(kernels(16, 64, 3)) == 64
    assert weight_words(kernels(16, 64, 1)) == 8  # 64 / 9, rounded up
    assert weight_words(kernels(128, 100, 3)) == 2 * 2 * 52  # two passes each way, 52 processors written
    assert weight_words(Layer("fc", (0,), (12, 4, 4), (10, 1, 1), "own", flatten=True)) == 18  # 10 * 16 / 9


def test_room_begins_at_a_multiple_of_four_in_all_processors() -> None:
    assert lowest_free([0b0, 0b0], 3) == 0
    assert lowest_free([0b11111, 0b0], 3) == 8
    assert lowest_free([0b1111_0000, 0b0], 4) == 0
    assert lowest_free([0b1111_0000, 0b0], 5) == 8


def test_small_network_by_hand() -> None:
    found = put([conv(8), conv(20)])
    assert (found.weight_bytes, found.bias_bytes) == (216 + 1440 + 200, 8 + 20 + 10)
    # the image's processors hold layer 1's weights, so layer 2 gets the next group of processors, and the head another
    assert found.reads == (0x7, 0xFF << 16, 0xFFFFF << 32)
    assert found.writes == (0xFF << 16, 0xFFFFF << 32, 0x3FF)
    # 16 * 16 words of 4 bytes; parts 0, 4-5, 8-12 of the memory never meet, but logits and image in part 0 do
    assert (found.in_offsets, found.out_offsets) == ((0, 0, 0), (0, 0, 0))
    assert found.data_bytes == 1024 + 2 * 1024 + 5 * 1024 + 2 * 16


def test_operands_of_a_sum_lie_one_word_apart() -> None:
    spec = [conv(8), {"type": "residual", "out_channels": 8}]
    hardware, found = layers(make_graph(spec)), put(spec)
    at = next(at for at, layer in enumerate(hardware) if len(layer.inputs) == 2)
    first, second = hardware[at].inputs
    assert found.out_offsets[second] == found.out_offsets[first] + 4 == found.in_offsets[at] + 4
    assert found.writes[first] == found.writes[second] == found.reads[at]


@pytest.mark.parametrize(("spec", "shape"), FIT_LATER.values(), ids=FIT_LATER)
def test_what_the_first_choice_has_no_room_for_is_placed_otherwise(
    spec: list[dict[str, Any]], shape: tuple[int, int, int]
) -> None:
    """First fit refuses both; ai8xize takes both (test_ai8x_tool.py)."""
    assert put(spec, shape) == put(spec, shape)


def test_a_map_that_finds_no_room_below_lies_at_the_upper_end() -> None:
    # a part has 32,768 bytes: image 4,096, 256 channels of 32x32 16,384 by four passes of 1,024 words, twice; first fit
    # puts the first behind the image, and the second neither below nor behind it
    spec, shape = FIT_LATER["data"]
    assert put(spec, shape).out_offsets[:2] == (32_768 - 16_384, 0)


def place_from_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    fill = placement._fill
    monkeypatch.setattr(placement, "_fill", lambda *about, both_ends: fill(*about, both_ends=True))


@pytest.mark.thorough
@pytest.mark.parametrize("target", ["max78000", "max78002"])
@pytest.mark.parametrize("both_ends", [False, True])
def test_nothing_is_overwritten_before_its_last_reader(
    target: str, both_ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if both_ends:
        place_from_both_ends(monkeypatch)
    task, rng = make_task((3, 10, 10), target), Random(7)
    accelerator = task.target.accelerator
    assert accelerator is not None
    for _ in range(30):
        graph = task.space.graph(task.space.sample(rng).spec)
        hardware = layers(graph)
        try:
            found = place(hardware, graph.input_shape, accelerator)
        except Refused:
            continue
        memory = {word: NETWORK_INPUT for word in _words(hardware, found, NETWORK_INPUT)}
        for at, layer in enumerate(hardware):
            for index in layer.inputs:
                assert all(memory[word] == index for word in _words(hardware, found, index)), (layer, index)
            assert not set(_words(hardware, found, at)) & {w for i in layer.inputs for w in _words(hardware, found, i)}
            memory |= {word: at for word in _words(hardware, found, at)}


def _words(hardware: tuple[Layer, ...], found: Placement, index: int) -> list[tuple[int, int]]:
    """Return the words (part, address) that a tensor lies in, from the rules of README.md: HWC, one word a pixel."""
    if index == NETWORK_INPUT:
        (channels, rows, columns), mask, offset, step = hardware[0].in_shape, found.reads[0], found.in_offsets[0], 4
    else:
        layer = hardware[index]
        (channels, rows, columns), mask, offset = layer.shape, found.writes[index], found.out_offsets[index]
        step = 8 if layer.interleaved else 4
    count = rows * columns * passes(channels) * (4 if index >= 0 and hardware[index].wide else 1)
    parts = [part for part in range(16) if mask >> 4 * part & 0xF]
    return [(part, offset + step * word) for part in parts for word in range(count)]


def test_too_many_weights_say_how_many() -> None:
    with pytest.raises(Refused, match="weights need 890,752 bytes, the accelerator has 442,368") as refused:
        put([conv(128), conv(256), conv(256)], (3, 8, 8))
    (violation,) = refused.value.violations
    assert (violation.resource, violation.where) == ("weight_memory", "layer_3.conv")
    assert violation.over_bytes == 890_752 - 442_368


def test_weights_that_fit_in_all_but_not_beside_each_other_are_refused() -> None:
    # of 768 words in every processor: 11 * 64 for 3x3, 7 * 8 for 1x1, 2 for the head; layer 1 has 64 from word 764 on
    with pytest.raises(Refused, match="would reach byte 7,452 of a processor's weight memory, which has 6,912"):
        put([conv(64)] + [conv(64)] * 11 + [conv(64, kernel_size=1)] * 7, (3, 4, 4))


def test_biases_fill_the_emptiest_group() -> None:
    wide, narrow = conv(512, kernel_size=1), conv(16, kernel_size=1)
    with pytest.raises(Refused, match=r"biases of .* would reach byte 1,024 of a bias memory, which has 512"):
        put([wide, narrow] * 5, (1, 4, 4))


def test_maps_larger_than_a_part_of_the_data_memory_are_refused() -> None:
    with pytest.raises(Refused, match="the output of input would reach byte 40,000 of a part"):
        put([conv(4), {"type": "max_pool", "kernel_size": 8}], (3, 100, 100))
    # block input, two interleaved operands: 16,384 bytes each
    with pytest.raises(Refused, match=r"the output of layer_2\.conv2 would reach byte 65,536 of a part"):
        put([conv(64), {"type": "residual", "out_channels": 64}], (3, 64, 64))


def test_layers_and_channels_are_counted() -> None:
    with pytest.raises(Refused, match=r"head\.linear: layer 33, MAX78000 has 32"):
        put([conv(4)] * 32)
    put([conv(4)] * 31)
    with pytest.raises(Refused, match=r"layer_2\.pool: 96 channels in a pooling, MAX78000 does up to 64"):
        put([conv(96), {"type": "max_pool"}, {"type": "avg_pool"}])
    with pytest.raises(Refused, match=r"layer_2\.add: 136 channels in a sum, MAX78000 does up to 128"):
        put([conv(136, kernel_size=1), {"type": "bottleneck", "out_channels": 136, "expansion": 0.1}])


def test_depthwise_biases_fill_the_groups_of_their_processors() -> None:
    # 8 channels in group 1: the tool writes 16 bytes for group 0 and 14 for group 1, where lanes 15 and 11 come last
    found = put([conv(8), {"type": "depthwise"}], (1, 16, 16), "max78002")
    assert found.reads[1] == 0xFF << 16
    assert found.bias_bytes == 16 + 14 + 8 + 10
