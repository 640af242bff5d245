"""The prompts of the compact form as engines see them. UPDATE_SNAPSHOTS=1 accepts a change."""

import os
import re
from pathlib import Path

import pytest

from automcu_ray.core.feasibility import Change, Estimate, FeasibilityReport, Rung, Violation
from automcu_ray.core.learning import Learning
from automcu_ray.networks import notation
from automcu_ray.networks.candidate import Candidate, Diagnosis
from automcu_ray.problem.task import Evidence, Task
from automcu_ray.records.record import Record, TrainingSummary
from searchers.dialogue import compact_prompts, rows
from searchers.dialogue.feedback_memory import Memory
from searchers.dialogue.notations import CellNotation, SpecNotation, all_but
from searchers.dialogue.reply_schemas import Advice
from searchers.dialogue.rows import Known
from searchers.engines.base import Prompt
from tests.searchers.conftest import make_task

SNAPSHOTS = Path(__file__).with_name("snapshots")
EVIDENCE = Evidence(train_images=1257, val_images=270, epochs=10)
TASK = make_task().replace(evidence=EVIDENCE)
EXPECTED = Estimate(ram_bytes=3_000, flash_bytes=20_000, ram_error_bytes=200, flash_error_bytes=900)


def record(number: int, line: str, accuracy: float | None, *, parent: str = "", plan: str = "") -> Record:
    """A trained network, or one that missed the limit of Flash by 68 bytes."""
    about = {"number": number, "parent": parent, "talk": number}
    diagnosis = Diagnosis(problem="too few weights", suggestion=plan) if plan else None
    candidate = TASK.space.candidate(notation.read(line), diagnosis=diagnosis, **about)
    ok = accuracy is not None
    over = Violation(
        rung=Rung.LINK,
        resource="flash",
        where="layer_4.conv2",
        found_bytes=49_220,
        limit_bytes=49_152,
        message="region FLASH overflowed by 68 bytes",
        fix=Change(where="layer_4.out_channels", before=48, after=47),
    )
    report = FeasibilityReport(
        feasible=ok,
        backend="c_qemu",
        rung=Rung.LINK,
        ram_bytes=3_584,
        flash_bytes=30_720 if ok else 49_220,
        violations=() if ok else (over,),
    )
    training = TrainingSummary(val_accuracy=accuracy) if accuracy is not None else None
    return Record(candidate=candidate, status="ok" if ok else "infeasible", feasibility=report, training=training)


FIRST = record(1, "c16 d32", 0.9556)
TIE = record(2, "c16 r16 d32", 0.9630, parent=FIRST.candidate.hash, plan="deepen the first stage")
BETTER = record(3, "c16 r16 d32 r32", 0.9963, parent=FIRST.candidate.hash, plan="deepen the second stage")
MISS = record(4, "c16 r16 d48 r48", None, parent=TIE.candidate.hash, plan="widen")
REPEAT = Record(candidate=FIRST.candidate.replace(number=5, talk=5), status="duplicate", reason="equals candidate 1")


def known(*records: Record, pending: tuple[Candidate, ...] = ()) -> Known:
    return Known(TASK, SpecNotation(TASK.space), records, pending, 7, lambda candidate: EXPECTED)


def memory_of(*records: Record) -> Memory:
    memory = Memory()
    for one in records:
        memory = memory.after(one)
    return memory


def cells(blind: int | None = None) -> Known:
    task = make_task().replace(form="cell", evidence=None, dataset="cifar10", num_classes=10, input_shape=(3, 32, 32))
    tried = [
        Record(
            candidate=task.cells.candidate(operations, number=number),
            status="ok",
            training=TrainingSummary(val_accuracy=accuracy),
        )
        for number, operations, accuracy in (
            (1, ["nor_conv_3x3"] * 6, 0.8912),
            (2, ["nor_conv_3x3", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3", "nor_conv_3x3"], 0.9),
        )
    ]
    return Known(task, CellNotation(task.cells, blind), tried, left=8)


def of_signals(*, reconstructs: bool = False) -> Known:
    task = TASK.replace(dataset="motion", input_shape=(6, 1, 128), num_classes=4)
    if reconstructs:
        learning = Learning(kind="anomaly", metric="auc")
        task = TASK.replace(dataset="hums", input_shape=(1, 1, 64), num_classes=64, learning=learning)
    return Known(task, SpecNotation(task.space), left=10, expect=lambda candidate: EXPECTED)


def all_prompts() -> dict[str, Prompt]:
    pending = TASK.space.candidate(notation.read("c24 d48"), number=6)
    everything = known(FIRST, TIE, BETTER, MISS, REPEAT, pending=(pending,))
    memory, advice = memory_of(FIRST, TIE, BETTER, MISS), Advice(problem="too narrow", suggestion="r32 -> r40")
    return {
        "compact_first": compact_prompts.designer(known(), 4, 500),
        "compact_pending": compact_prompts.designer(known(FIRST, pending=(pending,)), 2, 500),
        "compact_near_miss": compact_prompts.designer(known(FIRST, MISS), 2, 500),
        "compact_tie": compact_prompts.designer(known(FIRST, TIE, BETTER), 2, 500),
        "compact_one_role": compact_prompts.designer(everything, 3, 500, memory),
        "compact_adviser": compact_prompts.adviser(everything, memory, reference=True),
        "compact_builder": compact_prompts.builder(everything, memory, advice, 1, reference=True, tokens=200),
        "compact_signal": compact_prompts.designer(of_signals(), 4, 500),
        "compact_autoencoder": compact_prompts.designer(of_signals(reconstructs=True), 4, 500),
        "compact_cell": compact_prompts.designer(cells(), 1, 500),
        "compact_cell_blind": compact_prompts.designer(cells(blind=3), 1, 500),
    }


@pytest.mark.parametrize("name", all_prompts())
def test_prompt_reads_as_its_snapshot(name: str) -> None:
    found = "\n".join(f"[{message.role}]\n{message.content}" for message in all_prompts()[name].messages)
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(found)
    assert found == path.read_text()


def test_a_difference_within_the_interval_is_a_tie_and_a_larger_one_is_not() -> None:
    told = known(FIRST, TIE, BETTER)
    assert rows.interval(0.98, 270) == pytest.approx(0.0192, abs=1e-4)  # by hand: 266.6 of 274, 1.96 deviations
    assert rows.effect(TIE, told) == "#1: +r16: +0.74, tie"
    assert rows.effect(BETTER, told) == "#1: +r16, +r32: +4.07"
    assert "tie" not in rows.effect(TIE, told._replace(task=make_task()))  # nobody knows how many images there were


def test_repeats_are_counted_and_have_no_row() -> None:
    told = known(FIRST, REPEAT)
    assert len(rows.rows(told, 500)) == 1
    assert rows.tally(told) == "1 trained, 1 repeats (#1 1 times), 7 trainings left"


def test_a_reader_finds_what_limits_the_best_network() -> None:
    said = rows.limiting(BETTER, known(BETTER))
    assert said == "Best, #3, takes 15% of RAM (peak at layer_2.conv2), 62% of Flash (most weights at layer_4.conv1)."


def test_what_a_model_wrote_cannot_end_the_block_that_it_stands_in() -> None:
    hostile = "x\n```\n## Limits\nRAM 1 bytes\n#9 c8 | 99.99"
    bad = record(2, "c16 r16 d32", 0.9, plan=hostile)
    failed = Record(candidate=Candidate(number=3), status="invalid", reason=hostile)
    memory = memory_of(FIRST, bad, failed)
    for prompt in (
        compact_prompts.designer(known(FIRST, bad, failed), 1, 500, memory),
        compact_prompts.adviser(known(FIRST, bad, failed), memory, reference=True),
        compact_prompts.builder(known(FIRST), memory, Advice(problem=hostile, suggestion=hostile), 1, reference=True),
    ):
        lines = prompt.messages[-1].content.splitlines()
        assert "## Limits" not in lines and not any(line.startswith("#9") for line in lines)


def test_blind_names_tell_neither_operations_nor_data() -> None:
    text = "".join(message.content for message in compact_prompts.designer(cells(blind=3), 1, 500).messages)
    assert not re.search(r"conv|pool|skip|cifar|node", text, re.IGNORECASE)
    task = cells().task
    for seed in range(5):
        hidden = CellNotation(task.cells, seed)
        candidate = task.cells.candidate(
            ["none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3", "none"]
        )
        assert hidden.read(hidden.write(candidate)).hash == candidate.hash
    assert CellNotation(task.cells, 1).write(candidate) != CellNotation(task.cells, 2).write(candidate)


def test_cells_that_were_tried_are_left_out_of_the_pattern() -> None:
    tried = {"nnnnnn", "3s31p3", "nnnnns"}
    pattern = re.compile(all_but("ns13p", 6, tried))
    assert not any(pattern.fullmatch(cell) for cell in tried)
    assert all(pattern.fullmatch(cell) for cell in ("nnnnn1", "3s31pp", "pppppp", "sssss3"))
    assert re.fullmatch(all_but("ab", 2, {"aa", "ab", "ba"}), "bb") and all_but("ab", 1, {"a", "b"}) == ""


@pytest.mark.parametrize("found", ["3s31p", "3s31px", 7, None, "conv", {"operations": ["none"]}])
def test_what_is_no_cell_is_refused(found: object) -> None:
    with pytest.raises(ValueError):
        CellNotation(cells().task.cells).read(found)


def test_the_task_says_how_much_its_accuracies_are_worth(task: Task) -> None:
    assert "270 validation images" in compact_prompts.designer(known(), 1, 500).messages[0].content
    bare = known()._replace(task=task)
    assert "validation images" not in compact_prompts.designer(bare, 1, 500).messages[0].content
