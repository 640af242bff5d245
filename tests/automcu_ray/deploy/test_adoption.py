"""A user's own ONNX file comes in as a traced model would: same answers for the same pictures, in our terms."""

import io
import warnings
from collections.abc import Callable

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnx import helper
from torch import nn

from automcu_ray.core.errors import ConfigError, ToolchainError
from automcu_ray.deploy import foreign
from automcu_ray.deploy.adoption import adopt
from automcu_ray.deploy.nearest_spec import read_spec
from automcu_ray.deploy.pixels import IMAGENET, KNOWN, Pixels, parse
from automcu_ray.deploy.quantised.file import as_pairs
from tests.fuzz import sound

SHAPE, CLASSES = (3, 12, 10), 4
IMAGES = np.random.default_rng(0).integers(0, 256, (9, *SHAPE), dtype=np.uint8)


class Small(nn.Module):
    """As people write them: a padded convolution, a batch norm, a view with sizes, a softmax at the end."""

    def __init__(self, *, channels_last: bool = False) -> None:
        super().__init__()
        self.channels_last = channels_last
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.BatchNorm2d(8), nn.ReLU())
        self.body = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8 * 6 * 5, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x.permute(0, 3, 1, 2) if self.channels_last else x)
        x = torch.relu(x + self.body(torch.relu(self.body(x)))).contiguous()
        return torch.softmax(self.head(x.view(x.size(0), -1)), 1)


def exported(network: nn.Module, *, batch: int = 1, opset: int = 17, open_batch: bool = False) -> bytes:
    buffer = io.BytesIO()
    shape = (*SHAPE[1:], 3) if getattr(network, "channels_last", False) else SHAPE
    axes = {"x": {0: "batch"}} if open_batch else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(),
            (torch.zeros(batch, *shape),),
            buffer,  # type: ignore[arg-type]
            input_names=["x"],
            dynamo=False,
            opset_version=opset,
            dynamic_axes=axes,
        )
    return buffer.getvalue()


def answers(network: nn.Module, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the network's own answers for its own values (N, C, H, W)."""
    images = torch.from_numpy(values)
    with torch.no_grad():
        return network(images.permute(0, 2, 3, 1) if getattr(network, "channels_last", False) else images).numpy()


def deployed_answers(model: bytes, pixels: Pixels) -> NDArray[np.float32]:
    adopted, _ = adopt(model, SHAPE, CLASSES, pixels)
    network = foreign.deploy(adopted, SHAPE, precision="float32", calibration=IMAGES)
    logits = torch.from_numpy(network.run(IMAGES).copy())
    return torch.softmax(logits, 1).numpy()


@pytest.mark.parametrize(
    ("batch", "opset", "open_batch", "channels_last"),
    [(1, 17, False, False), (5, 11, False, False), (1, 13, True, False), (1, 17, False, True), (1, 18, True, True)],
)
def test_any_batch_operator_set_and_layout_gives_the_same_answers(
    batch: int, opset: int, open_batch: bool, channels_last: bool
) -> None:
    torch.manual_seed(0)
    network = Small(channels_last=channels_last).eval()
    model = exported(network, batch=batch, opset=opset, open_batch=open_batch)
    wanted = answers(network, (IMAGES.astype(np.float32) - 128) / 128)
    np.testing.assert_allclose(deployed_answers(model, KNOWN["symmetric"]), wanted, atol=1e-5)


def test_a_file_of_the_first_versions_whose_weights_are_inputs_too_comes_in() -> None:
    torch.manual_seed(0)
    network = Small().eval()
    old = onnx.load_from_string(exported(network, opset=11))
    old.ir_version = 3
    for tensor in old.graph.initializer:
        old.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    wanted = answers(network, (IMAGES.astype(np.float32) - 128) / 128)
    np.testing.assert_allclose(deployed_answers(old.SerializeToString(), KNOWN["symmetric"]), wanted, atol=1e-5)
    assert read_spec(old.SerializeToString(), SHAPE).macs > 0


@pytest.mark.parametrize(
    ("pixels", "values"),
    [
        ("unit", IMAGES / 255),
        ("bytes", IMAGES.astype(np.float64)),
        ("centred", IMAGES / 127.5 - 1),
        ("imagenet", (IMAGES / 255 - np.reshape(IMAGENET[0], (3, 1, 1))) / np.reshape(IMAGENET[1], (3, 1, 1))),
        ("0.25/0.5", (IMAGES / 255 - 0.25) / 0.5),
    ],
)
def test_a_network_gets_the_pixels_that_it_was_trained_on(pixels: str, values: NDArray[np.float64]) -> None:
    torch.manual_seed(0)
    network = Small().eval()
    wanted = answers(network, values.astype(np.float32))
    np.testing.assert_allclose(deployed_answers(exported(network), parse(pixels)), wanted, atol=1e-4)


def test_what_is_changed_is_said() -> None:
    _, changes = adopt(exported(Small(channels_last=True)), SHAPE, CLASSES, KNOWN["unit"])
    assert [change.split()[0] for change in changes] == ["Softmax", "a", "channels"]
    assert adopt(exported(nn.Sequential(nn.Flatten(), nn.Linear(360, 4))), SHAPE, CLASSES, KNOWN["symmetric"])[1] == []


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: b"\xff" * 99, "cannot be read as one"),
        (lambda: exported(nn.Sequential(nn.Flatten(), nn.Linear(360, 7))), "4 outputs are wanted.*found 7"),
        (lambda: sound.ONNX_PAIRS.replace(b"DequantizeLinear", b"DequantizeLine\xff\xfe", 1), "is no UTF-8 text"),
    ],
    ids=["rubbish", "other classes", "no text"],
)
def test_what_cannot_come_in_is_refused_by_name(model: Callable[[], bytes], words: str) -> None:
    with pytest.raises(ToolchainError, match=words):
        foreign.adopt(model(), SHAPE, CLASSES, KNOWN["unit"])


def test_a_pair_without_its_scale_and_a_name_that_is_no_text_are_no_surprise() -> None:
    pairs = onnx.load_from_string(sound.ONNX_PAIRS)
    del pairs.graph.node[0].input[1:]
    with pytest.raises(ToolchainError, match="QuantizeLinear: a tensor and its scale are wanted"):
        adopt(pairs.SerializeToString(), (1, 8, 8), 10, KNOWN["unit"])
    adopt(sound.ONNX_FILE.replace(b"/stem/Conv", b"/stem/\xff\xfenv"), (1, 8, 8), 10, KNOWN["unit"])


@pytest.mark.parametrize(("kind", "name"), [("QGemm", "alpha"), ("QuantizeLinear", "output_dtype")])
def test_a_list_in_place_of_a_number_is_refused_by_name(kind: str, name: str) -> None:
    node = helper.make_node(kind, list("abcdefghi"), ["y"], domain="com.microsoft", **{name: [1, 2]})
    model = helper.make_model(helper.make_graph([node], "g", [], []))
    with pytest.raises(ToolchainError, match=f"{kind}: its {name} is of another type"):
        as_pairs(model)


def test_other_images_are_refused_with_both_shapes() -> None:
    with pytest.raises(ToolchainError, match=r"batch, 1, 8, 8.*found \(1, 3, 12, 10\)"):
        adopt(exported(Small()), (1, 8, 8), CLASSES, KNOWN["unit"])


@pytest.mark.parametrize("text", ["half", "1/0", "0.5,0.5/1,2,3,x", "1e9/1"])
def test_pixels_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--pixels"):
        parse(text)
    with pytest.raises(ConfigError, match="one for each of 3 channels"):
        parse("0.5,0.5/1").affine(3)


class Recurrent(nn.Module):
    """Of a signal without the axis of one, steps before channels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(6, 5, batch_first=True, bidirectional=True), nn.Linear(10, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.layer(x)[1][0].transpose(0, 1).flatten(1))
        return logits


@pytest.mark.parametrize("batch", [1, 3])
def test_a_signal_needs_no_axis_of_one(batch: int) -> None:
    torch.manual_seed(0)
    network, buffer = Recurrent().eval(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network, (torch.zeros(batch, 9, 6),), buffer, dynamo=False, opset_version=17)  # type: ignore[arg-type]
    adopted, changes = adopt(buffer.getvalue(), (6, 1, 9), CLASSES, KNOWN["symmetric"])
    images = np.random.default_rng(1).integers(0, 256, (8, 6, 1, 9), dtype=np.uint8)
    found = foreign.deploy(adopted, (6, 1, 9), precision="float32", calibration=images).run(images)
    values = torch.from_numpy((images[:, :, 0].astype(np.float32) - 128) / 128).transpose(1, 2)
    with torch.no_grad():
        assert np.abs(found - network(values).numpy()).max() < 1e-5
    assert changes == ["channels last: turned to channels first"]


def test_a_flat_input_is_the_image_channel_after_channel() -> None:
    network = nn.Sequential(nn.Linear(360, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 360)).eval()
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network, (torch.zeros(1, 360),), buffer, dynamo=False, opset_version=13)  # type: ignore[arg-type]
    adopted, changes = adopt(buffer.getvalue(), SHAPE, 360, KNOWN["symmetric"])
    assert changes == ["a flat input: an image's values, channel after channel, row by row"]
    foreign.check(adopted, SHAPE, 360)
    made = foreign.deploy(adopted, SHAPE, precision="float32", calibration=IMAGES)
    with torch.no_grad():
        wanted = network(torch.from_numpy(IMAGES.astype(np.float32)).flatten(1) / 128 - 1).numpy()
    assert np.abs(made.run(IMAGES) - wanted).max() < 1e-5
