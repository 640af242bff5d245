"""`--start-from`: a user's network is the first point, whoever searches."""

from pathlib import Path

import pytest
from torch import nn

from automcu_ray.core.errors import ConfigError
from automcu_ray.networks.candidate import START_FROM, Candidate
from automcu_ray.records.journal import Repository
from automcu_ray.run.assembly import make_searcher
from automcu_ray.run.plan import prepare
from automcu_ray.run.start_from import start_point
from automcu_ray.runtime.config import RunConfig, compose
from automcu_ray.sizing.footprint import check_bounds
from automcu_ray.testing.searcher_contract import drive
from searchers.llm_memory import LLMMemory
from searchers.tune_searcher import TuneSearcher
from tests.automcu_ray.deploy.test_nearest_spec import file_of
from tests.searchers.conftest import make_task
from tests.trainables.jail.jailed import needs_sandbox

CODE = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.stem(x).mean((2, 3)))
"""


def config(*settings: str) -> RunConfig:
    return compose({"task": "digits", "searcher": "evolution", "backend": "analytic"}, settings)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A network for other images and classes, far too wide for 24 KB."""
    stem = [nn.Conv2d(1, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, 512, 3, 2, 1), nn.Hardswish()]
    path = tmp_path / "model.onnx"
    path.write_bytes(file_of(nn.Sequential(*stem, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 3)), (1, 8, 8)))
    return path


def test_an_onnx_file_is_the_first_point_made_to_fit_and_stays_it_when_resumed(model: Path, tmp_path: Path) -> None:
    plan = prepare(config(f"start_from={model}"))
    said = " | ".join(plan.started_from)
    for words in ("read as: {", "HardSwish", "distance: ", "made to fit: ", "not taken over"):
        assert words in said
    searcher = make_searcher(plan, None, Repository(tmp_path / "journal.jsonl"), workers=())
    drive(searcher, 2)
    first = searcher.repository.records[0]
    assert (first.candidate.proposer, first.candidate.number, first.status) == (START_FROM, 1, "ok")
    widths = [layer.out_channels for layer in first.candidate.spec.backbone]  # type: ignore[union-attr]
    assert widths[0] < 256 and widths[1] == pytest.approx(2 * widths[0], abs=2)
    model.unlink()  # a run that goes on does not read it again
    again = make_searcher(
        prepare(config(f"start_from={model}"), begun=True), None, Repository(tmp_path / "journal.jsonl"), workers=()
    )
    assert again.trained == 2 and [one.proposer for one in again.repository.proposed.values()].count(START_FROM) == 1


def test_code_is_taken_as_it_is_where_candidates_are_code(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(CODE)
    code = compose({"task": "digits", "searcher": "llm_memory"}, ["searcher.form=code"])
    point, told = start_point(tmp_path / "net.py", code, make_task(), check_bounds)
    assert (point.code, point.proposer) == (CODE, START_FROM) and "is what is improved" in told[0]


@needs_sandbox
@pytest.mark.jail
def test_code_is_exported_in_the_jail_and_read_as_a_spec_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(CODE)
    point, _ = start_point(tmp_path / "net.py", config(), prepare(config()).task, check_bounds)
    assert point.spec is not None and [layer.type for layer in point.spec.backbone] == ["conv"]


def test_the_first_question_waits_for_what_the_user_began_with() -> None:
    task = make_task()
    spec = {"backbone": [{"type": "conv", "out_channels": 6}]}
    searcher = TuneSearcher(LLMMemory(task))
    start: Candidate = task.space.candidate_or_none(spec, proposer=START_FROM)  # type: ignore[assignment]
    searcher.points_to_evaluate([start])
    assert searcher.suggest("a") is not None
    assert searcher.suggest("b") is None and isinstance(searcher.proposer, LLMMemory) and not searcher.proposer.begun
    searcher.on_trial_complete("a", {"val_accuracy": 0.5})
    assert searcher.suggest("b") is not None
    assert searcher.repository.proposed[2].parent == start.hash  # the reference of paper 002


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.onnx", None, "cannot be read"),
        ("net.txt", b"", "takes a .onnx file, or a .py file"),
        ("bad.onnx", b"\x01\x02", "bad.onnx: an ONNX file"),
        ("net.py", b"import os\nos.system('x')\n", "net.py: line"),
    ],
)
def test_what_cannot_be_begun_with_is_one_line(name: str, content: bytes | None, words: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=words) as caught:
        prepare(config(f"start_from={tmp_path / name}"))
    assert "\n" not in str(caught.value)


def test_code_cannot_come_from_an_onnx_file(model: Path) -> None:
    code = compose({"task": "digits", "searcher": "llm_memory"}, ["searcher.form=code"])
    with pytest.raises(ConfigError, match=r"give a \.py file"):
        start_point(model, code, make_task(), check_bounds)
