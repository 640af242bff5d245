"""A searcher put together: the points that it is given before it proposes anything itself."""

from pathlib import Path

import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.records.journal import Repository
from automcu_ray.run.assembly import make_searcher
from automcu_ray.run.plan import Plan, prepare
from automcu_ray.runtime.config import RunConfig, compose
from automcu_ray.testing.searcher_contract import drive
from searchers.tune_searcher import TuneSearcher

pytestmark = pytest.mark.thorough

LAYERS = "[{type: conv, out_channels: 8}, {type: conv, out_channels: 12}]"


def config(*settings: str, searcher: str = "evolution") -> RunConfig:
    return compose({"task": "digits", "searcher": searcher, "backend": "analytic"}, settings)


def searcher_of(plan: Plan, repository: Repository | None = None) -> TuneSearcher:
    return make_searcher(plan, None, repository or Repository(), workers=())


def earlier_run(folder: Path) -> Path:
    """A run of random search that trained three candidates, on another target and at another precision."""
    folder.mkdir()
    changes = ("precision=float32", "constraints.ram_kb=96", "constraints.flash_kb=400", "budget.trained=3")
    searcher = searcher_of(prepare(config(*changes, searcher="random")), Repository(folder / "journal.jsonl"))
    drive(searcher, 3)
    assert searcher.trained == 3
    return folder


def test_points_come_in_order_named_ones_runs_searcher(tmp_path: Path) -> None:
    run = earlier_run(tmp_path / "before")
    settings = (f"points_to_evaluate=[{{backbone: {LAYERS}}}]", f"warm_start.runs=[{run}]")
    plan = prepare(config(*settings, "warm_start.searcher=random", "warm_start.points=5"))
    searcher = searcher_of(plan)
    proposers = [point.proposer for point in searcher.waiting]
    assert proposers == ["points_to_evaluate", *["warm_start"] * 5] and len(plan.points) == 4
    assert len({point.hash for point in searcher.waiting}) == 6
    drive(searcher, 6)
    assert [record.candidate.number for record in searcher.repository.records] == [1, 2, 3, 4, 5, 6]
    assert {record.status for record in searcher.repository.records} == {"ok"}  # nothing beyond the bounds was given


def test_a_run_that_goes_on_gets_no_point_twice_and_needs_no_other_run_any_more(tmp_path: Path) -> None:
    run, journal = earlier_run(tmp_path / "before"), tmp_path / "journal.jsonl"
    wanted = config(f"warm_start.runs=[{run}]", "warm_start.searcher=random")
    first = searcher_of(prepare(wanted), Repository(journal))
    drive(first, 2)
    (run / "journal.jsonl").unlink()
    with pytest.raises(ConfigError, match="no run in"):
        prepare(wanted)
    again = searcher_of(prepare(wanted, begun=True), Repository(journal))
    assert len(again.repository.proposed) == 5 and [point.number for point in again.waiting] == [3, 4, 5]
    drive(again, 4, first=10)
    assert [record.candidate.proposer for record in again.repository.records] == ["warm_start"] * 5 + [
        "EvolutionSearch"
    ]


def test_first_points_of_a_searcher_that_finds_nothing_end_in_bounded_time() -> None:
    plan = prepare(config("warm_start.searcher=random", "constraints.ram_kb=0.05"))
    assert len(searcher_of(plan).waiting) == 0


def test_a_searcher_that_asks_an_engine_gives_no_first_points() -> None:
    with pytest.raises(ConfigError, match="'llm' asks an engine"):
        prepare(config("warm_start.searcher=llm"))
    with pytest.raises(ConfigError, match="unknown searcher 'capcity': did you mean 'capacity'"):
        prepare(config("warm_start.searcher={name: capcity}"))


def test_a_searcher_that_asks_a_model_is_handed_what_capacity_proposes_first() -> None:
    searcher = searcher_of(
        prepare(compose({"task": "digits", "searcher": "llm", "backend": "analytic"}, ["engine=offline"]))
    )
    assert [point.proposer for point in searcher.waiting] == ["warm_start"] * 5
    alone = searcher_of(prepare(config(searcher="capacity")))
    drive(alone, 5)
    assert [point.hash for point in searcher.waiting] == [r.candidate.hash for r in alone.repository.records]


def test_mixed_by_itself_asks_a_model_where_there_is_one_and_no_rules() -> None:
    by_rules = prepare(compose({"task": "digits", "engine": "offline", "backend": "analytic"}))
    assert by_rules.engine is None
    settings = ["engine.base_url=http://localhost:1/v1", "engine.model=m"]
    asked = prepare(compose({"task": "digits", "engine": "openai", "backend": "analytic"}, settings))
    assert asked.engine is not None and asked.engine.name == "openai"
    proposer = searcher_of(asked).proposer
    assert list(proposer.proposers) == ["capacity", "evolution", "llm_memory"]  # type: ignore[attr-defined]


def test_mixed_wants_an_engine_only_where_a_proposer_asks_one() -> None:
    assert prepare(config("searcher.proposers=[evolution, random]", searcher="mixed")).engine is None
    with_rules = prepare(config("searcher.proposers=[evolution, llm_memory]", searcher="mixed"))
    assert with_rules.engine is not None and with_rules.engine.name == "offline"
