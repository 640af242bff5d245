"""What the tests of ai8x share: targets, tasks, and networks with statistics as after training."""

from typing import Any

import numpy as np
import torch

from automcu_ray.deploy.export import DeployedNetwork, deploy
from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.graph import Graph
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config_files import CONFIGS, read_yaml

Shape = tuple[int, int, int]


def read_target(name: str = "max78000", **changes: Any) -> McuTarget:
    """Return a target; `changes` multiply limits of its accelerator, memories as a whole and by part."""
    data = read_yaml(CONFIGS / "target" / f"{name}.yaml")
    for field, factor in changes.items():
        limits = data["accelerator"][field]
        for key in {"value", "total_bytes", "part_bytes"} & set(limits):
            limits[key] *= factor
    return McuTarget.model_validate(data)


def make_task(shape: Shape = (3, 16, 16), target: str = "max78000", flash_kb: float | None = None) -> Task:
    limits = Constraints(flash_kb=flash_kb)
    return Task(dataset="noise", input_shape=shape, num_classes=10, target=read_target(target), constraints=limits)


def conv(out_channels: int, **fields: Any) -> dict[str, Any]:
    return {"type": "conv", "out_channels": out_channels, **fields}


def make_graph(layers: list[dict[str, Any]], shape: Shape = (3, 16, 16), target: str = "max78000") -> Graph:
    return make_task(shape, target).space.graph(ArchitectureSpec.model_validate({"backbone": layers}))


def images(shape: Shape, count: int = 32) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)


def deploy_graph(graph: Graph) -> DeployedNetwork:
    """Return a network with random weights, and batch norms that have seen the images and shift a little."""
    torch.manual_seed(0)
    network = Network(graph)
    seen = images(graph.input_shape)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
            torch.nn.init.normal_(module.bias, std=0.2)
    with torch.no_grad():
        network.train()(torch.from_numpy((seen.astype(np.float32) - 128) / 128))
    return deploy(network.eval(), graph.input_shape, precision="int8", calibration=seen)
