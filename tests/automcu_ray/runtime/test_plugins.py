"""Plugins in packages of their own: found by entry points, and named where they cannot be used."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from automcu_ray.commands import doctor
from automcu_ray.core.errors import ConfigError
from automcu_ray.problem.task import Task
from automcu_ray.runtime import plugins
from automcu_ray.runtime.config import compose
from automcu_ray.runtime.config_files import names
from searchers import SEARCHERS, pick_proposer

Install = Callable[[str, str], None]
SEARCHER = """
from searchers.random import Random

class Mine(Random):
    \"\"\"Chance, from elsewhere.\"\"\"

    def __init__(self, task, *, seed: int = 0, luck: int = 7):
        super().__init__(task, seed=seed)
        self.luck = luck
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package of one module, by name, whose entry points are lines of entry_points.txt."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, entries: str, module: str = SEARCHER) -> None:
        (tmp_path / f"{name}.py").write_text(module)
        about = tmp_path / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(entries)

    return write


def test_a_searcher_of_another_package_is_used_by_its_name_and_has_options(install: Install, digits_task: Task) -> None:
    install("acme_one", "[automcu.searchers]\nacme = acme_one:Mine\n")
    config = compose({"searcher": "acme", "backend": "analytic"}, ["searcher.luck=9"])
    proposer: Any = pick_proposer(config.searcher, digits_task, seed=0)
    assert (type(proposer).__name__, proposer.luck) == ("Mine", 9)
    assert names("searcher")[-1] == "acme" and compose({"searcher": "acme"}).searcher.options == {}
    with pytest.raises(ConfigError, match=r"unknown searcher 'acne': did you mean 'acme'\? known: acme, bayesian"):
        compose({"searcher": "acne"})


@pytest.mark.parametrize("kind", ["searcher", "engine", "backend", "dataset"])
def test_each_kind_has_a_group_of_entry_points(kind: str, install: Install) -> None:
    install(f"acme_{kind}", f"[automcu.{kind}s]\nacme = acme_{kind}:Mine\n")
    assert plugins.load(kind, {}, "acme").__name__ == "Mine"
    assert plugins.known(kind, ["ours"]) == ["ours", "acme"]


def test_a_name_of_ours_is_not_replaced_silently(install: Install) -> None:
    install("acme_two", "[automcu.searchers]\nrandom = acme_two:Mine\n")
    both = "'random' is both searchers.random:Random and acme_two:Mine of package acme_two"
    with pytest.raises(ConfigError, match=both):
        plugins.load("searcher", SEARCHERS, "random")


def test_two_packages_with_one_name_are_both_told(install: Install) -> None:
    install("acme_three", "[automcu.searchers]\nacme = acme_three:Mine\n")
    install("acme_four", "[automcu.searchers]\nacme = acme_four:Mine\n")
    with pytest.raises(ConfigError, match=r"(?=.*acme_three:Mine of package)(?=.*acme_four:Mine of package)"):
        plugins.load("searcher", SEARCHERS, "acme")


def test_a_broken_one_is_an_error_only_when_asked_for_and_the_doctor_lists_it(install: Install) -> None:
    install("acme_five", "[automcu.searchers]\nacme = acme_five:Gone\n[automcu.datasets]\nfoo = acme_gone:load\n")
    assert plugins.load("searcher", SEARCHERS, "random").__name__ == "Random"
    with pytest.raises(ConfigError, match="'acme', acme_five:Gone of package acme_five, cannot be imported: Attribute"):
        plugins.load("searcher", SEARCHERS, "acme")
    found = {(one.kind, one.name): one for one in doctor.find_all()}
    assert "acme_five:Gone of package acme_five, cannot be imported" in found["searcher", "acme"].needs
    assert "No module named 'acme_gone'" in found["dataset", "foo"].needs
    assert found["searcher", "random"].usable
