"""What people use in networks: at int8 it is near the float network, and the C gives onnxruntime's bits."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import deploy, normalize
from automcu_ray.testing.networks import images
from backends.c_qemu.cgen import generate
from tests.backends.host import run_on_host
from tests.backends.operator_networks import FUNCTIONS, NETWORKS, REFUSED, SHAPE

DAILY = (  # one for each way in which an operator becomes C; the others are slow
    "gelu hardswish where float PReLU LayerNorm GroupNorm ChannelShuffle ReflectionPad2d MaxPool1d tokens gate sub "
    "flip repeat",
    "PReLU by channel|BatchNorm1d behind Linear|ConvTranspose2d 3, 2|Upsample by size|AdaptiveAvgPool2d 5 of 12",
    "ConstantPad2d|ZeroPad2d and Conv2d|mean of channels|amax of channels|slice of every second|Linear of tokens",
    "softmax|division of two|maximum of two|cumsum|einsum of rows|class token|shifted windows|matrix by head",
    "TransformerEncoderLayer, norm first|LayerNorm of a LayerNorm|MultiheadAttention, tokens first",
)
JUMPS = ("floor",)  # what int8 rounds across a jump is a whole step off, and zero, where one jump is, is never between
daily = {*DAILY[0].split(), *"|".join(DAILY[1:]).split("|")}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in daily else pytest.mark.slow) for name in NETWORKS]
)
def test_it_is_near_the_float_network_and_bit_equal_in_c(name: str, host_gcc: None, tmp_path: Path) -> None:
    torch.manual_seed(3)
    network = NETWORKS[name]().eval()
    batch = images(48, 1)
    made = deploy(network, SHAPE, precision="int8", calibration=batch)
    found = made.run(batch)
    assert np.array_equal(run_on_host(made, batch, tmp_path), found)
    assert len(np.unique(found, axis=0)) > 20
    with torch.no_grad():
        wanted = network(torch.from_numpy(normalize(batch))).numpy()
    real = (found.astype(np.float32) - (made.output_zero_point or 0)) * (made.output_scale or 0)
    assert np.abs(real - wanted).mean() < (0.035 if name in JUMPS else 0.03) * wanted.std()


def test_daily_ones_exist() -> None:
    assert daily <= set(NETWORKS) and len(FUNCTIONS) > 40


@pytest.mark.parametrize(("name", "words"), [(name, words) for name, (_, words) in REFUSED.items()])
def test_what_has_no_int8_form_is_refused_by_its_name(name: str, words: str) -> None:
    network: nn.Module = REFUSED[name][0]()
    with pytest.raises(ToolchainError, match=words):
        generate(deploy(network.eval(), SHAPE, precision="int8", calibration=images(8)))
