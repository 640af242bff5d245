"""The report at every moment of a run."""

import re
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import pytest

from automcu_ray.core.cost import Cost
from automcu_ray.core.feasibility import (
    Change,
    FeasibilityReport,
    FlashUsage,
    LayerCost,
    RamUsage,
    Rung,
    Violation,
    too_slow,
)
from automcu_ray.networks.candidate import Candidate, Diagnosis, GeneratedCode
from automcu_ray.networks.cell import CellSpec
from automcu_ray.problem.task import Task
from automcu_ray.records.events import FinalistEvaluated, Finished, Searched, Started
from automcu_ray.records.journal import Repository
from automcu_ray.records.manifest import TableManifest
from automcu_ray.records.record import BoardResult, Finalist, Record, TrainingSummary
from automcu_ray.reports import plots, run_report
from automcu_ray.reports.run_report import write_report
from automcu_ray.runtime.config import RunConfig, compose
from tests.automcu_ray.records.test_events import network_manifest

pytestmark = pytest.mark.thorough

CONFIG = compose({"task": "digits"})
LIMITS = {"target": CONFIG.target, "constraints": CONFIG.constraints}
TASK = Task.model_validate({"dataset": "digits", "input_shape": (1, 8, 8), "num_classes": 10, **LIMITS})
KB = 1024
OFFLINE = {"name": "offline", "model": "", "is_language_model": False}
HOSTILE = "</details><script>alert(1)</script><img src=http://evil.example/x onerror='alert(2)'>"


def sizes(ram: int, flash: int, violations: tuple[Violation, ...] = ()) -> FeasibilityReport:
    parts = {"arena_bytes": ram - 1768, "io_bytes": 144, "stack_bytes": 1024, "data_bss_bytes": 600}
    code = {"code_bytes": 9000, "weights_bytes": flash - 15000, "runtime_bytes": 6000}
    about: dict[str, Any] = {"parameters": flash - 15000, "macs": 123456, "violations": violations}
    about |= {"backend": "c_qemu", "rung": Rung.LINK, "seconds_by_rung": {"convert": 0.4, "link": 0.9}}
    about |= {"ram": RamUsage(total_bytes=ram, **parts), "flash": FlashUsage(total_bytes=flash, **code)}
    return FeasibilityReport(feasible=not violations, ram_bytes=ram, flash_bytes=flash, **about)


def over(resource: str, found: int, limit: int, rung: Rung = Rung.LINK, where: str = "layer_3") -> Violation:
    return Violation(
        rung=rung,
        resource=resource,
        where=where,
        found_bytes=found,
        limit_bytes=limit,
        message=f"{resource} needs {found} bytes, {found - limit} more than the limit of {limit}",
    )


def trained(number: int, accuracy: float, ram: int = 12 * KB, flash: int = 30 * KB, **about: Any) -> Record:
    candidate = TASK.space.sample(Random(number)).replace(**{"number": number, "proposer": "offline", **about})
    summary = TrainingSummary(val_accuracy=accuracy, val_accuracy_float=accuracy + 0.004, epochs=12, seconds=3.5)
    cost = candidate.cost + Cost(toolchain_cpu_seconds=1.3, train_seconds=3.5)
    return Record(candidate=candidate, status="ok", feasibility=sizes(ram, flash), training=summary, cost=cost)


def refused(number: int, *violations: Violation, ram: int = 12 * KB, flash: int = 30 * KB) -> Record:
    candidate = TASK.space.sample(Random(number)).replace(number=number, proposer="offline")
    verdict = sizes(ram, flash, violations)
    if violations[0].rung is Rung.ANALYTIC:
        verdict = FeasibilityReport(feasible=False, backend="analytic", rung=Rung.ANALYTIC, violations=violations)
    reason = "; ".join(violation.message for violation in violations)
    return Record(candidate=candidate, status="infeasible", reason=reason, feasibility=verdict)


def repository(*records: Record, engine: dict[str, Any] | None = None, path: Path | None = None) -> Repository:
    found = Repository(path)
    about = {"at_s": 1.79e9, "versions": {"torch": "2.13.0"}, "host": {"machine": "x86_64"}}
    found.append(Started.model_validate({**about, "engine": OFFLINE if engine is None else engine or None}))
    for record in records:
        found.propose(record.candidate)
        found.add(record)
    return found


def finish(found: Repository, record: Record, **changes: Any) -> Finalist:
    """Add what a run writes after the search, with `record` as the winner."""
    assert record.training is not None and record.feasibility is not None
    full = record.training.replace(val_accuracy=0.9821, epochs=60, seconds=14.0)
    board = BoardResult(name="qemu", images=16, bit_equal_images=16, largest_difference=0, agrees=True).replace(
        instructions=912345, stack_used_bytes=488, seconds=1.5
    )
    about: dict[str, Any] = {"training": full, "feasibility": record.feasibility, "board": board, **changes}
    finalist = Finalist(number=record.candidate.number, hash=record.candidate.hash, **about)
    found.append(FinalistEvaluated(**dict(finalist)))
    return finalist


def conclude(found: Repository, record: Record) -> None:
    assert record.feasibility is not None
    accuracy = {"test_accuracy": 0.9778, "test_accuracy_float": 0.9806, "test_images": 360}
    board = {"board": "qemu", "board_images": 128, "bit_equal_images": 127, "instructions": 912345}
    size = record.feasibility.model_dump(include={"ram_bytes", "flash_bytes"})
    about = {"hash": record.candidate.hash, "seeds": {"search": 0}, "versions": {"ray": "2.60.0"}}
    manifest = network_manifest(**accuracy, **board, **size, **about)
    found.append(Finished(manifest=manifest, seconds=321.0))


class Page(HTMLParser):
    """What a browser would see: the words, and everything with an address."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source, self.open = text, ""
        self.words: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.open = tag
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href")]

    def handle_data(self, data: str) -> None:
        if self.open not in ("style", "script"):
            self.words.append(data)


def page(tmp_path: Path, found: Repository, config: RunConfig = CONFIG, task: Task = TASK) -> Page:
    write_report(tmp_path / "report.html", config, task, found)
    return Page((tmp_path / "report.html").read_text(encoding="utf-8"))


def test_a_run_without_any_event_has_a_report(tmp_path: Path) -> None:
    text = page(tmp_path, Repository()).text
    assert "No candidate has an outcome yet" in text and "not started" in text


def test_the_first_proposals_show_before_any_outcome(tmp_path: Path) -> None:
    found = repository()
    found.propose(trained(1, 0.9).candidate)
    text = page(tmp_path, found).text
    assert "No candidate has an outcome yet" in text
    assert "1 proposals still open" in text and "nothing trained yet" in text


def test_only_refusals_name_the_nearest_misses_and_what_would_have_to_give(tmp_path: Path) -> None:
    limit, board = TASK.ram_limit_bytes, TASK.target.flash.size_bytes
    records = [
        refused(1, over("ram", limit + 5000, limit), ram=limit + 5000),
        refused(2, over("ram", limit + 900, limit), ram=limit + 900),
        refused(3, over("flash", board + 10, TASK.flash_limit_bytes, Rung.ANALYTIC)),
    ]
    seen = page(tmp_path, repository(*records))
    assert "No candidate has been trained yet" in seen.text
    assert seen.text.index("#2 : 900 bytes over") < seen.text.index("#1 : 5,000 bytes over")
    assert "RAM is 900 bytes over: shrink layer_3, or set constraints.ram_kb=25." in seen.text
    assert "or take a larger target (stm32f405 has 1,024 KB)" in seen.text
    assert "≥ 1024.0" in seen.text


def test_misses_stand_by_resource_and_the_least_need_above_them(tmp_path: Path) -> None:
    ram, flash = TASK.ram_limit_bytes, TASK.flash_limit_bytes
    records = [refused(1, over("ram", ram + 900, ram), ram=ram + 900), refused(2, over("flash", flash + 10, flash))]
    text = page(tmp_path, repository(*records)).text
    assert text.index("Nearest misses of RAM") < text.index("#1 : 900 bytes over")
    assert text.index("Nearest misses of Flash") < text.index("#2 : 10 bytes over")
    text = page(tmp_path, repository(records[0])).text
    assert "The least RAM of any proposal is 25,476 bytes (#1), the limit is 24,576: set constraints.ram_kb=25." in text


def test_a_search_without_finalists_is_finished_and_has_no_winner(tmp_path: Path) -> None:
    found = repository(trained(1, 0.91), trained(2, 0.95))
    found.append(Finished(manifest=None, seconds=9.0))
    text = page(tmp_path, found).text
    assert "finished" in text and "Best of the search: candidate #2" in text and "test accuracy not measured" in text


def test_a_memory_of_an_accelerator_has_no_constraint_to_set(tmp_path: Path) -> None:
    text = page(tmp_path, repository(refused(1, over("data_memory", 40_000, 32_768, Rung.ANALYTIC)))).text
    assert "data_memory is 7,232 bytes over: shrink layer_3" in text
    assert "data_memory_kb" not in text and "larger target" not in text and "at least 7,232" not in text


def test_a_refusal_says_what_would_fit_in_the_table_and_among_the_nearest_misses(tmp_path: Path) -> None:
    limit = TASK.ram_limit_bytes
    fix = Change(where="layer_4.out_channels", before=64, after=41)
    text = page(tmp_path, repository(refused(1, over("ram", limit + 900, limit).replace(fix=fix)))).text
    assert "RAM is 900 bytes over: try layer_4.out_channels 64 -> 41, or set constraints.ram_kb=25." in text
    assert "Fix: layer_4.out_channels 64 → 41" in text


def test_refusals_that_are_not_about_bytes_are_counted_by_reason(tmp_path: Path) -> None:
    violation = Violation(rung=Rung.SCHEMA, resource="schema", message="not JSON")
    refusal = FeasibilityReport(feasible=False, backend="analytic", rung=Rung.SCHEMA, violations=(violation,))
    records = [
        Record(candidate=Candidate(number=n), status="invalid", reason="not JSON", feasibility=refusal) for n in (1, 2)
    ]
    assert "2 times: not JSON" in page(tmp_path, repository(*records)).text


def test_an_interrupted_run_shows_its_best_and_how_to_go_on(tmp_path: Path) -> None:
    found = repository(trained(1, 0.91), trained(2, 0.95), trained(3, 0.93))
    found.append(Searched(seconds=61.0, slot_busy_share=0.87, interrupted=True))
    text = page(tmp_path, found).text
    assert "Best so far: candidate #2" in text
    assert "automcu search --resume" in text
    assert "test accuracy not measured" in text
    assert "87.00 %" in text


def test_a_finished_run_leads_with_the_winner(tmp_path: Path) -> None:
    first, second = trained(1, 0.91), trained(2, 0.95)
    found = repository(first, second)
    finish(found, second)
    conclude(found, second)
    text = page(tmp_path, found).text
    for part in ("Candidate #2 fits stm32f405", "97.78 %", "12.0 KB", "of 24.0 KB, 12.0 KB left", "127 of 128"):
        assert part in text
    assert "qemu: 16 of 16 validation images bit-equal" in text
    assert "98.21 %" in text
    assert "912,345" in text and "488 bytes" in text


def test_instructions_have_a_figure_the_winner_a_profile_and_other_bundles_a_table(tmp_path: Path) -> None:
    fast = trained(1, 0.95)
    fast = fast.replace(feasibility=fast.feasibility and fast.feasibility.replace(instructions=654_321))
    slow = refused(2, too_slow("layer_2.conv", 1_500_000, 1_000_000))
    found = repository(fast, slow)
    finish(found, fast)
    profile = (LayerCost(layer="layer_2.conv", instructions=750, weights_bytes=1234),)
    winner = network_manifest(hash=fast.candidate.hash, profile=(*profile, profile[0].replace(layer="head")))
    other = network_manifest(hash="other", number=7, test_accuracy=0.9123)
    found.append(Finished(manifest=winner, others={"fastest": other}))
    limited = TASK.replace(constraints=TASK.constraints.replace(instructions_m=1.0))
    text = page(tmp_path, found, task=limited).text
    assert "654,321" in text and "instructions of an inference, millions" in text
    assert "layer_2.conv 750 50.00 % 1,234" in text
    assert "fastest #7 91.23 %" in text


def test_each_class_is_told_as_text_with_what_it_is_taken_for(tmp_path: Path) -> None:
    top = trained(1, 0.9)
    found = repository(top)
    finish(found, top)
    about = {"confusion": ((3, 1, 0), (0, 5, 0), (0, 2, 0)), "classes": ("<b>brick", "grass", "gravel")}
    manifest = network_manifest(hash=top.candidate.hash, **about)
    found.append(Finished(manifest=manifest, seconds=1.0))
    shown = page(tmp_path, found)
    assert "<b>brick 4 75.00 % 100.00 % grass (1 of 4) 3 1 0" in shown.text
    assert "gravel 2 0.00 % \N{EN DASH} grass (2 of 2) 0 2 0" in shown.text
    assert "grass 5 100.00 % 62.50 % none 0 5 0" in shown.text


def test_a_run_whose_finalists_were_all_refused_says_so(tmp_path: Path) -> None:
    top = trained(1, 0.91)
    found = repository(top)
    finish(found, top, board=None, reason="the board differs on 3 images")
    found.append(Searched(seconds=9.0, slot_busy_share=None, interrupted=False))
    text = page(tmp_path, found).text
    assert "no winner" in text
    assert "No finalist passed; best so far: candidate #1" in text
    assert "the board differs on 3 images" in text


def test_an_accuracy_that_is_no_number_breaks_nothing(tmp_path: Path) -> None:
    text = page(tmp_path, repository(trained(1, 0.9), trained(2, float("nan")))).text
    assert "Best so far: candidate #1" in text
    assert "nan" not in text.split("To repeat it")[0]


def test_what_nobody_measured_is_never_a_zero(tmp_path: Path) -> None:
    summary = TrainingSummary(val_accuracy=0.9)
    record = Record(candidate=trained(1, 0.9).candidate, status="ok", training=summary)
    found = repository(record)
    finalist = Finalist(number=1, hash=record.candidate.hash)
    found.append(FinalistEvaluated(**dict(finalist)))
    unknown = dict.fromkeys(["board", "board_images", "bit_equal_images", "instructions", "ram_bytes", "flash_bytes"])
    found.append(Finished(manifest=network_manifest(hash=finalist.hash, **unknown), seconds=1.0))
    text = page(tmp_path, found).text
    assert "RAM not measured" in text
    assert "Training of 1 candidates: not measured" in text
    assert "instructions per inference not measured" in text
    assert re.search(r"(?<![\d.])0\.0 (KB|s)|(?<![\d.])0 bytes", text) is None


@pytest.mark.parametrize(
    ("engine", "expected"), [(OFFLINE, True), ({**OFFLINE, "is_language_model": True}, False), ({}, False)]
)
def test_a_missing_language_model_is_said_plainly(tmp_path: Path, engine: dict[str, Any], expected: bool) -> None:
    """A searcher that asks no engine has none in its journal."""
    text = page(tmp_path, repository(trained(1, 0.9), engine=engine)).text
    notice = "No language model took part: proposals came from the rule-based stand-in `offline`."
    assert (notice in text) is expected


def test_hostile_text_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    diagnosis = Diagnosis(problem=HOSTILE, suggestion=HOSTILE)
    top = trained(1, 0.9, proposer=HOSTILE, parent=HOSTILE, diagnosis=diagnosis)
    broken = Record(candidate=Candidate(number=2, reply=f"{HOSTILE}\ud800"), status="invalid", reason=HOSTILE)
    found = repository(top, broken, engine={**OFFLINE, "name": HOSTILE})
    finish(found, top, reason=HOSTILE)
    seen = page(tmp_path, found)
    assert seen.tags.count("script") == 1
    assert "<script>alert" not in seen.source and "<img" not in seen.source
    assert HOSTILE in seen.text


def test_nothing_is_loaded_from_outside(tmp_path: Path) -> None:
    top = trained(1, 0.9)
    found = repository(top)
    finish(found, top)
    conclude(found, top)
    seen = page(tmp_path, found)
    assert [address for address in seen.addresses if not address.startswith("#")] == []
    assert not re.search(r"https?://|@import|url\((?!#)", seen.source)
    assert not {"link", "img", "iframe", "object"} & set(seen.tags)


def test_the_same_journal_gives_the_same_bytes(tmp_path: Path) -> None:
    found = repository(trained(1, 0.91), path=tmp_path / "journal.jsonl")
    write_report(tmp_path / "a.html", CONFIG, TASK, found)
    write_report(tmp_path / "b.html", CONFIG, TASK, Repository(tmp_path / "journal.jsonl"))
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_failure_leaves_the_old_report_and_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(self: Path, target: Path) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_report(path, CONFIG, TASK, repository())
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "old"


def test_the_command_to_repeat_carries_what_differs_from_the_defaults(tmp_path: Path) -> None:
    config = compose({"task": "digits", "searcher": "random"}, ["seed=3", "constraints.ram_kb=16"])
    text = page(tmp_path, repository(), config).text
    command = "automcu search --task digits --searcher random --set seed=3 --set constraints.ram_kb=16"
    assert command in text


def test_the_funnel_accounts_for_every_proposal() -> None:
    records = [
        trained(1, 0.9),
        refused(2, over("ram", 99, 9, Rung.ANALYTIC)),
        refused(3, over("ram", 99, 9)),
        Record(candidate=Candidate(number=4), status="duplicate"),
        Record(candidate=Candidate(number=5), status="failed"),
    ]
    rows = {row.label: row for row in plots.stages(records, proposals=6, finalists=1)}
    assert (rows["analytic"].reached, rows["analytic"].stopped) == (5, 1)
    assert (rows["link"].stopped, rows["failed"].stopped, rows["still open"].stopped) == (1, 1, 1)
    assert rows["trained"].reached == 1
    assert sum(row.stopped for row in rows.values()) + rows["trained"].reached == 6


def test_only_whole_units_that_people_read() -> None:
    assert (run_report.kb(1536), run_report.kb(20), run_report.kb(None)) == ("1.5 KB", "20 bytes", "not measured")
    assert (run_report.percent(0.5), run_report.percent(float("nan"))) == ("50.00 %", "not measured")
    assert [run_report.seconds(duration) for duration in (90, 600, 7500)] == ["90.0 s", "10 min", "2 h 5 min"]


def test_code_is_shown_by_its_length_with_the_text_to_unfold(tmp_path: Path) -> None:
    code = f'class Net(nn.Module):\n    """{HOSTILE}"""\n'
    record = trained(1, 0.9, network=GeneratedCode(code=code))
    found = repository(record)
    finish(found, record)
    seen = page(tmp_path, found)
    assert "PyTorch, 2 lines" in seen.text and "class Net(nn.Module):" in seen.text
    assert HOSTILE in seen.text and seen.tags.count("script") == 1


@pytest.mark.parametrize(
    "why", ["5000 tokens are used, the budget is 4000", "engine 'openai' failed 5 times in a row; last: engine: <b>"]
)
def test_why_a_search_stopped_early_is_told(tmp_path: Path, why: str) -> None:
    found = repository(trained(1, 0.9))
    found.append(Searched(seconds=9.0, slot_busy_share=None, interrupted=False, gave_up=why))
    seen = page(tmp_path, found)
    assert f"The search stopped early: {why}." in seen.text
    assert "<b>." not in seen.source


def test_the_trend_and_the_tokens_of_the_prefix_cache_stand_beside_each_other(tmp_path: Path) -> None:
    model = {"name": "openai", "model": "m", "is_language_model": True}
    spent = Cost(prompt_tokens=7000, cached_tokens=4200, completion_tokens=300, usd=0.0125)
    records = [trained(number, score, cost=spent) for number, score in ((1, 0.5), (2, 0.7), (3, 0.6))]
    text = page(tmp_path, repository(*records, engine=model)).text
    assert "prompt tokens 21,000 of these, from the prefix cache 12,600 completion tokens 900 money $0.0375" in text
    assert "trained, of all outcomes 3 of 3, 100.00 % accuracy, first proposed to best 50.00 % to 70.00 %" in text
    assert "Spearman +0.50" in text and "distinct candidates, accuracies 3, 3" in text


def test_a_table_has_a_winner_and_no_firmware(tmp_path: Path) -> None:
    cell = CellSpec(operations=("nor_conv_3x3",) * 6)
    found = repository()
    summary = TrainingSummary(val_accuracy=0.9, device="table")
    candidate = Candidate(number=1, cell=cell, hash=cell.hash(), proposer="genius")
    found.add(Record(candidate=candidate, status="ok", training=summary))
    about: dict[str, Any] = {"table": "NAS-Bench-201 cifar10", "number": 1, "hash": cell.hash()}
    manifest = TableManifest(architecture=str(cell), val_accuracy=0.9, test_accuracy=0.9374, **about)
    found.append(Finished(manifest=manifest))
    text = page(tmp_path, found).text
    assert "Candidate #1 is the best of this run in NAS-Bench-201 cifar10" in text
    assert "93.74 %" in text and str(cell) in text and "STM32" not in text.split("The search")[0]
