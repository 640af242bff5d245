"""The plan of a run: every name, file and program it needs, found and checked before anything is written."""

from dataclasses import dataclass, replace

from automcu_ray.core.errors import ConfigError, ToolMissingError
from automcu_ray.core.training_recipe import Protocol
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.cell import EDGES, CellSpec
from automcu_ray.networks.graph import ConstructibilityError
from automcu_ray.networks.spec import ArchitectureSpec, explain
from automcu_ray.problem.task import Evidence, Task
from automcu_ray.run import loggers
from automcu_ray.run.goal import check_goal
from automcu_ray.run.goal_of_learning import as_asked, check_learning, learning_of
from automcu_ray.run.start_from import start_point
from automcu_ray.run.supervision import check_supervision
from automcu_ray.run.warm_start import points_of_runs
from automcu_ray.runtime import plugins
from automcu_ray.runtime.config import Plugin, RunConfig
from automcu_ray.sizing import footprint
from automcu_ray.sizing.repair import BoundCheck
from backends import ACCELERATORS, BACKENDS
from backends.base import Backend
from backends.boards import BOARDS
from backends.boards.base import Board
from backends.programs import apt_packages, missing
from searchers import pick_proposer
from searchers.engines import pick_engine
from searchers.engines.base import Engine
from trainables.datasets import DATASETS
from trainables.datasets.base import Dataset
from trainables.datasets.nasbench201 import Table
from trainables.finalists.distillation import Teacher, teacher_of_run
from trainables.jail.sandbox import require_sandbox

FEW_STEPS = 10


@dataclass(frozen=True)
class Plan:
    """Everything a run needs, found and checked before anything is written."""

    config: RunConfig
    dataset: Dataset | Table
    task: Task
    engine: Engine | None
    backend: Backend | None
    second_opinions: tuple[Backend, ...]
    board: Board | None
    points: tuple[Candidate, ...] = ()
    teacher: Teacher | None = None
    started_from: tuple[str, ...] = ()  # as what the user's network was read, in words

    @property
    def trainings(self) -> tuple[tuple[str, Protocol, int], ...]:
        """The kinds of training: name, protocol, training images; none for a table."""
        if isinstance(self.dataset, Table):
            return ()
        trainer, images = self.config.trainer, len(self.dataset.train)
        return (("proxy", trainer.proxy, images), ("full", trainer.full, images))

    @property
    def doubts(self) -> tuple[str, ...]:
        """What can be run, and is hardly meant: lines for the screen."""
        steps = {
            which: protocol.epochs * protocol.steps_per_epoch(images) for which, protocol, images in self.trainings
        }
        return tuple(
            f"warning: trainer.{which} trains for {count} steps in all, which teaches a network little: more epochs, "
            "smaller batches or more images are wanted."
            for which, count in steps.items()
            if count < FEW_STEPS
        )

    @property
    def check_bounds(self) -> BoundCheck:
        """What is refused for certain, without any toolchain; an accelerator has limits of its own."""
        if self.backend is not None:
            return self.backend.check_bounds
        if (accelerator := self.task.target.accelerator) is not None:
            accelerated: Backend = plugins.load("accelerator", ACCELERATORS, accelerator.name)()
            return accelerated.check_bounds
        return footprint.check_bounds

    @property
    def backends(self) -> tuple[Backend, ...]:
        """All toolchains that take part, the one that decides first."""
        return (*([self.backend] if self.backend else []), *self.second_opinions)

    @property
    def reserved_gpus(self) -> float:
        """Share of a GPU that the engine keeps from the trials."""
        return self.engine.gpus if self.engine is not None else 0.0


def prepare(config: RunConfig, *, begun: bool = False) -> Plan:
    """Return the plan of a run; where a run has `begun` to propose, no other run is read again for its first points.

    Raises:
        ConfigError: a name, option, file or value that cannot be used.
        ToolMissingError: a program that a rung needs is not installed.
    """
    loggers.require(config.loggers)
    engine = pick_engine(config.engine.name, config.engine.options)
    backend = None
    if config.backend.name != "analytic":
        if config.writes_code:
            require_sandbox(config.jail)
        backend = _make_backend(config.backend)
    elif config.writes_code:
        raise ConfigError("searcher.form is 'code', which backend 'analytic' cannot judge: take --backend c_qemu.")
    if backend is not None and not backend.decides:
        raise ConfigError(
            f"backend {backend.name!r} gives second opinions of finalists: set second_opinions=[{backend.name}], and "
            "take --backend c_qemu."
        )
    board = _board(config, backend)
    make = plugins.load("dataset", DATASETS, config.dataset.name)
    options = plugins.check_options("dataset", config.dataset.name, make, config.dataset.options)
    dataset: Dataset | Table = as_asked(config, make(**options))
    task = _task(config, dataset)
    asked = pick_proposer(config.searcher, task, seed=config.seed, engine=engine).engine
    if asked is not None and config.writes_code and not engine.is_language_model:
        raise ConfigError(
            f"searcher.form is 'code', which engine {engine.name!r} cannot write: it has rules for specs only. "
            "Take a language model, such as --engine openai."
        )
    if asked is not None and config.budget.max_usd is not None and not engine.priced:
        raise ConfigError(
            f"budget.max_usd is set, but engine {engine.name!r} has no price, so nothing would ever stop: set "
            "engine.usd_per_million_prompt and engine.usd_per_million_completion, or budget.max_tokens instead."
        )
    opinions = tuple(_make_backend(plugin) for plugin in config.second_opinions)
    teacher = _teacher(config, dataset, task)
    plan = Plan(config, dataset, task, asked, backend, opinions, board, teacher=teacher)
    names = [one.name for one in plan.backends]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"second_opinions: each backend takes part once at most, found {twice[0]!r} twice.")
    for one in plan.backends:
        if reason := one.unsuitable(task):
            raise ConfigError(f"backend {one.name!r} cannot serve target {task.target.name!r}: {reason}")
    check_learning(config, task)
    _check_protocols(plan)
    check_goal(config, task, backend, board, opinions)
    check_supervision(config, asked)
    return plan if begun else _with_points(plan)


def _task(config: RunConfig, dataset: Dataset | Table) -> Task:
    if config.skeleton is not None and isinstance(dataset, Table):
        raise ConfigError(f"skeleton: the cells of {dataset.name} are looked up, not built: leave it out.")
    task = Task(
        dataset=dataset.name,
        input_shape=dataset.input_shape,
        num_classes=dataset.outputs,
        target=config.target,
        constraints=config.constraints,
        precision=config.precision,
        form="cell" if config.skeleton is not None else dataset.wants,
        skeleton=config.skeleton,
        objective=config.objective,
        proxy_errors=config.trainer.proxy_errors,
        front_end=dataset.front_end if isinstance(dataset, Dataset) else None,
        learning=(learning := learning_of(config, dataset)),
        evidence=Evidence(
            train_images=len(dataset.train), val_images=len(dataset.val), epochs=config.trainer.proxy.epochs
        )
        if isinstance(dataset, Dataset) and learning.metric == "accuracy"
        else None,
    )
    try:
        if config.skeleton is not None:  # where one cell cannot be built, no other one can
            task.cells.candidate(["nor_conv_3x3"] * len(EDGES))
    except ConstructibilityError as error:
        raise ConfigError(
            f"skeleton: it cannot be built for the images of {task.dataset!r}: {error}. "
            "Leave the skeleton out, or take another data set."
        ) from error
    return task


def _check_protocols(plan: Plan) -> None:
    """Refuse what would have no effect, and more reports than steps: every training would fail."""
    proxy, full = plan.config.trainer.proxy, plan.config.trainer.full
    for key in ("qat_epochs", "distill"):
        if found := getattr(proxy, key):
            raise ConfigError(f"trainer.proxy.{key}={found}: finalists alone have that. Set trainer.full.{key}.")
    if full.distill and plan.teacher is None and not (full.qat_epochs and plan.task.precision == "int8"):
        raise ConfigError(
            "trainer.full.distill is given, but nobody teaches: finalists learn from the best of them in the "
            "epochs with rounding: here are none. Set trainer.full.qat_epochs=4 (at int8), or trainer.teacher."
        )
    for which, protocol, images in plan.trainings:
        if protocol.reports_per_epoch > (steps := protocol.steps_per_epoch(images)):
            raise ConfigError(
                f"trainer.{which}.reports_per_epoch={protocol.reports_per_epoch}, but an epoch of {images} training "
                f"images has {steps} steps of {protocol.batch_size} images: set it to {steps} at most."
            )


def _teacher(config: RunConfig, dataset: Dataset | Table, task: Task) -> Teacher | None:
    path, trainer = config.trainer.teacher, config.trainer
    if path is None and not trainer.full.distill:
        return None
    if isinstance(dataset, Table) or config.writes_code:
        key = "trainer.teacher" if path else "trainer.full.distill"
        raise ConfigError(f"{key}: candidates of a table, and generated code, learn from nobody: leave it out.")
    if path is None:
        return None  # the best finalist will teach
    if not trainer.full.distill:
        raise ConfigError(
            "trainer.teacher is given, but trainer.full.distill, its share of the loss, is 0: set "
            "trainer.full.distill=0.9."
        )
    return teacher_of_run(path, task, dataset.about)


def _make_backend(plugin: Plugin) -> Backend:
    make = plugins.load("backend", BACKENDS, plugin.name)
    backend: Backend = make(**plugins.check_options("backend", plugin.name, make, plugin.options))
    absent = () if backend.on_demand else backend.missing_programs()
    if absent:
        raise ToolMissingError(
            f"backend {plugin.name!r} needs {', '.join(absent)}, not found. Install: {backend.how_to_install()}. "
            "`automcu doctor` lists what this machine can run; the analytic rung always can: --backend analytic."
        )
    return backend


def _board(config: RunConfig, backend: Backend | None) -> Board | None:
    mode = config.board.mode
    runs = backend is not None and "qemu" in backend.boards
    if mode == "none" or (mode == "auto" and not (runs and config.target.emulator)):
        return None
    if config.target.emulator is None:
        raise ConfigError(
            f"board.mode is 'qemu', but QEMU has no machine for target {config.target.name!r} (see its YAML file): "
            f"take board.mode=none to build without running, or a target with an emulator, such as stm32f405."
        )
    if not runs:
        raise ConfigError(
            f"board.mode is 'qemu', but backend {config.backend.name!r} builds no firmware that QEMU could run: take "
            "--backend c_qemu, or board.mode=none."
        )
    board: Board = plugins.load("board", BOARDS, "qemu")()
    if absent := missing(board.programs):
        raise ToolMissingError(
            f"rung 'board' cannot run: {', '.join(absent)} not on PATH. Install: apt install {apt_packages(absent)}. "
            "All rungs before it still can: --set board.mode=none."
        )
    return board


def _with_points(plan: Plan) -> Plan:
    """Return the plan with what comes first, as far as files say; the searcher of `warm_start` is only checked."""
    warm, task, start = plan.config.warm_start, plan.task, plan.config.start_from
    if warm.searcher is not None and pick_proposer(warm.searcher, task, seed=plan.config.seed).engine is not None:
        raise ConfigError(
            f"warm_start.searcher: {warm.searcher.name!r} asks an engine: name one that proposes by itself, "
            "such as capacity."
        )
    first, told = start_point(start, plan.config, task, plan.check_bounds) if start else (None, [])
    points = [first] if first else []
    for point in plan.config.points_to_evaluate:
        try:
            if task.form == "network":
                spec = ArchitectureSpec.model_validate(point)
                points.append(task.space.candidate(spec, proposer="points_to_evaluate"))
            else:
                cell = CellSpec.parse(point) if isinstance(point, str) else CellSpec.model_validate(point)
                points.append(task.cells.candidate(list(cell.operations), proposer="points_to_evaluate"))
        except ConstructibilityError as error:
            raise ConfigError(f"points_to_evaluate: {error}.") from error
        except ValueError as error:
            raise ConfigError(f"points_to_evaluate: {explain(error)}.") from error
    points += points_of_runs(warm.runs, task, plan.check_bounds, plan.config.warm_points)
    return replace(plan, points=tuple(points), started_from=tuple(told))
