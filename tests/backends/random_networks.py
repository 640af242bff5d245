"""Random networks of the search space after a few steps of training, and images to feed them."""

from random import Random

import numpy as np
import numpy.typing as npt
import torch

from automcu_ray.deploy.export import DeployedNetwork, deploy, normalize
from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.graph import Shape
from automcu_ray.networks.search_space import Space
from trainables.datasets.digits import digits

CLASSES = 10


def images(shape: Shape, count: int, seed: int) -> npt.NDArray[np.uint8]:
    """Return `count` images: noise, flat ones, black and white dots, and as many real digits, enlarged to `shape`."""
    rng = np.random.default_rng(seed)
    made = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
    made[1::8] = rng.integers(0, 256, (*made[1::8].shape[:2], 1, 1))
    made[3::8] = rng.choice(np.array([0, 255], np.uint8), made[3::8].shape)
    real = rng.permutation(digits().train.images)[: len(made[::2])]
    if shape[1] == 1:  # a signal of 64 samples
        larger = real.reshape(-1, 1, 1, 64)
    else:
        larger = real.repeat(shape[1] // 8, axis=2).repeat(shape[2] // 8, axis=3)
    made[: 2 * len(larger) : 2] = larger  # one channel fills all
    return made


def trained_network(shape: Shape, seed: int, *, max_macs: int, steps: int = 4) -> DeployedNetwork:
    """Return a random int8 network of at most `max_macs`, whose weights and statistics training has moved."""
    rng, space = Random(seed), Space(input_shape=shape, num_classes=CLASSES)
    graphs = (space.graph(spec) for spec in iter(lambda: space.sample(rng).spec, None) if spec is not None)
    graph = next(graph for graph in graphs if sum(op.macs for op in graph.ops) <= max_macs)
    torch.manual_seed(seed)
    network = Network(graph)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        inputs = torch.from_numpy(normalize(images(shape, 32, 1000 * seed + step)))
        loss = torch.nn.functional.cross_entropy(network(inputs), torch.randint(CLASSES, (32,)))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return deploy(network.eval(), shape, precision="int8", calibration=images(shape, 64, seed))
