"""The official files: small ones, made by the benchmark's own packages; none of the gigabytes."""

import bz2
import os
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from automcu_ray.core.errors import ConfigError, ToolMissingError
from automcu_ray.networks.cell import OPERATIONS, CellSpec
from trainables.datasets.nasbench201 import load
from trainables.datasets.nasbench201_file import official_table

CELLS = [CellSpec(operations=(name,) * 6) for name in OPERATIONS[1:]]
SETS = {"cifar10-valid": ["x-valid"], "cifar10": ["ori-test"], "cifar100": ["x-valid", "x-test"]}
SETS["ImageNet16-120"] = SETS["cifar100"]
EPOCHS = 2


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOMCU_CACHE", str(tmp_path / "cache"))


def results(package: Any, index: int, cell: CellSpec, base: float) -> dict[str, Any]:
    """What the package writes about a cell: seed 777 gives `base` in the last epoch, seed 888 two percent more."""
    found = package.ArchResults(index, str(cell))
    for at, (dataset, splits) in enumerate(SETS.items()):
        for seed in (777, 888):
            config = {"channel": 16, "num_cells": 5, "arch_str": str(cell), "class_num": 10}
            weights = {"weight": torch.zeros(2)} if package.__name__ == "nas_201_api" else None
            train = dict.fromkeys(range(EPOCHS), 3.0)
            one = package.ResultsCount(dataset, weights, train, train, 0.1, np.float64(15.6), config, seed, EPOCHS, [1])
            accuracy = {
                f"{split}@{epoch}": np.float64(base + at + 0.25 * (split == "x-test") + 2 * (seed == 888))
                if epoch == EPOCHS - 1
                else 1.0
                for split in splits
                for epoch in range(EPOCHS)
            }
            one.update_eval(accuracy, accuracy, dict.fromkeys(accuracy, 1.0))
            found.update(dataset, seed, one)
    state: dict[str, Any] = found.state_dict()
    return state


def write_pth(path: Path) -> None:
    package = pytest.importorskip("nas_201_api", reason="needs nas-bench-201: pip install nas-bench-201")
    infos = {
        index: {"full": results(package, index, cell, 50.0 + index), "less": results(package, index, cell, 20.0)}
        for index, cell in enumerate(CELLS)
    }
    content = {"meta_archs": [str(cell) for cell in CELLS], "arch2infos": infos, "evaluated_indexes": set(infos)}
    package.NASBench201API(content, verbose=False)  # the package takes it for its own
    torch.save(content, path)


def write_folder(folder: Path) -> None:
    package = pytest.importorskip("nats_bench", reason="needs nats_bench: pip install 'automcu-ray[nasbench]'")
    folder.mkdir()
    package.pickle_save({"meta_archs": [str(cell) for cell in CELLS]}, folder / "meta.pickle")
    for index, cell in enumerate(CELLS):
        both = {"12": results(package, index, cell, 20.0), "200": results(package, index, cell, 50.0 + index)}
        package.pickle_save(both, folder / f"{index:06d}.pickle")
    api = package.create(str(folder), "tss", fast_mode=True, verbose=False)
    assert api.get_more_info(1, "cifar100", hp="200", is_random=False)["test-accuracy"] == 54.25


@pytest.mark.parametrize(("name", "write"), [("NAS-Bench-201.pth", write_pth), ("NATS-tss-simple", write_folder)])
def test_an_official_file_gives_the_means_over_seeds_of_the_long_training(
    name: str, write: Any, tmp_path: Path
) -> None:
    pytest.importorskip("nats_bench", reason="needs nats_bench: pip install 'automcu-ray[nasbench]'")
    write(tmp_path / name)
    table = load(table="cifar10", file=str(tmp_path / name))
    assert (table.val_accuracy(CELLS[1]), table.test_accuracy(CELLS[1])) == (0.52, 0.53)  # 51 and 53; 52 and 54
    table = load(table="cifar100", file=str(tmp_path / name))
    assert (table.val_accuracy(CELLS[0]), table.test_accuracy(CELLS[0])) == pytest.approx((0.53, 0.5325))
    table = load(table="imagenet16", file=str(tmp_path / name))
    assert len(table.val) == 4
    assert table.test_accuracy(CELLS[3]) == pytest.approx(0.5725)


def test_the_second_time_the_file_is_not_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nats_bench", reason="needs nats_bench: pip install 'automcu-ray[nasbench]'")
    write_folder(tmp_path / "NATS")
    first = official_table(tmp_path / "NATS", trust=False)
    monkeypatch.setitem(sys.modules, "nats_bench", None)
    assert official_table(tmp_path / "NATS", trust=False) == first


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.witness),)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> None:
    package = SimpleNamespace(ArchResults=SimpleNamespace(create_from_state_dict=dict))
    monkeypatch.setitem(sys.modules, "nats_bench", package)


@pytest.mark.parametrize("name", ["evil.pth", "evil.pickle.pbz2"])
def test_a_program_in_a_pickle_runs_only_if_the_file_is_trusted(name: str, reader: None, tmp_path: Path) -> None:
    path, witness = tmp_path / name, tmp_path / "witness"
    content = {"meta_archs": [Evil(witness)], "arch2infos": {}}
    if path.suffix == ".pth":
        torch.save(content, path)
    else:
        path.write_bytes(bz2.compress(pickle.dumps(content)))
    with pytest.raises(ConfigError, match="trust_file=true"):
        official_table(path, trust=False)
    assert not witness.exists()
    with pytest.raises(ConfigError, match="not NAS-Bench-201"):
        official_table(path, trust=True)
    assert witness.exists()


@pytest.mark.parametrize("content", [b"", b"no pickle at all", bz2.compress(pickle.dumps([1, 2]))])
@pytest.mark.parametrize("name", ["a.pth", "a.pickle.pbz2"])
def test_rubbish_is_one_error_and_leaves_no_table(name: str, content: bytes, reader: None, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=r"dataset\.file"):
        official_table(tmp_path / name, trust=False)
    assert not (tmp_path / "cache").exists()


def test_without_the_package_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nats_bench", None)
    (tmp_path / "a.pth").write_bytes(b"x")
    with pytest.raises(ToolMissingError, match=r"\[nasbench\]"):
        official_table(tmp_path / "a.pth", trust=False)
