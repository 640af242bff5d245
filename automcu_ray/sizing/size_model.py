"""What a network needs once linked: its lower bounds, and an overhead that verdicts teach.

`Overhead.guess` needs no verdict, `Overhead.measured` is of one, an `Estimator` is a regression on those of all runs
with one toolchain, and a `SizeModel` corrects these by what a run has measured itself.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from automcu_ray.core.atomic_write import write_whole
from automcu_ray.core.errors import ConfigError
from automcu_ray.core.feasibility import Estimate, FeasibilityReport
from automcu_ray.core.models import FrozenModel
from automcu_ray.networks.graph import Graph
from automcu_ray.problem.target import Core
from automcu_ray.problem.task import Task
from automcu_ray.sizing.footprint import Footprint, footprint
from automcu_ray.sizing.instruction_features import BESIDE_BYTES, functions
from automcu_ray.sizing.instruction_model import InstructionModel, model_for
from automcu_ray.sizing.verdict_cache import Lesson

MIN_VERDICTS = 20  # with fewer, one Flash estimate in twenty is off by more than 5 %
_FOLDS = 10
_FILE = "estimator.json"
_SIMILAR = 3  # numbers of operators, whose largest correction counts


class Overhead(NamedTuple):
    """Bytes beyond a network's lower bounds: stack and static data in RAM; code, tables and start-up in Flash."""

    ram: float
    flash: float

    @classmethod
    def guess(cls, graph: Graph) -> Self:
        """Return the overhead that is assumed while no verdict tells more.

        A least-squares fit to 33 random networks that c_qemu has linked at int8 for a Cortex-M4 (19 of 20 within 290
        bytes): stack and harness in RAM; in Flash start-up, code by operator, tables by channel.
        """
        return cls(ram=BESIDE_BYTES, flash=2516 + 238 * len(graph.ops) + 5 * sum(op.biases for op in graph.ops))

    @classmethod
    def measured(cls, sizes: FeasibilityReport | Lesson, bounds: Footprint) -> Self | None:
        """Return what a verdict measured beyond the bounds of its network; None where it has no sizes.

        Nor has one that is below them, computed patch by patch: it tells nothing of networks that are not.
        """
        ram_bytes = sizes.least_ram_bytes if isinstance(sizes, FeasibilityReport) else sizes.ram_bytes
        if not ram_bytes or not sizes.flash_bytes or ram_bytes < bounds.ram_lower_bound_bytes:
            return None
        return cls(ram_bytes - bounds.ram_lower_bound_bytes, sizes.flash_bytes - bounds.flash_lower_bound_bytes)

    @classmethod
    def itemized(cls, report: FeasibilityReport | None) -> Self:
        """Return stack and static data, code and runtime as a report lists them; 0 where it does not.

        Other than what is measured beyond the bounds, it holds for other input shapes and classes as well.
        """
        ram = report.ram.stack_bytes + report.ram.data_bss_bytes if report and report.ram else 0
        flash = report.flash.code_bytes + report.flash.runtime_bytes if report and report.flash else 0
        return cls(max(0, ram), max(0, flash))

    def on_top_of(self, bounds: Footprint, error: tuple[float, float] = (0, 0)) -> Estimate:
        """Return the sizes of a network with these bounds and this overhead, and their error in RAM and in Flash."""
        return Estimate(
            ram_bytes=round(bounds.ram_lower_bound_bytes + self.ram),
            flash_bytes=round(bounds.flash_lower_bound_bytes + self.flash),
            ram_error_bytes=round(error[0]),
            flash_error_bytes=round(error[1]),
        )


class Error(FrozenModel):
    """Absolute errors of estimates of networks that were left out of the fit; `p95` holds for 19 of 20."""

    median_percent: float
    p95_percent: float
    p95_bytes: float


class Estimator(FrozenModel):
    """The overhead of one toolchain, core and precision, fitted to its verdicts.

    Flash is linear in the operators: each kind brings its code, each channel its bias, scale and zero point, and some
    bring a function with the first of them. RAM is a constant: stack, start-up and harness. `core` is where the
    functions are those of c_qemu's int8 kernels, else None.
    """

    precision: str
    core: Core | None = None
    ram_bytes: int = 0  # that a firmware may take for faster kernels
    verdicts: int
    ram_beyond_bytes: float
    flash_beyond_bytes: float
    flash_bytes_by_feature: dict[str, float]
    ram_error: Error
    flash_error: Error
    instructions: InstructionModel | None = None  # where verdicts have counted them

    def estimate(self, graph: Graph, found: Footprint | None = None) -> Estimate | None:
        """Return the estimate for a graph, or None where it has a kind of operator that no verdict was about.

        Args:
            graph: the network.
            found: its footprint, if the caller has it already.
        """
        counts = features(graph, self.core, self.ram_bytes)
        known = self.flash_bytes_by_feature
        if any(op.kind not in known for op in graph.ops):
            return None
        flash = self.flash_beyond_bytes + sum(known.get(name, 0.0) * times for name, times in counts.items())
        error = self.ram_error.p95_bytes, self.flash_error.p95_bytes
        return Overhead(self.ram_beyond_bytes, flash).on_top_of(found or footprint(graph, self.precision), error)


class SizeModel:
    """What networks of one run are expected to need.

    An estimator is asked where there is one, unless the run has measured a network with as many operators itself. Then,
    and without an estimator, it is the guess and the largest correction that networks of similar length needed.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.corrections: dict[int, Overhead] = {}  # by the number of operators: beyond the guess, at most
        self.counted: list[float] = []  # instructions that were measured, as shares of what the shipped model says
        sought = task.objective == "instructions" or task.instructions_limit is not None
        self.counts = sought and task.precision == "int8"

    def learn(self, report: FeasibilityReport, graph: Graph) -> None:
        """Learn from a report on a graph, where it has sizes."""
        if self.counts and report.instructions is not None:
            self.counted.append(report.instructions / max(1, model_for(self.task).estimate(graph)))
        measured, guess = Overhead.measured(report, footprint(graph, self.task.precision)), Overhead.guess(graph)
        if measured is not None:
            off = Overhead(measured.ram - guess.ram, measured.flash - guess.flash)
            known = self.corrections.get(len(graph.ops), off)
            self.corrections[len(graph.ops)] = Overhead(*map(max, off, known))

    def estimate(self, graph: Graph, estimator: Estimator | None) -> Estimate:
        """Return the sizes that a graph is expected to have once linked; instructions where the task speaks of them."""
        sizes = self._sizes(graph, estimator)
        if not self.counts:
            return sizes
        if estimator is not None and estimator.instructions is not None:
            return sizes.replace(instructions=estimator.instructions.estimate(graph))
        factor = median(self.counted) if self.counted else 1.0
        return sizes.replace(instructions=round(factor * model_for(self.task).estimate(graph)))

    def _sizes(self, graph: Graph, estimator: Estimator | None) -> Estimate:
        length = len(graph.ops)
        if length not in self.corrections and estimator and (estimate := estimator.estimate(graph)):
            return estimate
        nearest = sorted(self.corrections, key=lambda known: abs(known - length))[:_SIMILAR]
        similar = [self.corrections[known] for known in nearest] or [Overhead(0, 0)]
        guess, (ram, flash) = Overhead.guess(graph), map(max, zip(*similar, strict=True))
        return Overhead(guess.ram + ram, guess.flash + flash).on_top_of(footprint(graph, self.task.precision))


_ESTIMATOR: TypeAdapter[Estimator | None] = TypeAdapter(Estimator | None)


def learn(lessons: Sequence[Lesson], task: Task) -> Estimator | None:
    """Return the estimator that fits the lessons, or None where they are too few. It depends on their order as well.

    The errors are of ten-fold cross-validation: each network is estimated by what the others teach.
    """
    if len(lessons) < MIN_VERDICTS:
        return None
    from sklearn.dummy import DummyRegressor  # a second to import: only where there is something to learn
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import cross_val_predict

    told = []
    for lesson in lessons:
        graph = task.space.graph(lesson.spec)
        if found := Overhead.measured(lesson, footprint(graph, task.precision)):
            told.append((lesson, graph, found))
    if len(told) < MIN_VERDICTS:
        return None
    lessons, graphs, overheads = zip(*told, strict=True)
    ram, flash = np.array([(lesson.ram_bytes, lesson.flash_bytes) for lesson in lessons], float).T
    ram_beyond, flash_beyond = np.array(overheads, float).T
    vectorizer = DictVectorizer(sparse=False)
    core = task.target.core if task.precision == "int8" else None
    ram_bytes = task.ram_limit_bytes
    counts = vectorizer.fit_transform([features(graph, core, ram_bytes) for graph in graphs])
    unseen_ram = cross_val_predict(DummyRegressor(strategy="median"), counts, ram_beyond, cv=_FOLDS)
    unseen_flash = cross_val_predict(Ridge(), counts, flash_beyond, cv=_FOLDS)
    ridge = Ridge().fit(counts, flash_beyond)
    parts = dict(zip(vectorizer.feature_names_, ridge.coef_.tolist(), strict=True))
    return Estimator(
        precision=task.precision,
        core=core,
        ram_bytes=ram_bytes,
        verdicts=len(lessons),
        ram_beyond_bytes=float(np.median(ram_beyond)),
        flash_beyond_bytes=float(ridge.intercept_),
        flash_bytes_by_feature=parts,
        ram_error=_error(ram_beyond - unseen_ram, ram),
        flash_error=_error(flash_beyond - unseen_flash, flash),
        instructions=_taught(lessons, graphs, task),
    )


def _taught(lessons: Sequence[Lesson], graphs: Sequence[Graph], task: Task) -> InstructionModel | None:
    known = [(graph, lesson.instructions) for graph, lesson in zip(graphs, lessons, strict=True) if lesson.instructions]
    if len(known) < MIN_VERDICTS or task.precision != "int8":
        return None
    return model_for(task).taught([graph for graph, _ in known], [count for _, count in known])


def known_at_start(
    folder: Path, recorded: Path | None, lessons: Callable[[], Sequence[Lesson]], task: Task
) -> Estimator | None:
    """Return the estimator that a run began with, from the file in its folder, which is written where there is none.

    Prompts depend on estimates, and other runs add lessons meanwhile. So a run that is resumed, or replayed (`recorded`
    is the folder of its recording), uses the estimator of the first one, or its prompts would differ.

    Raises:
        ConfigError: what is kept there cannot be read.
    """
    path = folder / _FILE
    if not path.exists():
        estimator = learn(lessons(), task) if recorded is None else _read(recorded / _FILE)
        write_whole(path, _ESTIMATOR.dump_json(estimator))
    return _read(path)


def _read(path: Path) -> Estimator | None:
    try:
        return _ESTIMATOR.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None  # a recording from before there were estimates
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{path} should hold what sizes were learned from, and cannot be read: {error}") from error


def features(graph: Graph, core: Core | None, ram_bytes: int = 0) -> Counter[str]:
    """Return what decides the size of a graph's code and tables: operators and functions, counted by name.

    For a core these are the functions of c_qemu's int8 kernels: which of them a network needs, and where GCC makes one
    for a single caller, is most of what shapes tell of its code. For others operators are counted coarsely and finely:
    fine names alone would need many verdicts; of coarse ones, ridge regression makes the best guess about the rest.
    """
    counts: Counter[str] = Counter()
    if core is not None:
        for op, called in zip(graph.ops, functions(graph, core, ram_bytes), strict=True):
            counts.update((op.kind, f"activation {op.activation}", *(f"calls {name}" for name in called)))
            counts.update({"channels": op.biases, "operators": 1})
            counts |= Counter(f"any {name}" for name in called)
        return counts
    once: set[str] = set()  # library functions are linked once, however often they are called
    for op in graph.ops:
        counts.update(_words(op.kind, op.groups > 1, op.window, op.stride, op.activation))
        counts["one pixel"] += op.shape[1:] == (1, 1)  # loops that the compiler takes out
        counts["channels"] += op.biases
        once.update((op.kind, op.activation))
    once.add(f"linear of 2^{(graph.ops[-1].in_shape[0] - 1).bit_length()}")
    if once & {"add", "mul"}:
        once.add("element-wise")
    counts.update(f"any {name}" for name in once)
    return counts


@lru_cache(maxsize=1024)
def _words(kind: str, grouped: bool, kernel: tuple[int, int], stride: int, activation: str) -> tuple[str, ...]:
    fine = f"grouped {kind}" if grouped else kind
    window = f"{fine} {kernel[0]}x{kernel[1]}"
    step = f"stride {stride}"
    return kind, fine, window, f"{fine} {step}", f"{window} {step}", f"activation {activation}"


def _error(off: npt.NDArray[np.float64], measured: npt.NDArray[np.float64]) -> Error:
    percent = 100 * np.abs(off) / measured
    return Error(
        median_percent=float(np.median(percent)),
        p95_percent=float(np.percentile(percent, 95)),
        p95_bytes=float(np.percentile(np.abs(off), 95)),
    )
