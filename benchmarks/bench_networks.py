"""Print Flash, RAM and instructions of whole int8 networks: C for speed, for size, and emx-onnx-cgen's; in QEMU.

C for speed is shown twice: with as small an arena as can be, and with one that takes what the board's RAM leaves.

    python benchmarks/bench_networks.py                    # about five minutes
    python benchmarks/bench_networks.py stm32f405 winner   # one target, networks with that in their names

Two networks of the tests, random ones of the search space that are trained a little, and with random weights winners
of searches: the default one for digits, and two for CIFAR-10 (known by their parameters and multiply-accumulates,
BENCHMARKS.md: 47,434 and 9.2 million, 44,414 and 7.8). Flash is of the whole firmware; of emx-onnx-cgen's C
instructions alone are shown.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from bench_kernels import MACHINES, run_c

from automcu_ray.deploy.export import DeployedNetwork, deploy
from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks import notation
from automcu_ray.networks.graph import Shape
from automcu_ray.networks.search_space import Space
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.runtime.config_files import CONFIGS, read_yaml
from automcu_ray.testing.networks import deployed_network
from backends.boards.qemu import QemuBoard
from backends.c_qemu.backend import CQemuBackend
from backends.c_qemu.choice import Arena, Optimise
from backends.c_qemu.emx import generate_float

sys.path.append(str(Path(__file__).parents[1]))
from tests.backends.random_networks import images, trained_network

TARGETS = ("stm32f405", "stm32f103", "rp2040", "ensemble_e8_hp")
FORMS: tuple[tuple[Optimise, Arena], ...] = (("speed", "least"), ("speed", "fast"), ("size", "least"))
COLOUR = (3, 32, 32)
WINNERS: dict[str, tuple[Shape, str]] = {  # of searches
    "winner 1x8x8, 0": ((1, 8, 8), "c110 b110e0.5"),
    "winner 3x32x32, 0": (COLOUR, "c38s2 mb38 mb38 mb76s2"),
    "winner 3x32x32, 1": (COLOUR, "c34s2 mb34 mb34 mb34s2 mb34"),
}


def networks(wanted: str) -> Iterator[tuple[str, DeployedNetwork]]:
    """Yield networks by name."""
    names = ["plain", "attention", "random 1x8x8, 0", "random 1x8x8, 1", "random 1x8x8, 14"]
    for name in [*names, "random 3x32x32, 3", "random 3x32x32, 17", *WINNERS]:
        if wanted not in name:
            continue
        if name.startswith("random"):
            shape, seed = (COLOUR if "32" in name else (1, 8, 8)), int(name.rsplit(" ", 1)[1])
            yield name, trained_network(shape, seed, max_macs=600_000 if shape == COLOUR else 100_000)
        elif name in WINNERS:
            shape, line = WINNERS[name]
            network = Network(Space(input_shape=shape, num_classes=10).graph(notation.read(line))).eval()
            yield name, deploy(network, shape, precision="int8", calibration=images(shape, 64, 0))
        else:
            yield name, deployed_network(name, "int8")


class Measured(NamedTuple):
    """Bytes, and the instructions for one image; 0 where it does not fit the board."""

    flash: int
    ram: int
    instructions: int


def measured(made: DeployedNetwork, target: McuTarget, optimise: Optimise, arena: Arena) -> Measured:
    """Return what a network's firmware takes."""
    with tempfile.TemporaryDirectory(prefix="automcu-networks-") as folder:
        firmware = CQemuBackend(optimise=optimise, arena=arena).build(made, target, Constraints(), Path(folder))
        sizes = firmware.report.flash_bytes or 0, firmware.report.ram_bytes or 0
        if firmware.board_elf is None:
            return Measured(*sizes, 0)
        image = made.encode(np.zeros((1, *made.input_shape), np.uint8))
        ends = (np.dtype(np.int8), made.num_classes)
        run = QemuBoard().run(firmware.board_elf, target, image, output_dtype=ends[0], output_count=ends[1])
        return Measured(*sizes, run.instructions or 0)


def main() -> None:
    """Print a table for each target, and a line in it for each network."""
    chosen = [name for name in TARGETS if name in sys.argv[1:]] or list(TARGETS)
    wanted = next((word for word in sys.argv[1:] if word not in TARGETS), "")
    every = list(networks(wanted))
    for name in chosen:
        target = McuTarget.model_validate(read_yaml(CONFIGS / "target" / f"{name}.yaml"))
        print(f"{name} ({target.core})")
        print(f"  {'':20}  Flash at speed, size    RAM least, fast   instructions   ratios: fast  size   emx")
        for network, made in every:
            speed, fast, small = (measured(made, target, *form) for form in FORMS)
            sizes = f"{speed.flash:14} {small.flash:7} {speed.ram:10} {fast.ram:7}"
            if not speed.instructions:
                print(f"  {network:20} {sizes}   does not fit this board", flush=True)
                continue
            image = made.encode(np.zeros((2, *made.input_shape), np.uint8))
            other = 0
            if target.core in MACHINES:
                other = run_c(target.core, generate_float(made).source, made.num_classes, image)[0].instructions
            ratios = (count / speed.instructions for count in (fast.instructions, small.instructions, other))
            shown = " ".join(f"{ratio:6.2f}" for ratio in ratios)
            print(f"  {network:20} {sizes} {speed.instructions:14}         {shown}", flush=True)


if __name__ == "__main__":
    main()
