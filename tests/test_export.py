import pickle

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from automcu_ray.errors import ToolchainError
from automcu_ray.export import deploy, normalize, operators, with_batch_one
from tests.networks_for_export import CLASSES, NETWORKS, SHAPE, deployed_network, images, network


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


def test_the_input_scale_does_not_depend_on_the_calibration_images() -> None:
    dark = np.full((4, *SHAPE), 7, dtype=np.uint8)
    made = deploy(network("plain"), SHAPE, precision="int8", calibration=dark)
    assert (made.input_scale, made.input_zero_point) == (1 / 128, 0)
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


def test_an_operator_that_stays_in_float_is_named() -> None:
    with pytest.raises(ToolchainError, match="HardSwish would run in float"):
        deploy(Activated(nn.Hardswish()), SHAPE, precision="int8", calibration=images(8))


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
