"""What a network will need once linked: its lower bounds, and what earlier verdicts teach about the rest."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from automcu_ray.errors import ConfigError
from automcu_ray.feasibility import Estimate
from automcu_ray.footprint import Footprint, footprint
from automcu_ray.frozen import Frozen
from automcu_ray.graph import Graph
from automcu_ray.task import Task
from automcu_ray.verdicts import Lesson
from automcu_ray.whole_file import write_whole

MIN_VERDICTS = 20  # with fewer, one Flash estimate in twenty is off by more than 5 %
_FOLDS = 10
_KEPT = "estimator.json"


class Error(Frozen):
    """How far an estimate was off on verdicts it had not learned from; `p95` holds for 19 of 20."""

    median_percent: float
    p95_percent: float
    p95_bytes: float


class Estimator(Frozen):
    """What verdicts of one toolchain, core and precision say beyond the lower bounds.

    Flash is linear in the operators: each kind brings its code, each channel its bias, scale and zero point, and some
    bring a library function with the first of them. RAM has a constant share: stack, start-up and harness.
    """

    precision: str
    verdicts: int
    ram_beyond_bytes: float
    flash_beyond_bytes: float
    flash_bytes_by_feature: dict[str, float]
    ram_error: Error
    flash_error: Error

    def estimate(self, graph: Graph, found: Footprint | None = None) -> Estimate | None:
        """Return the estimate for a graph, or None where it has a kind of operator that no verdict was about.

        Args:
            graph: the network.
            found: its footprint, if the caller has it already.
        """
        counts = features(graph)
        known = self.flash_bytes_by_feature
        if any(op.kind not in known for op in graph.ops):
            return None
        found = found or footprint(graph, self.precision)
        beyond = self.flash_beyond_bytes + sum(known.get(name, 0.0) * times for name, times in counts.items())
        return Estimate(
            ram_bytes=round(found.ram_lower_bound_bytes + self.ram_beyond_bytes),
            flash_bytes=round(found.flash_lower_bound_bytes + beyond),
            ram_error_bytes=round(self.ram_error.p95_bytes),
            flash_error_bytes=round(self.flash_error.p95_bytes),
        )


_ESTIMATOR: TypeAdapter[Estimator | None] = TypeAdapter(Estimator | None)


def learn(lessons: Sequence[Lesson], task: Task) -> Estimator | None:
    """Return what lessons teach, or None where they are too few. Equal lessons in equal order teach the same.

    The errors are of ten-fold cross-validation: each network is estimated by what the others teach.
    """
    if len(lessons) < MIN_VERDICTS:
        return None
    from sklearn.dummy import DummyRegressor  # a second to import: only where there is something to learn
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import cross_val_predict

    graphs = [task.space.graph(lesson.spec) for lesson in lessons]
    found = [footprint(graph, task.precision) for graph in graphs]
    ram = np.array([lesson.ram_bytes for lesson in lessons], float)
    flash = np.array([lesson.flash_bytes for lesson in lessons], float)
    ram_beyond = ram - [one.ram_lower_bound_bytes for one in found]
    flash_beyond = flash - [one.flash_lower_bound_bytes for one in found]
    vectorizer = DictVectorizer(sparse=False)
    counts = vectorizer.fit_transform([features(graph) for graph in graphs])
    unseen_ram = cross_val_predict(DummyRegressor(strategy="median"), counts, ram_beyond, cv=_FOLDS)
    unseen_flash = cross_val_predict(Ridge(), counts, flash_beyond, cv=_FOLDS)
    ridge = Ridge().fit(counts, flash_beyond)
    parts = dict(zip(vectorizer.feature_names_, ridge.coef_.tolist(), strict=True))
    return Estimator(
        precision=task.precision,
        verdicts=len(lessons),
        ram_beyond_bytes=float(np.median(ram_beyond)),
        flash_beyond_bytes=float(ridge.intercept_),
        flash_bytes_by_feature=parts,
        ram_error=_error(ram_beyond - unseen_ram, ram),
        flash_error=_error(flash_beyond - unseen_flash, flash),
    )


def known_at_start(
    folder: Path, recorded: Path | None, lessons: Callable[[], Sequence[Lesson]], task: Task
) -> Estimator | None:
    """Return what was known when a run began, kept in its folder beside the calls to its engine.

    Prompts show what estimates lead to, and other runs teach meanwhile. So a run that goes on, and one that is
    replayed (`recorded` is the folder of its recording), has to know what the first one knew, or its prompts differ.

    Raises:
        ConfigError: what is kept there cannot be read.
    """
    kept = folder / _KEPT
    if not kept.exists():
        knows = learn(lessons(), task) if recorded is None else _read(recorded / _KEPT)
        write_whole(kept, _ESTIMATOR.dump_json(knows))
    return _read(kept)


def _read(path: Path) -> Estimator | None:
    try:
        return _ESTIMATOR.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None  # a recording from before there were estimates
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{path} should hold what sizes were learned from, and cannot be read: {error}") from error


def features(graph: Graph) -> Counter[str]:
    """Return what decides the size of a graph's code and tables: operators counted, coarsely and finely, by name.

    Fine names alone would need many verdicts; of coarse ones, ridge regression makes the best guess about the rest.
    """
    counts: Counter[str] = Counter()
    once: set[str] = set()  # library functions are linked once, however often they are called
    for op in graph.ops:
        counts.update(_words(op.kind, op.groups > 1, op.kernel, op.stride, op.activation))
        counts["one pixel"] += op.shape[1:] == (1, 1)  # loops that the compiler takes out
        counts["channels"] += op.biases
        once.update((op.kind, op.activation))
    once.add(f"linear of 2^{(graph.ops[-1].in_shape[0] - 1).bit_length()}")
    if once & {"add", "mul"}:
        once.add("element-wise")
    counts.update(f"any {name}" for name in once)
    return counts


@lru_cache(maxsize=1024)
def _words(kind: str, grouped: bool, kernel: int, stride: int, activation: str) -> tuple[str, ...]:
    fine = f"grouped {kind}" if grouped else kind
    window = f"{fine} {kernel}x{kernel}"
    step = f"stride {stride}"
    return kind, fine, window, f"{fine} {step}", f"{window} {step}", f"activation {activation}"


def _error(off: npt.NDArray[np.float64], measured: npt.NDArray[np.float64]) -> Error:
    percent = 100 * np.abs(off) / measured
    return Error(
        median_percent=float(np.median(percent)),
        p95_percent=float(np.percentile(percent, 95)),
        p95_bytes=float(np.percentile(np.abs(off), 95)),
    )
