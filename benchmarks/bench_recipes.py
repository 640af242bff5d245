"""Print what parts of a training recipe, and a larger teacher, add to a small network's accuracy on CIFAR-10.

    python benchmarks/bench_recipes.py [--epochs 15] [--seeds 0 1] [--recipes plain "distill 0.9"]

One network of 16,298 weights, in float, one thread, 8,500 images for training and 5,000 others that are part of the
training set, too: the test set is not read. The teacher has seen the same images, for 20 epochs, with seed 0.
"""

import argparse
import statistics
import time
from typing import Any

import torch
from bench_training import NETWORKS
from torch import nn

from automcu_ray.core.training_recipe import Protocol
from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.lowering import lower
from automcu_ray.networks.spec import ArchitectureSpec
from trainables.datasets.base import Split
from trainables.datasets.parquet_images import parquet_images
from trainables.training.loop import evaluate, train_scored_by

STUDENT = NETWORKS["depthwise"]
TEACHER: list[dict[str, Any]] = [
    {"type": "conv", "out_channels": 24},
    {"type": "residual", "out_channels": 24},
    {"type": "residual", "out_channels": 64, "stride": 2},
    {"type": "residual", "out_channels": 128, "stride": 2},
]
TEACHER_EPOCHS = 20
PLAIN = Protocol(epochs=15, batch_size=64, learning_rate=0.1, crop_padding_px=4, flip=True)
RECIPES: dict[str, dict[str, float]] = {
    "plain": {},
    "distill 0.5": {"distill": 0.5},
    "distill 0.9": {"distill": 0.9},
    "ema_decay 0.99": {"ema_decay": 0.99},
    "label_smoothing 0.1": {"label_smoothing": 0.1},
    "mixup 0.2": {"mixup": 0.2},
    "cutmix 1": {"cutmix": 1.0},
}


def trained(
    layers: list[dict[str, Any]], split: Split, protocol: Protocol, seed: int, teacher: nn.Module | None = None
) -> Network:
    """Return a network of these layers, trained."""
    torch.manual_seed(seed)
    network = Network(lower(ArchitectureSpec.model_validate({"backbone": layers}), (3, 32, 32), 10))
    layout = torch.channels_last
    list(train_scored_by(lambda: 0.0, network, split, protocol, "cpu", seed, layout=layout, teacher=teacher))
    return network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=PLAIN.epochs)
    parser.add_argument("--images", type=int, default=8_500, help="of training")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = parquet_images(folder="cifar10", max_train=18_000, max_test=100, val_share=0.3)
    split = Split(data.train.images[: options.images], data.train.labels[: options.images])
    others = Split(data.val.images[:5_000], data.val.labels[:5_000])
    plain, teacher = PLAIN.replace(epochs=options.epochs), None
    if any("distill" in RECIPES[name] for name in options.recipes):
        teacher = trained(TEACHER, split, PLAIN.replace(epochs=TEACHER_EPOCHS), 0)
        print(f"teacher: {evaluate(teacher, others, 'cpu'):.2%}", flush=True)
    for name in options.recipes:
        changes, accuracies, started_s = RECIPES[name], [], time.perf_counter()
        for seed in options.seeds:
            protocol = plain.replace(**changes)
            network = trained(STUDENT, split, protocol, seed, teacher if "distill" in changes else None)
            accuracies.append(evaluate(network, others, "cpu"))
        each = ", ".join(f"{accuracy:.2%}" for accuracy in accuracies)
        seconds = (time.perf_counter() - started_s) / len(options.seeds)
        print(f"{name}: {statistics.mean(accuracies):.2%} ({each}), {seconds:.0f} s each", flush=True)


if __name__ == "__main__":
    main()
