"""`automcu deploy`: a network of the user's own, from its file to a bundle whose firmware gives the same bits."""

import json
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import nn

from automcu_ray.commands.main import main
from automcu_ray.records.events import Brought
from automcu_ray.records.journal import Repository

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("qemu")]
CODE = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8 * 64, 10)

    def forward(self, x):
        return self.head(self.stem(x).flatten(1))
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A network for digits that takes pixels from 0 to 1, as its author exported it: random but for its seed."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            nn.Sequential(network, nn.Softmax(1)).eval(),
            (torch.zeros(1, 1, 8, 8),),
            str(tmp_path / "model.onnx"),
            dynamo=False,
            opset_version=13,
        )
    return tmp_path / "model.onnx"


def deploy(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> int:
    """Type the command in a folder; return its exit status."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("AUTOMCU_CACHE", str(folder / "cache"))
    monkeypatch.setattr(sys, "argv", ["automcu", "deploy", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def test_an_onnx_file_ends_in_a_bundle_that_gives_its_bits(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy(monkeypatch, tmp_path, str(model), "--name", "mine", "--set", "board.images=8") == 0
    said = capsys.readouterr().out
    assert "pixels:" in said and "Softmax at the end left out" in said and "8 of 8 test images bit-equal" in said
    run = tmp_path / "runs" / "mine"
    manifest = json.loads((run / "bundle" / "manifest.json").read_text())
    assert manifest["architecture"].startswith("model.onnx, SHA-256 ")
    assert manifest["ram_limit_bytes"] == 128 * 1024  # the board's own, not the task's
    vectors = np.load(run / "bundle" / "test_vectors.npz")
    shipped = ort.InferenceSession(run / "bundle" / "network_int8.onnx").run(None, {"image": vectors["inputs"]})[0]
    assert (shipped == vectors["outputs"]).all()
    assert f"automcu deploy {model}" in (run / "report.html").read_text()
    brought = Repository(run / "journal.jsonl").last(Brought)
    assert brought is not None and brought.file == "model.onnx"
    monkeypatch.setattr(sys, "argv", ["automcu", "search", "--resume", str(run)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2 and "nothing is searched" in capsys.readouterr().err


def test_a_network_that_is_too_large_is_told_by_how_much_and_leaves_no_bundle(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--pixels", "unit", "--name", "mine", "--set", "constraints.flash_kb=2")
    assert deploy(monkeypatch, tmp_path, str(model), *flags) == 1
    assert "more than the limit of 2048" in capsys.readouterr().out
    assert not (tmp_path / "runs" / "mine" / "bundle").exists()


def test_all_targets_are_asked_and_nothing_is_left(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = ["stm32f405", "stm32f030", "nrf51822", "max78000"]
    monkeypatch.setattr("automcu_ray.run.deployment.names", lambda group: known)
    assert deploy(monkeypatch, tmp_path, str(model), "--pixels", "unit", "--all-targets") == 0
    said = capsys.readouterr().out
    rows = {name: next(line for line in said.splitlines() if f" {name} " in line) for name in known}
    assert rows["stm32f405"].split()[0] == "yes" and rows["stm32f405"].split()[-1].replace(",", "").isdigit()
    assert rows["max78000"].split()[0] == "no" and "max78000: only its vendor's toolchain" in said
    assert "3 of 4 targets hold it" in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.jail
@pytest.mark.usefixtures("sandbox")
def test_code_is_trained_in_the_jail_and_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text(CODE)
    flags = ("--name", "mine", "--set", "trainer.full.epochs=2", "--set", "board.images=4")
    assert deploy(monkeypatch, tmp_path, "net.py", *flags) == 0
    manifest = json.loads((tmp_path / "runs" / "mine" / "bundle" / "manifest.json").read_text())
    assert manifest["architecture"] == CODE and manifest["bit_equal_images"] == 4
    assert manifest["test_accuracy"] > 0.2  # ten classes, two epochs


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.tflite", b"", "takes a .onnx file, or a .py file"),
        ("none.onnx", None, "cannot be read"),
        ("bad.onnx", b"\x00\x01", "error: an ONNX file is wanted"),
        ("net.py", b"import os\nos.system('x')\n", "net.py: line"),
    ],
)
def test_other_files_are_one_line_and_leave_nothing(
    name: str,
    content: bytes | None,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert deploy(monkeypatch, tmp_path, name, "--name", "mine") in (1, 2)
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    assert not (tmp_path / "runs").exists()
