import inspect
import pickle
from collections.abc import Callable

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy import export
from automcu_ray.deploy.export import DeployedNetwork, deploy, normalize, operators
from automcu_ray.deploy.onnx_graph import leading_window, values_per_image, with_batch_one
from automcu_ray.testing.networks import CLASSES, NETWORKS, SHAPE, deployed_network, images, network


class Activated(nn.Module):
    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation, self.rest = activation, network("plain")

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.activation(x))


def test_a_pixel_becomes_its_value_less_128_over_128() -> None:
    pixels = np.array([0, 64, 128, 255], dtype=np.uint8)
    assert normalize(pixels).tolist() == [-1.0, -0.5, 0.0, 127 / 128]


def test_the_int8_input_is_the_pixel_less_128_exactly() -> None:
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)
    made = deployed_network("plain", "int8")
    assert (made.input_scale, made.input_zero_point) == (1 / 128, 0)
    assert made.encode(pixels).dtype == np.int8
    assert made.encode(pixels).ravel().tolist() == list(range(-128, 128))


def pooled() -> nn.Module:
    """Its pool passes over the last row and column of 9x7 pixels."""
    return nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4 * 2 * 1, CLASSES))


@pytest.mark.parametrize(("made", "shape"), [(lambda: network("plain"), SHAPE), (pooled, (1, 9, 7))])
def test_the_input_scale_is_the_pixels_whatever_the_calibration_images(
    made: Callable[[], nn.Module], shape: tuple[int, int, int]
) -> None:
    dark = np.full((4, *shape), 7, dtype=np.uint8)
    deployed = deploy(made(), shape, precision="int8", calibration=dark)
    assert (deployed.input_scale, deployed.input_zero_point) == (1 / 128, 0)
    assert (dark == 7).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_an_int8_network_is_int8_from_end_to_end(name: str) -> None:
    made = deployed_network(name, "int8")
    graph = with_batch_one(made.onnx).graph
    kinds = {value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)}
    assert kinds == {onnx.TensorProto.INT8}
    assert not {"QuantizeLinear", "DequantizeLinear"} & set(operators(made.onnx))


@pytest.mark.parametrize("pool", [nn.Identity(), nn.MaxPool2d(2)])
def test_flattened_pixels_are_int8_from_end_to_end(pool: nn.Module) -> None:
    pixels = pool(torch.zeros(1, *SHAPE)).numel()
    net = nn.Sequential(pool, nn.Flatten(), nn.Linear(pixels, CLASSES))
    made = deploy(net, SHAPE, precision="int8", calibration=images(4))
    graph = with_batch_one(made.onnx).graph
    assert {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)} == {onnx.TensorProto.INT8}
    assert not {"QuantizeLinear", "DequantizeLinear"} & set(operators(made.onnx))


@pytest.mark.parametrize("name", NETWORKS)
def test_float32_answers_what_torch_answers(name: str) -> None:
    made, batch = deployed_network(name, "float32"), images(5)
    with torch.no_grad():
        expected = network(name)(torch.from_numpy(normalize(batch))).numpy()
    np.testing.assert_allclose(made.run(batch), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_int8_stays_close_to_float32(name: str) -> None:
    made, batch = deployed_network(name, "int8"), images(64)
    real = (made.run(batch).astype(np.float32) - made.output_zero_point) * made.output_scale
    wanted = deployed_network(name, "float32").run(batch)
    assert np.abs(real - wanted).mean() < 0.05 * np.ptp(wanted)


class TwoWays(nn.Module):
    """What flattens or pools the image feeds a layer, and so does the image itself."""

    def __init__(self, move: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.move = move
        self.conv, self.side = nn.Conv2d(3, CLASSES, 3), nn.LazyLinear(CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        moved: Tensor = self.side(self.move(x).flatten(1))
        return moved + self.conv(x).mean((2, 3))


@pytest.mark.parametrize("move", [nn.Identity(), nn.MaxPool2d(2)])
def test_the_image_itself_and_what_moves_it_are_quantised_once(move: nn.Module) -> None:
    net = TwoWays(move)
    net(torch.zeros(1, *SHAPE))
    made, batch = deploy(net, SHAPE, precision="int8", calibration=images(8)), images(8)
    real = (made.run(batch).astype(np.float32) - made.output_zero_point) * made.output_scale
    with torch.no_grad():
        wanted = net(torch.from_numpy(normalize(batch))).numpy()
    assert np.abs(real - wanted).mean() < 0.05 * np.ptp(wanted)
    assert not {"QuantizeLinear", "DequantizeLinear"} & set(operators(made.onnx))


class Edge(nn.Module):
    """Small networks whose graphs have a corner: `edge` gives features for a linear layer."""

    def __init__(self, edge: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.edge, self.fc = edge, nn.Linear(int(np.prod(SHAPE)), CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.edge(x))


class NothingToQuantise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x.flatten(1))[:, :CLASSES]


@pytest.mark.parametrize(
    ("made", "stuck"),
    [
        (
            lambda: Edge(lambda x: x.flatten(1) * x.mean().reshape(())),
            "one image at a time; ReduceMean .* along the im",
        ),
        (lambda: Edge(lambda x: x.sort(3).values.flatten(1)), r"; TopK \(line \d+\) would run in"),
    ],
)
def test_what_stays_in_float_is_named_and_no_corner_of_a_graph_is_a_crash(
    made: Callable[[], nn.Module], stuck: str
) -> None:
    with pytest.raises(ToolchainError, match=stuck):
        deploy(made(), SHAPE, precision="int8", calibration=images(8))


def test_a_pool_without_strides_moves_by_one() -> None:
    net = nn.Sequential(nn.MaxPool2d(2, stride=1), nn.Flatten(), nn.LazyLinear(CLASSES))
    net(torch.zeros(1, *SHAPE))
    model = onnx.load_from_string(deploy(net, SHAPE, precision="float32", calibration=images(1)).onnx)
    pool = next(node for node in model.graph.node if node.op_type == "MaxPool")
    kept = [attribute for attribute in pool.attribute if attribute.name != "strides"]
    del pool.attribute[:]
    pool.attribute.extend(kept)
    assert leading_window(model) == 2


def test_a_batch_of_a_large_network_stays_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    made, batch = deployed_network("plain", "float32"), images(20)
    per_image = values_per_image(made.float_onnx)
    assert per_image > np.prod(SHAPE)
    monkeypatch.setattr(export, "MAX_VALUES", 7 * per_image)
    monkeypatch.setattr(DeployedNetwork, "encode", lambda self, part: sizes.append(len(part)) or normalize(part))
    export._batch.cache_clear()
    assert made.run(batch).shape == (20, CLASSES) and sizes == [7, 7, 6]
    export._batch.cache_clear()


def test_many_images_give_the_rows_that_one_at_a_time_gives() -> None:
    made, batch = deployed_network("plain", "int8"), images(300)
    assert np.array_equal(made.run(batch)[257], made.run(batch[257:258])[0])
    assert made.run(batch[:0]).shape == (0, CLASSES)


def test_accuracy_is_the_share_of_right_answers() -> None:
    made, batch = deployed_network("plain", "int8"), images(4)
    labels = made.run(batch).argmax(axis=1)
    labels[0] = (labels[0] + 1) % CLASSES
    assert made.accuracy(batch, labels) == 0.75


def test_a_deployed_network_survives_pickling_after_use() -> None:
    made = deployed_network("plain", "int8")
    made.run(images(2))
    again = pickle.loads(pickle.dumps(made))
    assert again == made
    assert np.array_equal(again.run(images(2)), made.run(images(2)))


def test_the_same_operator_is_welcome_in_float32() -> None:
    made = deploy(Activated(nn.Hardswish()), SHAPE, precision="float32", calibration=images(1))
    assert made.output_scale is None and made.run(images(2)).shape == (2, CLASSES)


def test_an_untrained_network_with_equal_biases_is_quantised() -> None:
    made = deploy(NETWORKS["plain"](), SHAPE, precision="int8", calibration=images(8))
    assert "Identity" not in operators(made.onnx)


def test_a_network_that_fails_on_its_input_is_a_toolchain_error() -> None:
    with pytest.raises(ToolchainError, match="refused the network"):
        deploy(nn.Sequential(nn.Flatten(), nn.Linear(7, 5)), SHAPE, precision="int8", calibration=images(8))


def test_a_network_without_one_row_an_image_is_a_toolchain_error() -> None:
    with pytest.raises(ToolchainError, match="logits of shape"):
        deploy(nn.Conv2d(3, 5, 3), SHAPE, precision="float32", calibration=images(1))


def test_deploying_leaves_the_network_as_it_was() -> None:
    made = network("plain").train()
    before = {name: value.clone() for name, value in made.state_dict().items()}
    deploy(made, SHAPE, precision="float32", calibration=images(1))
    assert made.training
    assert all(torch.equal(before[name], value) for name, value in made.state_dict().items())


def test_export_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    deploy(network("viewed"), SHAPE, precision="int8", calibration=images(8))
    assert capfd.readouterr() == ("", "")


def test_what_stays_in_float_is_named_by_layer_and_line() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x).sort(2).values
            return self.head(x.mean((2, 3)))

    at = inspect.getsourcelines(Net.forward)[1] + 1
    with pytest.raises(ToolchainError, match=rf"; TopK \(line {at}\) would run in float"):
        deploy(Net().eval(), (1, 8, 8), precision="int8", calibration=np.zeros((2, 1, 8, 8), np.uint8))
