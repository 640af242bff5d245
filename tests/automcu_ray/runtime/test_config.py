"""Configuration: groups, flags, settings, and errors of one line."""

import json
from pathlib import Path

import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.runtime.config import compose, merge, parse_setting
from automcu_ray.runtime.config_files import CONFIGS, names, read_yaml
from automcu_ray.runtime.run_folder import RunFolder


def message(choices: dict[str, str | None], *settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        compose(choices, settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_default_is_digits_with_several_proposers_on_stm32f405() -> None:
    config = compose({})
    assert (config.task, config.searcher.name, config.target.name) == ("digits", "mixed", "stm32f405")
    assert (config.constraints.ram_kb, config.constraints.flash_kb, config.precision) == (24, 48, "int8")


def test_searchers_that_ask_a_model_begin_with_what_needs_none_unless_told() -> None:
    for name in ("llm", "llm_memory"):
        opened = compose({"searcher": name})
        assert opened.warm_start.searcher is not None and opened.warm_start.searcher.name == "capacity"
        assert opened.warm_start.searcher.options == compose({"searcher": "capacity"}).searcher.options
        assert compose({"searcher": name}, ["warm_start.searcher=null"]).warm_start.searcher is None
        other = compose({"searcher": name}, ["warm_start.searcher=evolution"]).warm_start.searcher
        assert other is not None and other.name == "evolution"
    for choices, settings in (({"searcher": "mixed"}, []), ({"searcher": "llm_memory"}, ["searcher.form=code"])):
        assert compose(choices, settings).warm_start.searcher is None


@pytest.mark.parametrize(("trained", "points"), [(1, 1), (3, 1), (6, 3), (16, 5)])
def test_first_points_leave_half_of_the_budget_unless_their_number_is_said(trained: int, points: int) -> None:
    assert compose({}, [f"budget.trained={trained}"]).warm_points == points
    assert compose({}, [f"budget.trained={trained}", "warm_start.points=9"]).warm_points == 9


@pytest.mark.parametrize("sweep", ["feedback", "table4", "mcu_digits", "mcu_cifar10"])
def test_ablations_compare_what_a_searcher_does_by_itself(sweep: str) -> None:
    settings = read_yaml(CONFIGS / "sweep" / f"{sweep}.yaml")["settings"]
    assert compose({"searcher": "llm"}, settings).warm_start.searcher is None


def test_swapping_one_group_changes_that_group_alone() -> None:
    default, other = compose({}).model_dump(), compose({"searcher": "random"}).model_dump()
    assert {key for key in default if default[key] != other[key]} == {"searcher"}


def test_a_setting_wins_over_the_tasks_file() -> None:
    config = compose({"task": "digits"}, ["constraints.ram_kb=64", "budget.trained=3", "searcher.memory=2"])
    assert (config.constraints.ram_kb, config.constraints.flash_kb) == (64, 48)
    assert (config.budget.trained, config.searcher.options["memory"]) == (3, 2)


def test_a_path_is_taken_where_a_name_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("dataset: {name: digits}\nconstraints: {ram_kb: 8}\nseed: 7\n")
    config = compose({"task": str(path)})
    assert (config.task, config.constraints.ram_kb, config.seed, config.target.name) == ("mine", 8, 7, "stm32f405")


@pytest.mark.thorough
@pytest.mark.parametrize("group", ["task", "target", "searcher", "engine", "backend", "trainer"])
def test_every_file_of_a_group_composes(group: str) -> None:
    for name in names(group):
        compose({group: name})


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("searcher=llm_memry", "did you mean 'llm_memory'?"),
        ("searcher=evolutoin", "did you mean 'evolution'?"),
        ("warm_start.searcher=capacty", "did you mean 'capacity'?"),
        ("warm_start.run=[runs/a]", "unknown key 'warm_start.run' in the configuration: did you mean 'runs'?"),
        ("warm_start.points=0", "warm_start.points: "),
        ("warm_start.runs=3", "warm_start.runs: Input should be a list, like [a, b], found '3'."),
        ("budget=3", "budget: Input should be `key: value` lines, found '3'."),
        ("searcher=3", "searcher: Input should be `key: value` lines, found '3'."),
        ("constraints.ram_kb=lots", "constraints.ram_kb: "),
        ("constraints.ram_kb=lots", "'lots'"),
        ("constraints.flash_kb=-1", "constraints.flash_kb: Input should be greater than 0, found '-1'."),
        (
            "trainer.proxy.learning_rate=.inf",
            "trainer.proxy.learning_rate: Input should be a finite number, found 'inf'.",
        ),
        ("constraints.ram_kb=.inf", "constraints.ram_kb: Input should be a finite number, found 'inf'."),
        ("budget.seconds=.inf", "budget.seconds: Input should be a finite number, found 'inf'."),
        ("budget.trained", "--set wants key=value"),
    ],
)
def test_a_wrong_setting_is_one_line_with_key_rule_and_value(setting: str, why: str) -> None:
    found = message({}, setting)
    assert found == why if why.endswith("'.") else why in found


def test_unknown_key_in_yaml_names_key_and_nearest(tmp_path: Path) -> None:
    path = tmp_path / "typo.yaml"
    path.write_text("constraints: {ram_kbb: 8}\n")
    assert message({"task": str(path)}) == (
        "unknown key 'constraints.ram_kbb' in the configuration: did you mean 'ram_kb'?"
    )


def test_no_such_file_and_no_mapping(tmp_path: Path) -> None:
    assert "no file" in message({"task": str(tmp_path / "none.yaml")})
    (tmp_path / "list.yaml").write_text("- 1\n")
    assert "found list" in message({"task": str(tmp_path / "list.yaml")})
    (tmp_path / "broken.yaml").write_text("a: [")
    assert "cannot be read as YAML" in message({"task": str(tmp_path / "broken.yaml")})


def test_merge_replaces_values_and_keeps_neighbours() -> None:
    into = {"a": {"b": 1, "c": 2}}
    merge(into, parse_setting("a.b=[3, 4]"))
    assert into == {"a": {"b": [3, 4], "c": 2}}


def test_parts_by_name_are_those_of_the_groups_files() -> None:
    settings = ["searcher.proposers=[capacity, {name: evolution, population: 3}]", "warm_start.searcher=evolution"]
    config = compose({"searcher": "mixed"}, settings)
    first, second = config.searcher.options["proposers"]
    assert (first["name"], second) == ("capacity", {"name": "evolution", "population": 3})
    assert config.warm_start.searcher is not None
    assert config.warm_start.searcher.model_dump() == compose({"searcher": "evolution"}).searcher.model_dump()
    assert (config.warm_start.runs, config.warm_points) == ((), 5)


def test_a_data_sets_name_replaces_the_tasks_or_picks_its_table() -> None:
    assert compose({"task": "cifar10", "dataset": "digits"}).dataset.model_dump() == {"name": "digits"}
    table = compose({"task": "nasbench201", "dataset": "cifar100"}).dataset
    assert table.model_dump() == {"name": "nasbench201", "table": "cifar100"}
    assert compose({"task": "cifar10", "dataset": "mnist"}, ["dataset.max_train=9"]).dataset.options == {"max_train": 9}


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        ("task", "cifar10"),
        ("dataset", "mnist"),
        ("searcher", "evolution"),
        ("target", "rp2040"),
        ("engine", "offline"),
        ("backend", "analytic"),
        ("trainer", "fast"),
    ],
)
def test_a_setting_that_names_a_file_counts_as_its_flag(flag: str, name: str) -> None:
    assert compose({}, [f"{flag}={name}"]) == compose({flag: name}) != compose({})


def test_settings_of_what_a_setting_names_go_over_its_file() -> None:
    config = compose({"searcher": "random"}, ["searcher.sample=3", "searcher=evolution", "task=cifar10"])
    assert (config.searcher.name, config.searcher.options["sample"]) == ("evolution", 3)
    assert (config.task, config.dataset.name) == ("cifar10", "cifar10")


def test_a_warm_start_keeps_the_run_that_a_link_led_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the time the run is resumed, `latest` is the run itself, and the working directory may be another one."""
    (tmp_path / "first").mkdir()
    (tmp_path / "latest").symlink_to("first")
    monkeypatch.chdir(tmp_path)
    for setting in (["latest"], f"{tmp_path}/latest", "first/../latest"):
        config = compose({}, [f"warm_start.runs={json.dumps(setting)}"])
        assert config.warm_start.runs == ((tmp_path / "first").resolve(),)
    second = RunFolder.new(tmp_path, "second", config)
    second.create(config)
    assert (tmp_path / "latest").resolve() == second.path
    assert RunFolder.existing(tmp_path / "latest")[1].warm_start.runs == config.warm_start.runs


def test_code_is_ranked_by_accuracy_whatever_the_trainer_says() -> None:
    assert compose({"task": "cifar10"}).rank_by == "loss"
    assert compose({"task": "cifar10"}, ["searcher.form=code"]).rank_by == "accuracy"
    assert compose({"task": "digits"}).rank_by == "accuracy"


ALIASES = f"[&a [{'x,' * 8}], &b [{'*a,' * 8}], &c [{'*b,' * 8}], &d [{'*c,' * 8}], &e [{'*d,' * 8}], [{'*e,' * 8}]]"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "value",
    [
        "[" * 5000,
        "{a: " * 5000,
        "&a [*a]",
        "&a {b: *a}",
        "2020-13-45",
        "!!bool x",
        "!!int ''",
        "!!timestamp x",
        "0x_",
        ALIASES,
    ],
    ids=lambda value: value[:12],
)
def test_yaml_that_breaks_the_reader_is_one_line(value: str, tmp_path: Path) -> None:
    assert message({}, f"x={value}").startswith("--set x: ")
    (tmp_path / "mine.yaml").write_text(f"seed: {value}\n")
    assert "mine.yaml" in message({"task": str(tmp_path / "mine.yaml")})


def test_a_key_of_a_thousand_parts_is_one_line() -> None:
    assert message({}, "a" + ".b" * 5000 + "=1").startswith("--set a.b.b")


def test_where_the_least_ram_is_sought_kernels_do_without_what_is_left() -> None:
    sought = ["objective=ram", "constraints.accuracy=0.9"]
    assert compose({}, sought).backend.options == {"arena": "least"}
    assert compose({}, [*sought, "backend.arena=fast"]).backend.options == {"arena": "fast"}
    assert compose({}).backend.options == compose({"backend": "analytic"}, sought).backend.options == {}
