"""Quantisation-aware training: it rounds as what ships rounds, changes nothing else, and learns."""

import numpy as np
import pytest
import torch

from automcu_ray.core.training_recipe import Protocol
from automcu_ray.deploy.export import deploy
from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.cell import CellSpec
from automcu_ray.networks.cell_network import Skeleton
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from trainables.datasets.digits import digits
from trainables.training.augment import normalize
from trainables.training.loop import evaluate, predict, train
from trainables.training.qat import Rounded, _folded, _Grid, _WeightGrid
from trainables.training.trainer import Trainer

pytestmark = pytest.mark.training

DATA = digits()
EVERY_BLOCK = ArchitectureSpec.model_validate(
    {
        "backbone": [
            {"type": "conv", "out_channels": 8, "activation": "relu6"},
            {"type": "max_pool", "kernel_size": 2},
            {"type": "mbconv", "out_channels": 8, "expansion": 2, "se_ratio": 0.25},
            {"type": "ghost", "out_channels": 12},
            {"type": "residual", "out_channels": 12},
            {"type": "avg_pool", "kernel_size": 2},
        ]
    }
)

CELL = CellSpec.parse("|nor_conv_3x3~0|+|avg_pool_3x3~0|none~1|+|skip_connect~0|nor_conv_1x1~1|skip_connect~2|")


@pytest.fixture(scope="module")
def trained(digits_task: Task) -> Network:
    trainer = Trainer(digits_task, Protocol(epochs=1, batch_size=64), DATA.train, DATA.val)
    list(trainer.start(EVERY_BLOCK, seed=0))
    assert isinstance(trainer.network, Network)
    return trainer.network


def calibration() -> torch.Tensor:
    return normalize(torch.as_tensor(DATA.train.images[:256]))


def test_weights_lie_on_127_steps_a_side_of_their_own_channel() -> None:
    weights = torch.tensor([[1.27, 0.014, -0.016], [-127.0, 0.4, 0.6]])[:, :, None, None]
    expected = torch.tensor([[1.27, 0.01, -0.02], [-127.0, 0.0, 1.0]])[:, :, None, None]
    assert torch.allclose(_WeightGrid()(weights), expected, atol=1e-6)


def test_a_range_has_zero_in_it_and_256_steps_and_then_follows_slowly() -> None:
    grid = _Grid()
    grid(torch.tensor([1.0, 2.55]))  # 0 to 2.55: steps of 0.01
    assert (float(grid.low), float(grid.high)) == pytest.approx((0.0, 2.55))
    assert torch.allclose(grid.eval()(torch.tensor([1.004, 1.006])), torch.tensor([1.0, 1.01]))
    grid.train()
    grid(torch.tensor([-1.0, 3.55]))
    assert (float(grid.low), float(grid.high)) == pytest.approx((-0.01, 2.56))
    before = grid.eval().high.clone()
    assert float(grid(torch.tensor([99.0]))) == pytest.approx(2.56, abs=0.02), "cut at the end of the range"
    assert torch.equal(grid.high, before), "judging changes nothing"


def test_gradients_pass_what_was_rounded_and_stop_at_what_was_cut() -> None:
    grid = _Grid()
    grid(torch.tensor([0.0, 1.0]))
    values = torch.tensor([0.3333, 5.0], requires_grad=True)
    grid.eval()(values).sum().backward()
    assert values.grad is not None and values.grad.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("form", ["spec", "cell"])
def test_folding_batch_norms_changes_no_answer(form: str, digits_task: Task) -> None:
    torch.manual_seed(0)
    cells = digits_task.replace(form="cell", skeleton=Skeleton(channels=4, per_stage=1))
    network = Network(digits_task.graph(EVERY_BLOCK) if form == "spec" else cells.graph(CELL))
    assert ("norm" in {op.kind for op in network.graph.ops}) == (form == "cell"), "norms without a convolution as well"
    network.train()(calibration())
    for module in network.eval().modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias)
    folded, images = _folded(network), normalize(torch.as_tensor(DATA.val.images[:16]))
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in folded.modules())
    with torch.inference_mode():
        assert torch.allclose(folded(images), network(images), rtol=1e-3, atol=1e-4)


def test_rounded_in_training_answers_as_what_ships(digits_task: Task, trained: Network) -> None:
    rounded = Rounded(trained, calibration())
    shipped = deploy(trained, (1, 8, 8), precision="int8", calibration=DATA.train.images[:256])
    with torch.inference_mode():
        logits = rounded.eval()(normalize(torch.as_tensor(DATA.val.images))).numpy()
        as_float = trained.eval()(normalize(torch.as_tensor(DATA.val.images))).numpy()
    assert shipped.output_scale is not None and shipped.output_zero_point is not None
    given = (shipped.run(DATA.val.images).astype(np.float32) - shipped.output_zero_point) * shipped.output_scale
    far = np.abs(logits - given) / shipped.output_scale  # in steps of the output
    assert far.mean() < 1 and far.mean() < 0.5 * np.abs(as_float - given).mean() / shipped.output_scale
    assert np.mean(logits.argmax(1) == given.argmax(1)) > 0.97


def test_what_ships_after_training_is_what_was_scored(trained: Network) -> None:
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    rounded = Rounded(trained, calibration())
    start = evaluate(rounded, DATA.val, "cpu")
    recipe = Protocol(epochs=1, qat_epochs=4, batch_size=64, learning_rate=0.2).rounded
    *_, last = train(rounded, DATA.train, DATA.val, recipe, "cpu", seed=0)
    assert last.number == 4 and last.val_accuracy >= start
    scored = predict(rounded, DATA.val.images, "cpu")
    shipped = deploy(rounded.shipped(), (1, 8, 8), precision="int8", calibration=DATA.train.images[:256])
    assert np.mean(shipped.run(DATA.val.images).argmax(1) == scored) > 0.9, "ranges are calibrated again"
    assert all(torch.equal(before[name], value) for name, value in trained.state_dict().items()), "a copy was trained"
