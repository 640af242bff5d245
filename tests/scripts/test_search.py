"""The command as users run it: bad input, whole small searches, kill and resume."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pyarrow.parquet as pq
import pytest

from tests.searchers.engines.endpoint import PROMPT_PRICE, Handler, endpoint

pytestmark = pytest.mark.thorough

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "search.py"
TOOLS = pytest.mark.usefixtures("qemu")
Here = Callable[..., tuple[Any, str, str]]
QUICK = ("--set", "trainer.proxy.epochs=2", "--set", "trainer.full.epochs=3", "--set", "budget.finalists=1")


def start(runs: Path, *flags: str) -> subprocess.Popen[str]:
    """Start a search as its own process group, as a terminal does."""
    environment = {**os.environ, "AUTOMCU_CACHE": str(runs / "cache")}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), "--runs", str(runs), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )


def journal(run: Path) -> list[dict[str, Any]]:
    path = run / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def records(run: Path) -> list[dict[str, Any]]:
    return [row["record"] for row in journal(run) if row["event"] == "record"]


def trained(run: Path) -> list[str]:
    return [row["candidate"]["hash"] for row in records(run) if row["status"] == "ok"]


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str], timeout_s: float = 240) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "nothing happened in time"
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)


@pytest.fixture
def run_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Here]:
    """Run the script in this process: status, output, errors. At the end, no run may have been written."""

    def run(*flags: str) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", [SCRIPT.name, "--runs", str(tmp_path / "runs"), *flags])
        with pytest.raises(SystemExit) as caught:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        return caught.value.code, *capsys.readouterr()

    yield run
    assert not (tmp_path / "runs").exists()


class TestBadInput:
    @pytest.mark.parametrize(
        ("flags", "words"),
        [
            (["--searcher", "llm_memry"], "did you mean 'llm_memory'?"),
            (["--task", "{folder}/typo.yaml"], "unknown key 'constraints.ram_kbb'"),
            (["--set", "constraints.ram_kb=lots"], "found 'lots'"),
            (["--set", "constraints.flash_kb=-1"], "greater than 0"),
            (
                ["--searcher", "llm_memory", "--set", "searcher.memry=3"],
                "unknown searcher option 'memry': did you mean 'memory'?",
            ),
            (["--set", "dataset.name=digit"], "unknown dataset 'digit': did you mean 'digits'?"),
            (["--task", "{folder}/nodata.yaml"], "no data folder 'nowhere'"),
            (["--target", "max78000", "--set", "board.mode=qemu"], "no machine for target 'max78000'"),
            (["--backend", "analytic", "--set", "board.mode=qemu"], "builds no firmware"),
            (["--engine", "openai"], "needs a model"),
            (["--engine", "cassette", "--set", "engine.path={folder}"], "no recorded calls in"),
            (["--searcher", "genius"], "proposes a cell, task 'digits' wants a network"),
            (["--searcher", "random", "--show-prompt"], "asks no engine"),
            (
                ["--searcher", "llm_memory", "--engine", "offline", "--set", "searcher.form=code"],
                "engine 'offline' cannot write",
            ),
            (["--searcher", "llm_memory", "--set", "searcher.form=cod"], "searcher.form"),
            (["--set", "budget.max_tokens=0"], "budget.max_tokens"),
            (
                ["--searcher", "llm", "--engine", "offline", "--set", "budget.max_usd=1"],
                "engine 'offline' has no price",
            ),
            (["--set", "points_to_evaluate=[{{backbone: [{{type: cnv}}]}}]"], "points_to_evaluate"),
            (["--warm-start", "{folder}/none"], "warm_start.runs: no run in"),
            (["--warm-start", "{folder}/typo.yaml"], "is not a journal event"),
            (["--searcher", "mixed", "--set", "searcher.proposers=[genius]"], "searcher 'genius' proposes a cell"),
            (["--searcher", "mixed", "--set", "searcher.proposers=3"], "searcher.proposers"),
            (["--resume", "{folder}/none"], "no run in"),
            (["--resume", "{folder}", "--seed", "3"], "leave the other flags out"),
            (["--name", "../evil"], "--name wants"),
        ],
    )
    def test_is_one_line_and_exit_2_and_no_run(
        self, flags: list[str], words: str, run_here: Here, tmp_path: Path
    ) -> None:
        (tmp_path / "typo.yaml").write_text("constraints: {ram_kbb: 8}\n")
        (tmp_path / "nodata.yaml").write_text("dataset: {name: parquet, folder: nowhere}\n")
        status, _, error = run_here(*(flag.format(folder=tmp_path) for flag in flags))
        assert status == 2
        assert error.startswith("error: ") and error.count("\n") == 1 and words in error

    def test_missing_tools_name_the_rung_the_package_and_what_still_runs(
        self, run_here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        status, _, error = run_here()
        assert status == 2 and "backend 'c_qemu' needs arm-none-eabi-gcc" in error
        assert "apt install gcc-arm-none-eabi" in error and "--backend analytic" in error

    @pytest.mark.parametrize(("searcher", "role"), [("llm", "proposer"), ("llm_memory", "generator")])
    def test_show_prompt_prints_what_would_be_asked_and_writes_nothing(
        self, searcher: str, role: str, run_here: Here
    ) -> None:
        status, printed, _ = run_here("--searcher", searcher, "--show-prompt")
        assert status == 0
        assert role in printed and "[system]" in printed and "Limits: RAM" in printed and "RAM 24,576 bytes" in printed

    def test_dry_run_shows_the_configuration_and_writes_nothing(self, run_here: Here) -> None:
        status, printed, _ = run_here("--backend", "analytic", "--dry-run")
        assert status == 0 and "ram_kb: 24" in printed


@TOOLS
@pytest.mark.ray
def test_a_search_leaves_a_network_that_runs(tmp_path: Path) -> None:
    searcher = ("--searcher", "llm_memory", "--engine", "offline")
    flags = (*searcher, "--name", "run", "--set", "budget.trained=3", "--set", "board.images=8")
    output, _ = (process := start(tmp_path, *flags, *QUICK)).communicate(timeout=400)
    assert process.returncode == 0, output
    assert "No language model takes part" in output
    run = tmp_path / "run"
    assert (tmp_path / "latest").resolve() == run.resolve()
    assert len(trained(run)) == len(set(trained(run))) == 3
    assert "warm_start" in {row["candidate"]["proposer"] for row in records(run)}  # capacity comes first
    manifest = json.loads((run / "bundle" / "manifest.json").read_text())
    assert (manifest["target"], manifest["precision"], manifest["bit_equal_images"]) == ("stm32f405", "int8", 8)
    assert manifest["ram_bytes"] <= 24 * 1024 and manifest["flash_bytes"] <= 48 * 1024
    assert {
        "firmware.elf",
        "src",
        "harness",
        "README.md",
        "verify.py",
        "network_int8.onnx",
        "network_float32.onnx",
    } <= {path.name for path in (run / "bundle").iterdir()}
    vectors = np.load(run / "bundle" / "test_vectors.npz")
    session = ort.InferenceSession(run / "bundle" / "network_int8.onnx")
    assert (session.run(None, {"image": vectors["inputs"]})[0] == vectors["outputs"]).all()
    assert pq.read_table(run / "records.parquet").num_rows == len(records(run))
    assert "No language model took part" in (run / "report.html").read_text()
    assert sum(row["event"] == "test_read" for row in journal(run)) == 1


@pytest.mark.ray
def test_an_endpoint_proposes_and_its_rubbish_costs_a_record_each_and_the_key_it_echoes_is_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-4711")

    def rubbish(handler: Handler) -> None:
        sent = handler.headers["Authorization"]
        assert "sk-planted-4711" in sent
        text = f"\x1b[31mI would rather run `touch canary`; $(touch canary) && rm -rf / with {sent}"
        handler.complete(text, finish_reason=f"stop {sent}", model=sent)

    with endpoint({talk: [rubbish, rubbish] for talk in (1, 2)}) as served:
        alone = ("--searcher", "llm_memory", "--set", "warm_start.searcher=null", "--set", "searcher.fill=null")
        engine = (*alone, "--engine", "openai", "--set", f"engine.base_url={served.url}", "--set", "engine.model=rules")
        prices = ("--set", f"engine.usd_per_million_prompt={PROMPT_PRICE}")
        rest = ("--backend", "analytic", "--name", "run", "--set", "budget.trained=3", *QUICK)
        output, _ = (process := start(tmp_path, *engine, *prices, *rest)).communicate(timeout=400)
        used = served.used
    assert process.returncode == 0, output
    assert "No language model" not in output
    assert "\x1b" not in output and "touch canary" not in output
    assert not list(tmp_path.rglob("canary")) and not Path("canary").exists()
    run = tmp_path / "run"
    assert len(trained(run)) == 3
    invalid = [row for row in records(run) if row["status"] == "invalid"]
    assert len(invalid) == 2 and all(row["reason"] and "rm -rf" in row["candidate"]["reply"] for row in invalid)
    proposed = [row["candidate"] for row in records(run)]
    assert {candidate["proposer"] for candidate in proposed} == {"llm_memory"}
    assert sum(candidate["cost"]["prompt_tokens"] for candidate in proposed) == used.prompt_tokens
    assert sum(candidate["cost"]["completion_tokens"] for candidate in proposed) == used.completion_tokens
    assert sum(candidate["cost"]["usd"] for candidate in proposed) == pytest.approx(
        used.prompt_tokens * PROMPT_PRICE / 1e6
    )
    calls = [json.loads(line) for line in (run / "llm" / "calls.jsonl").read_text().splitlines()]
    assert len(calls) == served.requests
    searched = next(row for row in journal(run) if row["event"] == "searched")
    assert searched["trend"]["trained"] == 3
    assert f"trained 3 of {len(proposed)} proposals; accuracy" in output
    assert f"{used.prompt_tokens:,}" in (run / "report.html").read_text()
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 8 and not any(b"sk-planted" in data for data in (*written, output.encode()))


@pytest.mark.slow
@pytest.mark.ray
def test_killed_in_mid_run_and_resumed_repeats_nothing_and_meets_the_budget(tmp_path: Path) -> None:
    flags = ("--searcher", "random", "--backend", "analytic", "--name", "run", "--set", "budget.trained=6")
    run = tmp_path / "run"
    process = start(tmp_path, *flags, *QUICK)
    wait_until(lambda: len(trained(run)) >= 2, process)
    process.kill()
    process.wait()
    before = journal(run)
    assert 2 <= len(trained(run)) < 6
    output, _ = (resumed := start(tmp_path, "--resume", str(run))).communicate(timeout=400)
    assert resumed.returncode == 0, output
    assert journal(run)[: len(before)] == before
    assert len(trained(run)) == len(set(trained(run))) == 6
    numbers = [row["candidate"]["number"] for row in records(run)]
    assert len(numbers) == len(set(numbers))


@pytest.mark.ray
def test_ctrl_c_keeps_the_best_so_far(tmp_path: Path) -> None:
    flags = ("--searcher", "random", "--backend", "analytic", "--name", "run", "--set", "budget.trained=500")
    run = tmp_path / "run"
    process = start(tmp_path, *flags, *QUICK)
    wait_until(lambda: len(trained(run)) >= 2, process)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert "best so far" in output and "--resume" in output
    assert "Traceback" not in output
    assert (run / "report.html").exists() and (run / "records.parquet").exists()
    assert len(trained(run)) >= 2


@pytest.mark.slow
@TOOLS
@pytest.mark.parametrize("seed", [0, 1])
def test_the_default_search_finds_an_accurate_network_that_fits_and_runs(seed: int, tmp_path: Path) -> None:
    """What the README promises of the default search."""
    output, _ = (process := start(tmp_path, "--name", "run", "--seed", str(seed))).communicate(timeout=1200)
    assert process.returncode == 0, output
    statuses = [row["status"] for row in records(tmp_path / "run")]
    assert statuses.count("ok") >= 12 and statuses.count("infeasible") >= 1
    manifest = json.loads((tmp_path / "run" / "bundle" / "manifest.json").read_text())
    assert manifest["ram_bytes"] <= 24 * 1024 and manifest["flash_bytes"] <= 48 * 1024
    assert manifest["test_accuracy"] >= 0.97
    assert manifest["bit_equal_images"] == manifest["board_images"] >= 64
