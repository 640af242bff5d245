"""Print Flash and instructions of int8 networks whose C is optimised for speed and for size, by target.

    python benchmarks/bench_forms.py          # about two minutes

Two networks of the tests, and random ones of the search space that are trained a little.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.runtime.config import CONFIGS, read_yaml
from automcu_ray.testing.networks import deployed_network
from backends.boards.qemu import QemuBoard
from backends.c_qemu.backend import CQemuBackend, Optimise

sys.path.append(str(Path(__file__).parents[1]))
from tests.backends.random_networks import trained_network

TARGETS = ("stm32f405", "stm32f103", "rp2040", "ensemble_e8_hp")
FORMS: tuple[Optimise, Optimise] = ("speed", "size")


def networks() -> Iterator[tuple[str, DeployedNetwork]]:
    """Yield networks by name."""
    for name in ("plain", "attention"):
        yield name, deployed_network(name, "int8")
    for seed in (0, 1, 14):
        yield f"random 1x8x8, {seed}", trained_network((1, 8, 8), seed, max_macs=100_000)
    for seed in (3, 17):
        yield f"random 3x32x32, {seed}", trained_network((3, 32, 32), seed, max_macs=600_000)


def main() -> None:
    """Print a line for each target and network."""
    every = list(networks())
    for name in TARGETS:
        target = McuTarget.model_validate(read_yaml(CONFIGS / "target" / f"{name}.yaml"))
        print(f"{name} ({target.core}): Flash at speed, at size; instructions at speed, at size, ratio")
        for network, made in every:
            flash, counted = [], []
            for form in FORMS:
                with tempfile.TemporaryDirectory(prefix="automcu-forms-") as folder:
                    firmware = CQemuBackend(optimise=form).build(made, target, Constraints(), Path(folder))
                    assert firmware.board_elf is not None, "these networks fit, and the targets have an emulator"
                    image = np.zeros((1, *made.input_shape), np.uint8)
                    inputs, classes = made.encode(image), made.num_classes
                    run = QemuBoard().run(
                        firmware.board_elf, target, inputs, output_dtype=np.dtype(np.int8), output_count=classes
                    )
                    flash.append(firmware.report.flash_bytes or 0)
                    counted.append(run.instructions or 0)
            ratio = counted[1] / counted[0]
            print(f"  {network:20} {flash[0]:6} {flash[1]:6}   {counted[0]:9} {counted[1]:9} {ratio:5.1f}", flush=True)


if __name__ == "__main__":
    main()
