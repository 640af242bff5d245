"""Random networks on the emulated board, all cores and both forms of C: are the bits onnxruntime's?

    python benchmarks/bench_bits.py --specs 170        # for each core: 1,020 networks, half an hour of one core
    python benchmarks/bench_bits.py --specs 10 --core cortex-m55d
    python benchmarks/bench_bits.py --seed 200         # other networks than the usual, so that counts add up

Weights are random. 25 networks are linked into one firmware, and each sees noise, flat images and dots.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from bench_instructions import BATCH, MACHINES, compiled, emulated, linked, random_networks

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.networks.graph import Shape
from automcu_ray.problem.target import Core
from backends.boards.qemu import QemuBoard
from backends.c_qemu.backend import CQemuBackend
from backends.c_qemu.cgen import generate
from backends.c_qemu.form import CODE_NOTES, USUAL, Form

SHAPES: tuple[Shape, ...] = ((1, 8, 8), (3, 32, 32), (3, 13, 9), (6, 1, 64))
FORMS = {"fast": USUAL, **{code: Form(code) for code in CODE_NOTES}}
IMAGES = 6


def images(shape: Shape) -> npt.NDArray[np.uint8]:
    """Return noise, black and white dots, and flat ones."""
    rng = np.random.default_rng(2)
    made = rng.integers(0, 256, (IMAGES, *shape), dtype=np.uint8)
    made[1::3] = rng.choice(np.array([0, 255], np.uint8), made[1::3].shape)
    made[2::3] = rng.integers(0, 256, (*made[2::3].shape[:2], 1, 1))
    return made


def compare(networks: Sequence[DeployedNetwork], core: Core, form: Form) -> tuple[int, int, int, int]:
    """Return how many networks and outputs were compared, how many differ, how many networks answer all alike."""
    target, backend = emulated(core), CQemuBackend()
    objects, calls, wanted = [], [], []
    batch, at = images(networks[0].input_shape), 0
    with tempfile.TemporaryDirectory(prefix="automcu-bits-") as folder:
        for number, deployed in enumerate(networks):
            try:
                code = generate(deployed, core, form=form)
            except ToolchainError as error:
                print("not generated:", error)
                continue
            objects.append(compiled(backend, target, f"net_{number}", code.source, Path(folder)))
            calls.append(f"    net_{number}(input, (char *)output + {at});")
            wanted.append(deployed.run(batch))
            at += -(-code.output_bytes // 8) * 8
        elf = linked(backend, target, calls, objects, int(np.prod(batch.shape[1:])), at, Path(folder))
        run = QemuBoard().run(elf, target, networks[0].encode(batch), output_dtype=np.dtype(np.int8), output_count=at)
    found = run.outputs.reshape(len(batch), len(wanted), -1)
    outputs = np.stack(wanted, axis=1)
    differing = int((found[:, :, : outputs.shape[2]] != outputs).sum())
    blind = sum(len(np.unique(each, axis=0)) == 1 for each in wanted)
    return len(wanted), outputs.size, differing, blind


def main() -> None:
    """Print a line for each core and form."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--specs", type=int, default=20, help="for each core, of all shapes together")
    parser.add_argument("--core", action="append", choices=list(MACHINES), help="default: all")
    parser.add_argument("--seed", type=int, default=100, help="of the first core's networks; the others' follow")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'core':14} {'form':5} networks  outputs  differ  that answer all images alike")
    for seed, core in enumerate(MACHINES, start=given.seed):
        if given.core and core not in given.core:
            continue
        each = -(-given.specs // len(SHAPES))
        drawn = [[made for _, made in random_networks(shape, each, seed)] for shape in SHAPES]
        parts = [of[start : start + BATCH] for of in drawn for start in range(0, len(of), BATCH)]
        for name, form in FORMS.items():
            networks, outputs, differ, blind = np.sum([compare(part, core, form) for part in parts], axis=0)
            print(f"{core:14} {name:5} {networks:8} {outputs:8} {differ:7} {blind:6}", flush=True)


if __name__ == "__main__":
    main()
