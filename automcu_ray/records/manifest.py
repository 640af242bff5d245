"""The manifest of a winner: what ships, and what was measured of it."""

from typing import Annotated, Any

from pydantic import ConfigDict, Discriminator, Field, Tag

from automcu_ray.core.feasibility import FeasibilityReport, FlashUsage, LayerCost, RamUsage
from automcu_ray.core.learning import Learning
from automcu_ray.core.memory_map import MemoryMap
from automcu_ray.core.models import FrozenModel, Int64
from automcu_ray.records.record import Quantised, StreamResult


class Memory(FrozenModel):
    """What the firmware uses, part by part; None where no toolchain took part."""

    ram: RamUsage | None = None
    flash: FlashUsage | None = None
    operators: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Encoding(FrozenModel):
    """How integers stand for real values: `(q - zero_point) * scale`; both None at float32."""

    scale: float | None
    zero_point: Int64 | None


class InputEncoding(Encoding):
    """The network's input (channels, height, width), and how it is encoded."""

    shape: tuple[Int64, Int64, Int64]


class NetworkManifest(FrozenModel):
    """What is in a bundle, as `manifest.json` there says it; None for what was not measured.

    `confusion` counts test images: a row for each true class, a column for each answer; () where nobody counted.
    `mistakes` are the worst of them; pictures stand side by side in `<bundle>_mistakes.png`, beside the bundle.
    `classes` are the names of the outputs in order, `preparation` says what becomes the input, and how.
    `output` is None where what ships does not compute as onnxruntime does. `layers` says which layer of the network a
    node of the ONNX files and of the C stands for, since their names are ours. What has a default was not told by the
    first versions; keys of later versions are passed over. `profile` is measured between layers;
    `memory_map` is the planner's; `estimated_latency_ms` is the instructions by the cycles that one takes, as the
    target's file says.

    Where the metric is not accuracy, `val_accuracy` and those of `quantised` are its scores (`Learning.score`), and
    what tells no classes apart has no `test_accuracy`: `test_figures` are all metrics of its kind, in their own units,
    `trivial_figures` those of always answering, or reconstructing, the mean of the training examples. Answers and
    labels of all test examples are in `<bundle>_answers.npz`.
    """

    model_config = ConfigDict(extra="ignore")

    target: str
    backend: str | None = None
    precision: str
    hash: str
    number: Int64
    ram_bytes: Int64 | None
    flash_bytes: Int64 | None
    ram_limit_bytes: Int64
    flash_limit_bytes: Int64
    memory: Memory
    board: str | None
    board_images: Int64 | None
    bit_equal_images: Int64 | None
    board_agrees: bool | None = None
    board_largest_difference: float | None
    instructions: Int64 | None
    instructions_limit: Int64 | None = None
    estimated_latency_ms: float | None = None
    profile: tuple[LayerCost, ...] = ()
    memory_map: MemoryMap | None = None
    stack_used_bytes: Int64 | None
    stream: StreamResult | None = None
    second_opinions: tuple[FeasibilityReport, ...] = ()
    val_accuracy: float
    val_accuracy_float: float | None
    test_accuracy: float | None
    test_macro_f1: float | None = None
    quantised: tuple[Quantised, ...] = ()
    test_images: Int64
    input: InputEncoding
    output: Encoding | None
    test_vectors: str = ""
    test_accuracy_float: float | None
    learning: Learning = Learning()
    test_figures: dict[str, float] = Field(default_factory=dict)
    test_figures_float: dict[str, float] = Field(default_factory=dict)
    trivial_figures: dict[str, float] = Field(default_factory=dict)
    anomaly: "AnomalyFigures | None" = None
    seeds: dict[str, Int64 | None]
    data: dict[str, str | Int64] | None = None
    teacher: str | None = None
    versions: dict[str, str]
    architecture: dict[str, Any] | str | None
    layers: dict[str, str] = Field(default_factory=dict)
    classes: tuple[str, ...] = ()
    preparation: str = ""
    confusion: tuple[tuple[Int64, ...], ...] = ()
    mistakes: tuple["Mistake", ...] = ()

    @property
    def told(self) -> str:
        """The test metric of what ships and its value, as people read it: "accuracy 0.9123"."""
        return self._told(self.test_accuracy, self.test_figures)

    @property
    def told_float(self) -> str:
        """The same of the network in float."""
        return self._told(self.test_accuracy_float, self.test_figures_float)

    def _told(self, accuracy: float | None, figures: dict[str, float]) -> str:
        name = self.learning.metric if figures else "accuracy"
        value = figures.get(name, accuracy)
        return name if value is None else f"{name} {value:.4f}"

    @property
    def by_class(self) -> tuple["ClassFigures", ...]:
        """What the test set says of each class."""
        columns = [sum(column) for column in zip(*self.confusion, strict=True)]
        return tuple(
            ClassFigures(
                name=self.classes[at] if at < len(self.classes) else str(at),
                images=sum(row),
                recall=row[at] / sum(row) if sum(row) else None,
                precision=row[at] / columns[at] if columns[at] else None,
                taken_for=max((other for other in range(len(row)) if other != at), key=row.__getitem__)
                if sum(row) > row[at]
                else None,
            )
            for at, row in enumerate(self.confusion)
        )


class ClassFigures(FrozenModel):
    """One class on the test set: shares found and right, and the class that it is taken for most; None where none."""

    name: str
    images: int
    recall: float | None
    precision: float | None
    taken_for: int | None


class AnomalyFigures(FrozenModel):
    """An anomaly detector on the test set: from `threshold` on, chosen by validation, a score means an anomaly.

    `found` is the share of anomalies that are called so, `false_alarms` that of normal examples.
    """

    threshold: float
    found: float
    false_alarms: float
    anomalies: Int64
    normal: Int64


class Mistake(FrozenModel):
    """A test image, by its number, that the network takes for another class; `confidence` is the answer's softmax."""

    image: Int64
    label: Int64
    answer: Int64
    confidence: float


class TableManifest(FrozenModel):
    """The best cell of a run on a table, where accuracies are looked up: nothing was built."""

    model_config = ConfigDict(extra="ignore")

    table: str
    number: Int64
    hash: str
    architecture: str
    val_accuracy: float
    test_accuracy: float
    board_agrees: None = None

    @property
    def told(self) -> str:
        """The test accuracy, as people read it."""
        return f"accuracy {self.test_accuracy:.4f}"


def _kind(manifest: Any) -> str:
    """Return which of the two it is: that of a table names it."""
    of_table = isinstance(manifest, TableManifest) or (isinstance(manifest, dict) and "table" in manifest)
    return "table" if of_table else "network"


Manifest = Annotated[
    Annotated[NetworkManifest, Tag("network")] | Annotated[TableManifest, Tag("table")], Discriminator(_kind)
]
