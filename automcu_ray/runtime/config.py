"""A run's configuration: YAML groups under configs/, overridden by flags, then by `--set a.b=c`."""

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.learning import Loss, MetricName
from automcu_ray.core.models import FiniteModel, FrozenModel, rule
from automcu_ray.core.objective import Objective
from automcu_ray.core.supervision import Supervision
from automcu_ray.core.training_recipe import Positive, Protocols, RankedBy
from automcu_ray.core.yaml_text import parse_yaml
from automcu_ray.networks.cell_network import Skeleton
from automcu_ray.problem.precision import Precision
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.runtime.config_files import CONFIGS, load, read_yaml
from automcu_ray.runtime.units import in_plain_numbers

_MOST_KEYS, _KEY_CHARS = 20, 80
GROUPS = ("target", "searcher", "engine", "backend", "trainer")
OPENERS = {"llm": "capacity", "llm_memory": "capacity"}  # whose first points a searcher begins with, unless told


class Plugin(BaseModel):
    """A plugin's name and its options; the plugin itself says which options it has."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str

    @property
    def options(self) -> dict[str, Any]:
        """All keys but the name."""
        return dict(self.model_extra or {})


class Budget(FiniteModel):
    """When a run ends: trained candidates, proposals (20 for each trained one unless given), seconds of search.

    Without `finalists` it ends with the search: no winner, no bundle, the test set unread. With three `bundles` the
    fastest and the smallest finalist that are accurate enough ship beside the winner.

    After `max_tokens` (read and written) or `max_usd` no engine is asked; what was proposed is still evaluated.
    """

    trained: Positive = 16
    proposals: Positive | None = None
    seconds: Annotated[float, Field(gt=0)] | None = None
    max_tokens: Positive | None = None
    max_usd: Annotated[float, Field(gt=0)] | None = None
    finalists: Annotated[int, Field(ge=0)] = 2
    bundles: Literal[1, 3] = 1


class BoardConfig(FrozenModel):
    """Where finalists run: `auto` emulates the target where QEMU can, `qemu` insists on it, `none` does not run."""

    mode: Literal["auto", "qemu", "none"] = "auto"
    images: Positive = 128


class Resources(FiniteModel):
    """Shares of the machine; None means worked out from its cores and GPUs."""

    cpus_per_trial: Annotated[float, Field(gt=0)] = 1
    gpus_per_trial: Annotated[float, Field(ge=0)] | None = None
    concurrent_trials: Positive | None = None
    toolchain_workers: Positive | None = None
    ray_address: Annotated[str, Field(pattern=r"^(auto|[\w.\-\[\]:]+:\d{1,5})$")] | None = None


class JailConfig(FiniteModel):
    """Where generated code runs, and what it may use: `none` gives up isolation, the limits stay.

    `memory_mb` comes on top of what torch takes, `processes` counts threads, `check_seconds` is for a check, and for
    building what is trained; `train_seconds` (paper 002: 1,800) for the proxy protocol, and each epoch of a finalist.
    """

    mode: Literal["bubblewrap", "none"] = "bubblewrap"
    memory_mb: Positive = 4096
    check_seconds: Annotated[float, Field(gt=0)] = 30
    train_seconds: Annotated[float, Field(gt=0)] = 1800
    processes: Positive = 64


class WarmStart(FrozenModel):
    """Points to evaluate before the searcher proposes anything, `points` of them at most.

    Without a number these are five, or half of `budget.trained` where that is less: the searcher is to be heard too.
    `runs` are folders of earlier runs: the best of their Pareto fronts, made to fit. The rest are first proposals of
    `searcher`: `capacity` or `{name: capacity, ...}`. It is that one for `llm` and `llm_memory`, unless null or code.
    """

    runs: Annotated[
        tuple[Path, ...],
        BeforeValidator(lambda value: [value] if isinstance(value, str | Path) else value),
        AfterValidator(lambda paths: tuple(Path(os.path.realpath(path)) for path in paths)),
    ] = ()
    searcher: Plugin | None = None
    points: Positive | None = None


class RunConfig(FrozenModel):
    """Everything a run depends on; written to runs/<name>/config.yaml.

    `second_opinions` are backends that build the finalists too: `[vela]`, or with options `[{name: vela, ...}]`.
    `gate: after` is an ablation: a refusal for want of bytes counts after training alone, which was then in vain.
    `start_from`, a network in a file, comes first; then `points_to_evaluate`, networks or cells as JSON objects.
    `objective` is accuracy, or what shall be least: instructions, ram or flash; `constraints.accuracy` is kept then.
    `metric` is what accuracy means here, `loss` what training minimises; what the data are for decides unless given.
    `normal` are classes of the data that are normal: all others are anomalies, and training sees the normal ones alone.
    """

    task: str
    seed: int = 0
    dataset: Plugin
    skeleton: Skeleton | None = None  # candidates are cells of NAS-Bench-201, built into it
    precision: Precision = "int8"
    metric: MetricName | None = None
    loss: Loss | None = None
    normal: tuple[str, ...] = ()
    objective: Objective = "accuracy"
    constraints: Constraints = Constraints()
    target: McuTarget
    searcher: Plugin
    engine: Plugin
    backend: Plugin
    second_opinions: tuple[Plugin, ...] = ()
    trainer: Protocols
    budget: Budget = Budget()
    gate: Literal["before", "after"] = "before"
    supervisor: Supervision = Supervision()
    board: BoardConfig = BoardConfig()
    resources: Resources = Resources()
    jail: JailConfig = JailConfig()
    loggers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()  # Ray Tune's own
    points_to_evaluate: tuple[dict[str, Any] | str, ...] = ()
    start_from: Annotated[Path, AfterValidator(Path.resolve)] | None = None
    warm_start: WarmStart = WarmStart()

    @property
    def writes_code(self) -> bool:
        """Whether candidates are PyTorch source, which runs in a jail."""
        return self.searcher.options.get("form") == "code"

    @property
    def warm_points(self) -> int:
        """How many points `warm_start` gives at most."""
        return self.warm_start.points or max(1, min(5, self.budget.trained // 2))

    @property
    def rank_by(self) -> RankedBy:
        """What the search ranks by: accuracy where code is written, for that says its training loss itself."""
        return "accuracy" if self.writes_code else self.trainer.rank_by

    @property
    def finalist_jail(self) -> JailConfig:
        """The jail of a finalist: a proxy's time for each epoch."""
        seconds = self.jail.train_seconds * max(1, self.trainer.full.epochs / self.trainer.proxy.epochs)
        return self.jail.replace(train_seconds=seconds)


def compose(choices: Mapping[str, str | None], settings: Sequence[str] = ()) -> RunConfig:
    """Return the configuration for `choices` (task and groups by name or YAML path) and `a.b=c` settings.

    Later wins: configs/default.yaml, the task's file, the data set's name, the group's file that either or a flag
    names, settings. A setting that names a file, such as searcher=evolution, counts as its flag.

    Raises:
        ConfigError: an unknown name, key or unit, or a value out of range; nothing has been written.
    """
    changes = [parse_setting(setting) for setting in settings]
    choices = {**choices, **{name: value for change in changes for name, value in change.items() if _picks(change)}}
    config = read_yaml(CONFIGS / "default.yaml")
    merge(config, load("task", choices.get("task") or config["task"]))
    config["task"] = Path(choices.get("task") or config["task"]).stem
    if name := choices.get("dataset"):  # a table of accuracies is of a data set: there it picks the table
        config["dataset"] = {**config["dataset"], "table": name} if "table" in config["dataset"] else {"name": name}
    for group in GROUPS:
        name = choices.get(group) or config[group]
        if isinstance(name, str):
            config[group] = load(group, name)
    for change in changes:
        if not _picks(change):
            merge(config, change)
    _load_parts(config, "second_opinions", "backend")
    _load_parts(config["searcher"], "proposers", "searcher")
    _load_parts(config["searcher"], "fill", "searcher")
    _open(config)
    _spare_ram(config)
    _load_parts(config.get("warm_start"), "searcher", "searcher")
    return validate(config)


def _open(config: dict[str, Any]) -> None:
    """Let `warm_start.searcher` be the searcher's usual opener where nothing is said, in place."""
    searcher, warm = config["searcher"], config.setdefault("warm_start", {})
    if isinstance(found := config.get("supervisor"), dict) and found.get("agents") == "shared":
        return  # who share a conversation propose all by themselves
    if isinstance(warm, dict) and isinstance(searcher, dict) and searcher.get("form") != "code":
        opener = OPENERS.get(str(searcher.get("name")))
        warm |= {"searcher": opener} if opener and "searcher" not in warm else {}


def _spare_ram(config: dict[str, Any]) -> None:
    """Let c_qemu take as little RAM as can be where the least is sought and nothing is said, in place."""
    backend = config["backend"]
    if config.get("objective") == "ram" and isinstance(backend, dict) and backend.get("name") == "c_qemu":
        backend.setdefault("arena", "least")


def _picks(change: Mapping[str, Any]) -> bool:
    """Return whether a setting picks a file by its name, as a flag does."""
    return any(name in ("task", "dataset", *GROUPS) and isinstance(value, str) for name, value in change.items())


def _load_parts(holder: Any, key: str, group: str) -> None:
    """Replace what a key names by what the group's files hold, in place; anything odd is left to validation."""
    value = holder.get(key) if isinstance(holder, dict) else None
    if isinstance(value, str):
        holder[key] = load(group, value)
    elif isinstance(value, list):
        holder[key] = [load(group, one) if isinstance(one, str) else one for one in value]


def validate(config: Mapping[str, Any]) -> RunConfig:
    """Return the configuration as a model, or raise ConfigError in one line."""
    try:
        return RunConfig.model_validate(config)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])[:_KEY_CHARS]
        if first["type"] != "extra_forbidden":
            raise ConfigError(f"{where}: {rule(first)}, found {str(first['input'])[:80]!r}.") from error
        known = _known_keys(first["loc"])
        near = difflib.get_close_matches(str(first["loc"][-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}."
        raise ConfigError(f"unknown key {where!r} in the configuration: {hint}") from error


def parse_setting(setting: str) -> dict[str, Any]:
    """Return `a.b=c` as {"a": {"b": c}}, c read as YAML; sizes and times may have units, `constraints.ram=24KB`."""
    path, equals, text = in_plain_numbers(setting).partition("=")
    if not equals or not path:
        raise ConfigError(f"--set wants key=value, for instance constraints.ram_kb=64; found {setting[:_KEY_CHARS]!r}.")
    try:
        value = parse_yaml(text)
    except ValueError as error:
        raise ConfigError(f"--set {path[:_KEY_CHARS]}: {text[:_KEY_CHARS]!r} is not a YAML value: {error}.") from error
    keys = path.split(".")
    if len(keys) > _MOST_KEYS:
        raise ConfigError(f"--set {path[:_KEY_CHARS]}: no key has {len(keys)} parts.")
    for key in reversed(keys):
        value = {key: value}
    return value  # type: ignore[no-any-return]


def merge(into: dict[str, Any], new: Mapping[str, Any]) -> None:
    """Put `new` over `into`, key by key, in place."""
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the model in which an unknown key was found."""
    model: Any = RunConfig
    for part in location[:-1]:
        field = getattr(model, "model_fields", {}).get(part)
        model = field.annotation if field is not None else model
    return sorted(getattr(model, "model_fields", {}))
