"""Whatever others wrote is read, or refused by a named error: never a foreign exception, never a hang.

`make fuzz FUZZ=10000` tries so many inputs for each reader; a few, always the same, are tried every day.
"""

import contextlib
import io
import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from automcu_ray.core.errors import BoardError, ConfigError, ToolchainError
from automcu_ray.deploy import foreign
from automcu_ray.deploy.pixels import KNOWN
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.search_space import Space
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.target import McuTarget
from automcu_ray.problem.task import Task
from automcu_ray.records.finalist_selection import rank_for_finals
from automcu_ray.records.journal import Repository
from automcu_ray.records.search_dynamics import trend
from automcu_ray.reports.progress import describe
from automcu_ray.runtime.config import compose
from automcu_ray.runtime.run_folder import RunFolder
from automcu_ray.sizing.verdict_cache import VerdictCache
from automcu_ray.studies.fidelity import load_probes
from automcu_ray.studies.sweep import load_sweep
from backends.ai8x import report as ai8x
from backends.boards.base import Board, Port
from backends.c_qemu import linker, stack
from backends.stedgeai.json_reports import read_json
from backends.stedgeai.text_reports import read_text
from backends.stedgeai.verdict import refusal
from backends.venvs.vela import operator_notes, read_summaries
from searchers.dialogue.reply_parsing import UnusableReply, read_advice, read_candidate, read_candidates, read_code
from searchers.engines.base import Reply
from searchers.engines.recording.recorded_calls import read_beginnings, read_calls
from searchers.tune_searcher import TuneSearcher
from searchers.tune_searchers import RandomSearch
from tests.backends.stedgeai.fake_stedgeai import c_info
from tests.backends.stedgeai.test_reports import CORE_2, CUBE_5, NPU, REPORT_JSON
from tests.backends.venvs.test_vela_summary import ON_BOTH, summary
from tests.fuzz import sound
from tests.fuzz.damaged import texts
from trainables.datasets.log_mel import LogMel
from trainables.datasets.npz import npz
from trainables.datasets.windows import windows

pytestmark = pytest.mark.fuzz

# What a process for foreign graphs refuses by an error of Python's own is our code's fault, and no true name;
# onnx and onnxruntime say RuntimeError and classes of their own.
FOREIGN = re.compile(
    r"refused: (Assertion|Attribute|Index|Key|Lookup|Overflow|Recursion|Type|Unicode\w*|Value|Zero\w*)Error: "
)
COUNT = int(os.environ.get("FUZZ", "0"))
SPACE = Space(input_shape=(1, 8, 8), num_classes=10)
Read = Callable[[bytes, Path, Task], object]
Refused = type[Exception] | tuple[()]


class Saying(Board):
    """A board whose serial line says what it is told to."""

    name = "saying"

    def __init__(self, said: bytes) -> None:
        super().__init__()
        self.said = io.BytesIO(said)

    def write(self, data: bytes, /) -> int:
        return len(data)

    def read_until(self, expected: bytes, size: int, /) -> bytes:
        return self.said.readline(size)

    @contextmanager
    def connect(self, elf: Path, target: McuTarget) -> Iterator[Port]:
        yield self

    def instructions(self, ticks: int, target: McuTarget) -> int:
        return round(ticks * 1e9 / 168_000_000)


def journal(data: bytes, folder: Path, task: Task) -> None:
    """Read a run, look at it as every view does, and go on with it."""
    path = folder / "journal.jsonl"
    path.write_bytes(data)
    repository = Repository(path)
    repository.write_parquet(folder / "records.parquet")
    trend(repository.records).line()
    rank_for_finals(repository.records)
    for record in repository.records:
        describe(record, task)
    searcher: TuneSearcher = RandomSearch(task)
    searcher.replay(repository)
    searcher.suggest("a")
    Repository(path)


def verdicts(data: bytes, folder: Path, task: Task) -> None:
    cache = VerdictCache(folder / "cache", task, "fuzz 1")
    cache.put("a", sound.REPORT, ArchitectureSpec.model_validate({"backbone": [{"type": "conv", "out_channels": 8}]}))
    for path in (folder / "cache").rglob("*.json*"):
        path.write_bytes(data)
    cache.get("a")
    cache.lessons()


def calls(data: bytes, folder: Path, task: Task) -> None:
    (folder / "calls.jsonl").write_bytes(data)
    read_calls(folder / "calls.jsonl")


def talks(data: bytes, folder: Path, task: Task) -> None:
    (folder / "talks.jsonl").write_bytes(data)
    read_beginnings(folder / "calls.jsonl")


def replies(data: bytes, folder: Path, task: Task) -> None:
    reply = Reply(text=data.decode("utf-8", "surrogateescape"))
    found: list[Candidate] = []
    for read in (
        lambda: found.append(read_candidate(reply, SPACE)),
        lambda: found.extend(itertools.chain(*read_candidates(reply, SPACE, 3))),
        lambda: found.append(read_code(reply)),
        lambda: read_advice(reply),
    ):
        with contextlib.suppress(UnusableReply):
            read()
    (folder / "journal.jsonl").unlink(missing_ok=True)
    Repository(folder / "journal.jsonl").propose(*(one.replace(number=n) for n, one in enumerate(found, start=1)))
    assert len(Repository(folder / "journal.jsonl").proposed) == len(found)


def board(data: bytes, folder: Path, task: Task) -> None:
    inputs = np.zeros((2, 1, 2, 2), np.int8)
    Saying(data).run(folder, task.target, inputs, output_dtype=np.int8, output_count=2)


def yaml_file(data: bytes, folder: Path, task: Task) -> None:
    path = folder / "mine.yaml"
    path.write_bytes(data)
    (folder / "config.yaml").write_bytes(data)
    for read in (
        lambda: compose({"task": str(path)}),
        lambda: compose({"target": str(path), "dataset": "digits"}),
        lambda: compose({"searcher": str(path)}),
        lambda: RunFolder.existing(folder),
        lambda: load_sweep(str(path)),
        lambda: load_probes(str(path), compose({}).trainer.full),
    ):
        try:
            read()
        except ConfigError as error:
            assert str(error) and "\n" not in str(error)


def setting(data: bytes, folder: Path, task: Task) -> None:
    compose({}, [data.decode("utf-8", "surrogateescape")])


def archive(data: bytes, folder: Path, task: Task) -> None:
    (folder / "data.npz").write_bytes(data)
    npz(folder=str(folder))


def wav_file(data: bytes, folder: Path, task: Task) -> None:
    (folder / "a.wav").write_bytes(data)
    LogMel(rate_hz=8000, mels=8, frame_ms=20, hop_ms=20, resample=True).read(folder / "a.wav")


def samples(data: bytes, folder: Path, task: Task) -> None:
    (folder / "a.csv").write_bytes(data)
    windows(folder=str(folder), files="a.csv", channels=("x",), time="t", rate_hz=50, seconds=0.1)


def network(data: bytes, folder: Path, task: Task) -> None:
    to_int8(data, task.input_shape, task.num_classes)


def to_int8(data: bytes, shape: tuple[int, int, int], classes: int) -> None:
    """Take a file all the way to int8, and read it as a spec."""
    calibration = np.zeros((4, *shape), np.uint8)
    try:
        foreign.nearest_spec(data, shape)
    except ToolchainError as error:
        assert not FOREIGN.search(str(error))
    adopted = foreign.adopt(data, shape, classes, KNOWN["unit"])
    foreign.check(adopted.model, shape, classes, pairs=adopted.quantised)
    if adopted.quantised:
        foreign.deploy_quantised(adopted.model, data, shape, pixels=KNOWN["unit"], calibration=calibration)
    else:
        foreign.deploy(adopted.model, shape, precision="int8", calibration=calibration)


READERS: dict[str, tuple[Read, Refused, tuple[bytes, ...]]] = {
    "journal": (journal, ConfigError, sound.JOURNALS),
    "verdicts and lessons": (verdicts, (), sound.VERDICTS),
    "recorded calls": (calls, ConfigError, sound.CALLS),
    "conversations": (talks, ConfigError, sound.TALKS),
    "replies": (replies, (), sound.REPLIES),
    "serial line": (board, BoardError, sound.SERIAL),
    "YAML files": (yaml_file, (), sound.YAML),
    "--set": (setting, ConfigError, sound.SETTINGS),
    "npz": (archive, ConfigError, sound.ARCHIVES),
    "wav files": (wav_file, ConfigError, sound.WAVS),
    "ONNX": (network, ToolchainError, (sound.ONNX_FILE, sound.ONNX_PAIRS)),
    "CSV of samples": (samples, ConfigError, (sound.SAMPLES_CSV,)),
}


def of_text(read: Callable[[str], object]) -> Read:
    return lambda data, folder, task: read(data.decode("utf-8", "replace"))


REPORTS: dict[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "ST's text": (read_text, (CORE_2, CUBE_5, NPU)),
    "ST's JSON": (read_json, (sound.one_line(REPORT_JSON), c_info("net", 300, 128, 900))),
    "ST's refusal": (refusal, ("NOT IMPLEMENTED: Unsupported layer types: ConvInteger,\nMatMulInteger\n\nWARNING",)),
    "Vela's summary": (read_summaries, (summary(),)),
    "Vela's operators": (operator_notes, (ON_BOTH,)),
    "ai8xize's memory": (ai8x.memory_use, (sound.AI8X_MEMORY,)),
    "ai8xize's answers": (lambda text: ai8x.known_answer(text, 3), (sound.AI8X_ANSWERS,)),
    "ai8xize's refusal": (lambda text: ai8x.refusal(text, ["a", "b"]), (sound.AI8X_REFUSAL,)),
    "linker's memory": (linker.used_bytes, (sound.LINKER,)),
    "linker's overflow": (linker.overflows, ("region `RAM' overflowed by 215512 bytes",)),
    "size": (linker.section_bytes, (sound.SIZE,)),
    "call graph": (stack.bound_bytes, (sound.CALL_GRAPH,)),
}
READERS |= {
    name: (of_text(read), ToolchainError, tuple(text.encode() for text in seeds))
    for name, (read, seeds) in REPORTS.items()
}


@pytest.mark.parametrize("name", READERS)
@settings(
    max_examples=COUNT or 25,
    derandomize=not COUNT,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_damaged_input_is_read_or_refused_by_name(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, digits_task: Task
) -> None:
    read, refused, seeds = READERS[name]
    damaged = data.draw(texts(seeds))
    folder = tmp_path_factory.getbasetemp() / "fuzz"
    folder.mkdir(exist_ok=True)
    try:
        read(damaged, folder, digits_task)
    except refused as error:
        assert str(error) and len(str(error)) < 3000 and not FOREIGN.search(str(error))


@pytest.mark.parametrize("name", READERS)
def test_what_is_damaged_was_sound(name: str, tmp_path: Path, digits_task: Task) -> None:
    read, _, seeds = READERS[name]
    for seed in seeds:
        read(seed, tmp_path, digits_task)
