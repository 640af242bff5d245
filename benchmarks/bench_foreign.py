"""How many networks of a public collection become int8 C, and whether its bits are onnxruntime's.

    pip download --no-deps nn-dataset==2.1.2
    python benchmarks/bench_foreign.py nn_dataset-2.1.2-py3-none-any.whl          # 95 networks, about ten minutes

The networks of PyPI's nn-dataset that language models wrote (files `rag*` and `rl*`), a sample by `--seed`: 3x32x32 to
ten classes, random weights, BatchNorm shifts drawn. Each runs in a process of its own in bubblewrap: no connection, and
nothing to write to but its own /tmp. The C is compiled for this computer.
"""

import argparse
import logging
import subprocess
import sys
import tempfile
import types
import warnings
import zipfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from automcu_ray.deploy.export import deploy
from automcu_ray.deploy.tracing import shift_norms
from backends.c_qemu.cgen import generate

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tests.backends.host import run_on_host

ROOT = Path(__file__).resolve().parents[1]
SHAPE, CLASSES, SECONDS = (3, 32, 32), 10, 300
SANDBOX = (
    "bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --chdir /tmp --unshare-all --die-with-parent".split()
)


class _Settings(dict[str, float]):
    """What a network's author tuned: a tenth, whatever it is called."""

    def __missing__(self, name: str) -> float:
        return 0.1


def one(package: Path, name: str) -> str:
    """Return what becomes of a network, in a word and a reason."""
    code = zipfile.ZipFile(package).read(name).decode()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    stage, module = "build", types.ModuleType("network")
    try:
        exec(compile(code, name, "exec"), module.__dict__)
        network: Any = module.Net((1, *SHAPE), (CLASSES,), _Settings(), torch.device("cpu")).eval()
        shift_norms(network)
        stage = "forward"
        with torch.no_grad():
            assert tuple(network(torch.zeros(2, *SHAPE)).shape) == (2, CLASSES), "another shape than (2, classes)"
        stage, images = "int8", np.random.default_rng(1).integers(0, 256, (8, *SHAPE), dtype=np.uint8)
        made = deploy(network, SHAPE, precision="int8", calibration=images)
        stage = "C"
        generate(made)
        with tempfile.TemporaryDirectory() as folder:
            equal = np.array_equal(run_on_host(made, images[:3], Path(folder)), made.run(images[:3]))
        return "bit-equal" if equal else "other bits"
    except Exception as error:  # of a stranger's code
        return f"{stage}: {type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:160]}"


def main() -> None:
    """Print a line for each network, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("--count", type=int, default=95)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", help="try this file alone, in this process")
    given = parser.parse_args()
    if given.one:
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        print(one(given.package, given.one))
        return
    every = zipfile.ZipFile(given.package).namelist()
    written = sorted(
        name for name in every if name.startswith("ab/nn/nn/r") and Path(name).name.startswith(("rag", "rl"))
    )
    found: Counter[str] = Counter()
    for name in Random(given.seed).sample(written, given.count):
        package = str(given.package.resolve())
        argv = [*SANDBOX, "--ro-bind", package, package, sys.executable, str(Path(__file__).resolve()), package]
        argv += ["--one", name]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT)
            said = (done.stdout.strip().splitlines() or [f"crash: {done.returncode}"])[-1]
        except subprocess.TimeoutExpired:
            said = f"time: more than {SECONDS} s"
        found[said.split(":")[0]] += 1
        print(f"{Path(name).name}  {said}", flush=True)
    print(dict(found.most_common()))


if __name__ == "__main__":
    main()
