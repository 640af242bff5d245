"""The answers at the top of a report, and what comes after it."""

from pathlib import Path

import pytest

from automcu_ray.core.cost import Cost
from automcu_ray.core.feasibility import Rung
from automcu_ray.core.memory_map import MemoryMap
from automcu_ray.records.events import Decided, EngineUsed, Finished, Started, ToolCalled
from automcu_ray.reports.handover import flashing
from automcu_ray.reports.in_short import in_short, interval, refused_most
from automcu_ray.reports.run_report import write_report
from tests.automcu_ray.records.test_events import network_manifest
from tests.automcu_ray.reports.test_memory_figure import ARENA
from tests.automcu_ray.reports.test_run_report import CONFIG, HOSTILE, TASK, over, refused, repository, trained

README = """# A network

## Flash the test firmware

It talks over `a port`.

    pyocd load <script>
    openocd

## Check it

    python3 verify.py
"""


@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (81, 263, 0.2553, 0.3662), (359, 360, 0.9844, 0.9995)],
)
def test_the_interval_is_that_of_the_literature(right: int, of: int, low: float, high: float) -> None:
    """Newcombe 1998, table I (doi:10.1002/(SICI)1097-0258(19980430)17:8<857::AID-SIM777>3.0.CO;2-E): 81 of 263."""
    assert interval(right, of) == pytest.approx((low, high), abs=1e-4)


def test_a_winner_is_explained_in_lines() -> None:
    found = repository(trained(1, 0.9), refused(2, over("ram", 30000, 24576), over("flash", 60000, 49152)))
    found.append(Decided(decision="ship", reason="the most accurate", numbers=(1,), at_s=1.0))
    full = {"ram_bytes": 24000, "ram_limit_bytes": 24576, "memory_map": ARENA, "confusion": ((9, 1), (0, 10))}
    said = dict(in_short(network_manifest(**full), found))
    assert said["Why this one"] == "the most accurate"
    assert said["What limits it"].startswith("RAM: of what is allowed it uses 97 % of the RAM, 61 % of the Flash")
    assert said["What limits it"].endswith("RAM is fullest while layer_2 runs")
    assert "19 of 20 test images" in said["How sure its accuracy is"]
    assert said["What was refused most"] == "1 of 2 candidates were refused, for RAM at link (1), Flash at link (1)"
    empty = MemoryMap(arena_bytes=0, steps=(), buffers=())
    bare = network_manifest(ram_bytes=None, flash_bytes=None, instructions=None, confusion=(), memory_map=empty)
    assert dict(in_short(bare, repository())) == {"What was refused most": "nothing was refused"}


def test_refusals_are_counted_by_resource_and_rung() -> None:
    early = refused(1, over("ram", 30000, 24576, rung=Rung.ANALYTIC))
    late = [refused(number, over("flash", 60000, 49152)) for number in (2, 3)]
    said = refused_most([early, *late, trained(4, 0.9)])
    assert said == "3 of 4 candidates were refused, for Flash at link (2), RAM at analytic (1)"
    assert refused_most([]) == "nothing was refused"


@pytest.mark.parametrize(
    ("cost", "short", "in_full"),
    [
        (Cost(), ", no language model was asked.", "<dd>not asked</dd>"),
        (Cost(llm_seconds=2.0), ", tokens not told.", "<dt>completion tokens</dt><dd>not measured</dd>"),
        (Cost(prompt_tokens=700, completion_tokens=60), ", 760 tokens, $0.0000.", "<dd>700</dd>"),
    ],
)
def test_a_language_model_that_was_there_may_have_said_nothing(
    cost: Cost, short: str, in_full: str, tmp_path: Path
) -> None:
    found = repository(trained(1, 0.95, hash="ab"))
    found.append(Started(engine=EngineUsed(name="hf_local", model="smollm2", is_language_model=True)))
    found.append(ToolCalled(reply="{}", said="no", cost=cost), Finished(manifest=network_manifest(), seconds=90.0))
    write_report(tmp_path / "report.html", CONFIG, TASK, found)
    page = (tmp_path / "report.html").read_text()
    assert short in page and in_full in page


def test_the_report_says_how_to_flash_and_shows_the_arena(tmp_path: Path) -> None:
    winner = trained(1, 0.95, hash="ab")
    found = repository(winner)
    found.append(Finished(manifest=network_manifest(memory_map=ARENA), seconds=90.0))
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "README.md").write_text(README)
    (tmp_path / "bundle" / "verify.py").touch()
    assert flashing(tmp_path / "bundle" / "README.md") == [
        (False, "It talks over a port."),
        (True, "pyocd load <script>\nopenocd"),
    ]
    write_report(tmp_path / "report.html", CONFIG, TASK, found)
    page = (tmp_path / "report.html").read_text()
    assert "<pre>pyocd load &lt;script&gt;" in page and "automcu verify" in page and "It talks over a port." in page
    assert "What it cost" in page and "90.0 s in all, no language model." in page
    assert 'id="arena"' in page and "Fullest at layer_2 (operator 2 of 3): 1000 bytes of 1000 bytes" in page
    hostile = ARENA.replace(steps=(HOSTILE, "<b>", "c"))
    again = repository(winner)
    again.append(Finished(manifest=network_manifest(memory_map=hostile), seconds=90.0))
    write_report(tmp_path / "report.html", CONFIG, TASK, again)
    assert "<script>alert" not in (tmp_path / "report.html").read_text()
