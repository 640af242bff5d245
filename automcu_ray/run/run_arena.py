"""Runs a task of the arena: for each setting an agent, its workspace, its journal, and a trial an attempt."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from rich.console import Console

from automcu_ray.core.confinement import obstacle
from automcu_ray.core.errors import ConfigError, ToolMissingError
from automcu_ray.core.folder_lock import held
from automcu_ray.core.models import FrozenModel, rule
from automcu_ray.problem.arena import ArenaTask, Setting, task_of
from automcu_ray.records.journal import Repository
from automcu_ray.reports.arena_report import Course, write_report
from automcu_ray.reports.console import say, say_interrupted
from automcu_ray.run.trials import interrupted, tidy
from automcu_ray.runtime import cluster, interruption
from automcu_ray.runtime.cluster import ray, tune
from automcu_ray.runtime.config import JailConfig, Plugin, Resources, merge, parse_setting
from automcu_ray.runtime.config_files import load, names, read_yaml
from automcu_ray.runtime.run_folder import RunFolder
from backends.arena.rigs import ArenaRig, rig_of
from backends.boards.pool import BoardEntry, emulated
from searchers.agent.agent import Agent
from searchers.agent.judge import Judge
from searchers.agent.tune_agent import AgentSearcher
from searchers.agent.workspace import Workspace
from searchers.engines.base import Engine
from trainables.arena.recording import check_instruments
from trainables.arena.workload import Workload, prepare, write_data, write_seed
from trainables.firmware import FirmwareTrainable
from trainables.jail.sandbox import require_sandbox
from trainables.jail.shell import JailedShell

SEARCHERS = ("agent",)
NO_JUDGE = "none"


class ArenaConfig(FrozenModel):
    """Everything a run of the arena depends on; written to its config.yaml."""

    task: ArenaTask
    settings: tuple[Setting, ...] = Field(default=("hil",), min_length=1)
    searcher: str = "agent"
    engine: Plugin
    judge: Plugin | None = None
    seed: int = 0
    boards: tuple[BoardEntry, ...] = Field(default=emulated(1), min_length=1)
    resources: Resources = Resources()


def compose(
    task: str,
    settings: tuple[Setting, ...],
    searcher: str,
    engine: str,
    seed: int,
    changes: list[str],
    boards: Path | None,
    judge: str = NO_JUDGE,
) -> ArenaConfig:
    """Return a run's configuration; `changes` are `attempts=3`, `constraints.ram_kb=4`, `engine.model=...`.

    Raises:
        ConfigError: an unknown name or key, or a value out of range.
    """
    if searcher not in SEARCHERS:
        raise ConfigError(f"unknown searcher {searcher[:60]!r} of the arena; known: {', '.join(SEARCHERS)}.")
    text, asked = load("arena", task), {"engine": load("engine", engine)}
    if judge != NO_JUDGE:
        asked["judge"] = load("engine", judge)
    for change in changes:
        found = parse_setting(change)
        if "judge" in found and judge == NO_JUDGE:
            raise ConfigError(f"--set {change[:60]}: nobody judges; name an engine that does with --judge.")
        merge(asked if found.keys() & {"engine", "judge"} else text, found)
    if isinstance(text.get("target"), str):
        text["target"] = load("target", text["target"])
    values: dict[str, Any] = {"settings": settings, "searcher": searcher, "seed": seed, **asked}
    if boards is not None:
        values["boards"] = load("boards", str(boards)).get("boards", [])
    try:
        return ArenaConfig(task=task_of(Path(task).stem, text), **values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])[:80]
        raise ConfigError(f"{where}: {rule(first)}, found {str(first['input'])[:80]!r}.") from error


def tasks_of_rig(rig: str) -> list[ArenaTask]:
    """Return the tasks that come with the project and are for a rig."""
    found = []
    for name in names("arena"):
        text = load("arena", name)
        target = {"target": load("target", text["target"])} if isinstance(text["target"], str) else {}
        found.append(task_of(name, {**text, **target}))
    return [task for task in found if task.rig.name == rig]


def existing(path: Path) -> tuple[RunFolder, ArenaConfig]:
    """Return the folder and configuration of a run, for `--resume`.

    Raises:
        ConfigError: there is no run of the arena.
    """
    folder = RunFolder.begun(path)
    try:
        return folder, ArenaConfig.model_validate(read_yaml(folder.config))
    except ValidationError as error:
        raise ConfigError(
            f"{folder.config} is not of a run of the arena: resume it by the command that made it."
        ) from error


def check_machine(config: ArenaConfig, engine: Engine, judge: Engine | None = None) -> None:
    """Raise where this machine, or this engine, cannot play, or the other one not judge.

    Raises:
        ConfigError: an engine that is no language model, a target without emulator, or a board without the instrument
            that the task needs.
        ToolMissingError: a program, or the sandbox, is missing.
    """
    rig = rig_of(config.task)
    rig.require()
    check_boards(rig, config.boards)
    check_instruments(config.task, config.boards)
    if not engine.is_language_model:
        raise ConfigError(
            f"searcher 'agent' asks a language model to call tools, which engine {engine.name!r} cannot: take --engine "
            "openai with --set engine.base_url=... and engine.model=..."
        )
    if judge is not None and not judge.is_language_model:
        raise ConfigError(
            f"a judge is a language model, which engine {judge.name!r} is not: take --judge openai with "
            "--set judge.base_url=... and judge.model=..."
        )
    require_sandbox(JailConfig())
    if why := obstacle():
        raise ToolMissingError(f"the arena compiles and runs what an agent wrote, in a sandbox alone: {why}")


def check_boards(rig: ArenaRig, boards: Sequence[BoardEntry]) -> None:
    """Raise unless a task's firmware can run on every board of the map.

    Raises:
        ConfigError: which board cannot, and what its entry should say.
    """
    for board in boards:
        if board.runner == "qemu" and rig.name != "qemu":
            raise ConfigError(
                f"the task is for a real {rig.name}, and board {board.id!r} of the map is emulated: give --boards a "
                "map with one, its serial port and its flasher (docs/arena.md)."
            )


def run(config: ArenaConfig, engine: Engine, folder: RunFolder, console: Console, judge: Engine | None = None) -> int:
    """Play all settings, or what is left of them, and write the report; return the exit status.

    0: some setting has a valid artifact, 1: none has, 130 or 143: interrupted.

    Raises:
        ConfigError: another process works on this run.
        ValueError: the configuration names a judge, and none is given, or the other way round.
    """
    if (config.judge is None) != (judge is None):
        raise ValueError("a run has a judge exactly where its configuration names one")
    with held(folder.path):
        folder.create(config)
        with console.status("the workload"):
            workload = prepare(config.task, folder.path / "workload")
        courses, status = [], 0
        ours = cluster.start(config.resources, boards=len(config.boards))
        try:
            with cluster.until_its_end(ours):
                for setting in config.settings:
                    searcher = make_searcher(config, setting, engine, workload, folder.path / setting, judge)
                    courses.append(Course(setting, searcher.repository, folder.path / setting / "attempts"))
                    if _play(config, searcher, workload, folder.path / setting, console):
                        status = say_interrupted(console, f"Go on with --resume {folder.path}")
                        break
                    if searcher.gave_up:
                        say(console, f"{setting}: stopped early: {searcher.gave_up}")
        except KeyboardInterrupt:
            status = say_interrupted(console, f"Go on with --resume {folder.path}")
        finally:
            names = [one.model or one.name for one in (engine, judge) if one is not None]
            write_report(folder.report, config.task, names[0], courses, judge="".join(names[1:]))
        for course in courses:
            best, attempts = course.score
            say(console, f"{course.setting}: best objective {best:g} in {attempts} attempts; report: {folder.report}")
        return status or (0 if any(course.score[0] < float("inf") for course in courses) else 1)


def make_searcher(
    config: ArenaConfig, setting: Setting, engine: Engine, workload: Workload, folder: Path, judge: Engine | None
) -> AgentSearcher:
    """Return the searcher of one setting, with its workspace; both go on where they stopped."""
    seed_artifact = folder / "seed_artifact"
    workspace = Workspace(folder / "workspace", JailedShell(JailConfig()), config.task.artifact)
    if not any(workspace.artifact.iterdir()):
        shutil.rmtree(seed_artifact, ignore_errors=True)
        write_seed(config.task, workload, seed_artifact, folder / "seed")
        shutil.copytree(seed_artifact, workspace.artifact, dirs_exist_ok=True)
        write_data(workload, workspace.root / "data")
    agent = Agent(config.task, setting, engine, workspace, seed=config.seed, judged=judge is not None)
    return AgentSearcher(
        agent.play,
        attempts=config.task.attempts,
        repository=Repository(folder / "journal.jsonl"),
        folder=folder / "attempts",
        stopped=interruption.seen_by_tune(),
        judge=Judge(config.task, judge, seed_artifact, seed=config.seed).examine if judge is not None else None,
    )


def _play(config: ArenaConfig, searcher: AgentSearcher, workload: Workload, folder: Path, console: Console) -> bool:
    """Run the trials of one setting; return whether they were interrupted."""
    if searcher.exhausted:
        return False
    trainable = tune.with_parameters(
        FirmwareTrainable,
        task=config.task,
        workload=workload,
        boards=config.boards,
        locks=folder.parent / "boards",
    )
    needs: dict[str, float] = {"cpu": 1}
    if ray.cluster_resources().get("board"):
        needs["board"] = 1
    name = time.strftime("%Y%m%d-%H%M%S")
    tuner = tune.Tuner(
        tune.with_resources(trainable, needs),
        tune_config=tune.TuneConfig(
            num_samples=-1,
            search_alg=searcher,
            max_concurrent_trials=1,
            reuse_actors=True,
            trial_name_creator=_number,
            trial_dirname_creator=_number,
        ),
        run_config=tune.RunConfig(
            name=name,
            storage_path=str(folder / "tune"),
            verbose=0,
            callbacks=[Told(searcher, folder.name, console)],
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            failure_config=tune.FailureConfig(max_failures=1),
        ),
    )
    ended = interrupted(tuner)
    tidy(folder / "tune" / name)
    return ended


def _number(trial: Any) -> str:
    return str(trial.config["attempt"])


class Told(tune.Callback):  # type: ignore[misc]
    """Prints a line an attempt."""

    def __init__(self, searcher: AgentSearcher, setting: str, console: Console) -> None:
        self.searcher, self.setting, self.console = searcher, setting, console
        self.told = len(searcher.observations)

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._tell()

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        self._tell()

    def _tell(self) -> None:
        for one in self.searcher.observations[self.told :]:
            failed = [check for check in one.checks if not check.passed]
            what = f"objective {one.objective:g}" if one.objective is not None else "not valid"
            why = "".join(f": {check.name}: {check.detail.splitlines()[0][:120]}" for check in failed if check.detail)
            why += f": {' '.join(one.verdict.reason.split())}" if failed and one.verdict else ""
            say(self.console, f"{self.setting} attempt {one.attempt}: {one.infrastructure or what}{why}")
            self.told += 1

    def __getstate__(self) -> dict[str, Any]:
        return {"told": self.told, "setting": self.setting}  # for Tune's snapshot, which nobody reads
