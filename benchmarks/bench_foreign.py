"""How many networks of a public collection become int8 C, and whether its bits are onnxruntime's.

    pip download --no-deps nn-dataset==2.1.2
    python benchmarks/bench_foreign.py nn_dataset-2.1.2-py3-none-any.whl          # 95 networks, about ten minutes
    python benchmarks/bench_foreign.py nn_dataset-2.1.2-py3-none-any.whl --trained data/cifar10    # twenty

The networks of PyPI's nn-dataset that language models wrote (files `rag*` and `rl*`), a sample by `--seed`: 3x32x32 to
ten classes, random weights, BatchNorm shifts drawn; with `--trained` up to a hundred batches of CIFAR-10 (its Parquet
files) have shaped weights, BatchNorm statistics and so all activations. Each runs in a process of its own in
bubblewrap: no connection, and nothing to write to but its own /tmp. The C is compiled for this computer.
"""

import argparse
import logging
import subprocess
import sys
import tempfile
import time
import types
import warnings
import zipfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from automcu_ray.deploy.export import deploy
from automcu_ray.deploy.tracing import shift_norms
from backends.c_qemu.cgen import generate
from trainables.datasets.published import cifar10

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tests.backends.host import run_on_host

ROOT = Path(__file__).resolve().parents[1]
SHAPE, CLASSES, SECONDS = (3, 32, 32), 10, 300
BATCH, TRAIN_CPU_S = 32, 15.0
TRAIN, CALIBRATE, JUDGE, COMPARED = 3200, 64, 256, 32  # images; all of training once at most
SANDBOX = (
    "bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --chdir /tmp --unshare-all --die-with-parent".split()
)


class _Settings(dict[str, float]):
    """What a network's author tuned: a tenth, whatever it is called."""

    def __missing__(self, name: str) -> float:
        return 0.1


def one(package: Path, name: str, data: Path | None) -> str:
    """Return what becomes of a network, in a word and a reason; `data` are images to train it on."""
    code = zipfile.ZipFile(package).read(name).decode()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    stage, module, about = "build", types.ModuleType("network"), ""
    try:
        exec(compile(code, name, "exec"), module.__dict__)
        network: Any = module.Net((1, *SHAPE), (CLASSES,), _Settings(), torch.device("cpu")).eval()
        shift_norms(network)
        stage = "forward"
        with torch.no_grad():
            assert tuple(network(torch.zeros(2, *SHAPE)).shape) == (2, CLASSES), "another shape than (2, classes)"
        images: npt.NDArray[np.uint8] = np.random.default_rng(1).integers(0, 256, (8, *SHAPE), dtype=np.uint8)
        compared = images[:3]
        if data is not None:
            stage, real = "training", np.load(data)
            images, compared = real["train"][:CALIBRATE], real["val"][:COMPARED]
            about = f", {_train(network, real)}"
        stage = "int8"
        made = deploy(network, SHAPE, precision="int8", calibration=images)
        if data is not None:
            about += f", {_accuracy(made.run(real['val']), real['val_labels']):.1f} % at int8"
        stage = "C"
        generate(made)
        with tempfile.TemporaryDirectory() as folder:
            equal = np.array_equal(run_on_host(made, compared, Path(folder)), made.run(compared))
        return ("bit-equal" if equal else "other bits") + about.replace(", ", ": ", 1)
    except Exception as error:  # of a stranger's code
        return f"{stage}: {type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:160]}{about}"


def _train(network: Any, real: Any) -> str:
    """Train a network in place for a few batches, and say how many, and what it learnt."""
    batches = zip(_batches(real["train"]), _batches(real["train_labels"]), strict=True)
    optimizer, losses, until = torch.optim.Adam(network.parameters(), 1e-3), [], time.process_time() + TRAIN_CPU_S
    network.train()
    for images, labels in batches:
        loss = torch.nn.functional.cross_entropy(network(_values(images)), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 3)
        optimizer.step()
        losses.append(loss.item())
        if time.process_time() > until:
            break
    network.eval()
    with torch.no_grad():
        logits = torch.cat([network(_values(images)) for images in _batches(real["val"])])
    assert torch.isfinite(logits).all(), f"not finite after {len(losses)} batches"
    right = _accuracy(logits.numpy(), real["val_labels"])
    return f"{len(losses)} batches, loss {losses[0]:.2f} to {np.mean(losses[-5:]):.2f}, {right:.1f} % in float"


def _batches(array: npt.NDArray[Any]) -> list[torch.Tensor]:
    return [torch.from_numpy(array[start : start + BATCH]) for start in range(0, len(array), BATCH)]


def _values(images: torch.Tensor) -> torch.Tensor:
    """Return pixels as networks here see them, so that no layer is put in front."""
    return (images.float() - 128) / 128


def _accuracy(logits: npt.NDArray[Any], labels: npt.NDArray[np.int64]) -> float:
    return 100 * float((logits.argmax(1) == labels).mean())


def _save_images(folder: str, path: Path) -> None:
    data = cifar10(folder=folder, max_train=2 * TRAIN)
    np.savez(
        path,
        train=data.train.images[:TRAIN],
        train_labels=data.train.labels[:TRAIN],
        val=data.val.images[:JUDGE],
        val_labels=data.val.labels[:JUDGE],
    )


def main() -> None:
    """Print a line for each network, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("--count", type=int, default=95)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trained", type=Path, help="a folder with CIFAR-10's Parquet files to train on")
    parser.add_argument("--part", default="1/1", help="2/8: the second eighth of the sample")
    parser.add_argument("--one", help="try this file alone, in this process; --trained is then what a run has saved")
    given = parser.parse_args()
    if given.one:
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        print(one(given.package, given.one, given.trained))
        return
    every = zipfile.ZipFile(given.package).namelist()
    written = sorted(
        name for name in every if name.startswith("ab/nn/nn/r") and Path(name).name.startswith(("rag", "rl"))
    )
    part, parts = map(int, given.part.split("/"))
    package, found = str(given.package.resolve()), Counter[str]()
    with tempfile.NamedTemporaryFile(suffix=".npz") as images:
        files, options = [package], list[str]()
        if given.trained:
            _save_images(str(given.trained.resolve()), Path(images.name))
            files.append(images.name)
            options = ["--trained", images.name]
        seen = [word for file in files for word in ("--ro-bind", file, file)]
        for name in Random(given.seed).sample(written, given.count)[part - 1 :: parts]:
            argv = [*SANDBOX, *seen, sys.executable, str(Path(__file__).resolve()), package, "--one", name, *options]
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
