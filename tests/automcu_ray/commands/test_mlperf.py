"""The command `mlperf`: a bundle becomes firmware and the runner's files; with the runner it is measured."""

import sys
from pathlib import Path

import pytest
import yaml

from automcu_ray.commands.main import main
from automcu_ray.testing.networks import deployed_network
from tests.backends.c_qemu.handover.bundles import make_bundle
from tests.backends.conftest import read_target
from tests.backends.mlperf.test_mlperf import RUNNER


def automcu(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["automcu", "mlperf", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


@pytest.mark.thorough
def test_a_bundle_becomes_what_a_board_and_the_runner_want(
    qemu: None, signals: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = make_bundle(tmp_path / "bundle", deployed_network("plain", "int8"), read_target("stm32f407"))
    assert automcu(monkeypatch, "bundle") == 0
    out = tmp_path / "mlperf"
    assert {"performance.elf", "energy.elf", "devices.yaml", "tests_accuracy.yaml"} <= {p.name for p in out.iterdir()}
    assert (out / "datasets" / "ic01" / "y_labels.csv").read_text().splitlines()[0] == "00000.bin,5,0"
    assert made.instructions is not None
    [loop] = yaml.safe_load((out / "tests_performance.yaml").read_text())["ic01"]["script"]
    runs = int(loop["loop 5"][1].split()[1])
    assert 10 < runs * made.instructions * 8e-9 < 12  # seconds, at 8 ns an instruction
    capsys.readouterr()
    assert automcu(monkeypatch, "bundle") == 2 and "should be a new folder" in capsys.readouterr().err


def test_what_is_no_bundle_is_one_line(
    signals: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert automcu(monkeypatch, str(tmp_path), "--to", str(tmp_path / "new")) == 2
    assert "should be a bundle" in capsys.readouterr().err and not (tmp_path / "new").exists()


@pytest.mark.slow
def test_the_runner_and_onnxruntime_are_compared(
    qemu: None, signals: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not RUNNER.is_dir():
        pytest.skip("needs ../shared/peers/mlperf-tiny")
    import numpy as np

    deployed = deployed_network("plain", "int8")
    make_bundle(tmp_path / "bundle", deployed, read_target("rp2040"), images=20)
    path = tmp_path / "bundle" / "test_vectors.npz"
    vectors = dict(np.load(path))
    np.savez(path, **{**vectors, "labels": np.arange(20) % 5})
    words = [str(tmp_path / "bundle"), "--to", str(tmp_path / "to"), "--runner", str(RUNNER)]
    assert automcu(monkeypatch, *words) == 0
    said = capsys.readouterr().out
    assert "20: equal" in said and "Median throughput" in said and "ERROR" not in said
