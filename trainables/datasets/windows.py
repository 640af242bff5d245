"""Windows of motion and other time series: tables of samples with label, subject and time, subjects held out."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from automcu_ray.core.errors import ConfigError, unknown_name
from automcu_ray.signals.front_end import Samples, SampleWindow
from trainables.datasets.base import Dataset, Split, assemble, check_memory, data_folder
from trainables.datasets.sample_tables import TICKS, Recording, numbers, read_table, recordings, texts
from trainables.datasets.targets import as_values, assemble_values

_RECORDING_S = 20.0  # for the board's stream


def windows(
    *,
    folder: str,
    files: str = "*.parquet",
    channels: tuple[str, ...],
    rate_hz: float,
    seconds: float = 1.0,
    every_s: float | None = None,
    label: str = "label",
    targets: tuple[str, ...] = (),
    subject: str = "subject",
    time: str = "timestamp",
    time_unit: str = "ms",
    recording: tuple[str, ...] = (),
    where: dict[str, str] | None = None,
    max_gap_s: float = 0.25,
    units_per_count: tuple[float, ...] = (),
    val_subjects: tuple[str, ...] = (),
    test_subjects: tuple[str, ...] = (),
    val_share: float = 0.15,
    test_share: float = 0.2,
    split_seed: int = 0,
) -> Dataset:
    """Return windows (channels, 1, samples) of tables in Parquet or CSV, a label each: that of most of its samples.

    A window begins each `every_s`, half its length unless given. `recording` are columns that tell recordings of one
    subject apart, `where` keeps rows whose columns have these values. Samples are brought to `rate_hz`; a gap longer
    than `max_gap_s` ends a recording. Pixels 0 to 255 are four standard deviations of the training samples each way:
    that factor ships with the network. `units_per_count` is what one count of the sensor's 16 bits stands for.

    With `targets`, columns of numbers, a window's labels are their means over its samples, in place of `label`.

    Validation and test are subjects of their own: those named, else such a share of them, by `split_seed`.

    Raises:
        ConfigError: no such file, column or subject, or nothing left in a split.
    """
    root = data_folder(folder)
    found = sorted(path for path in root.glob(files) if path.is_file())
    if not found:
        raise ConfigError(f"no file {root / files}: set dataset.files to the Parquet or CSV files in there.")
    if time_unit not in TICKS:
        raise unknown_name("dataset.time_unit", time_unit, list(TICKS))
    length = round(rate_hz * seconds) if 0 < rate_hz <= 1e6 and 0 < seconds <= 3600 else 0
    if not channels or not 2 <= length <= 4096:
        raise ConfigError(
            f"dataset wants channels, and a window of 2 to 4096 samples; found {len(channels)} channels and "
            f"{seconds:g} s at {rate_hz:g} Hz."
        )
    step = max(1, round(rate_hz * (seconds / 2 if every_s is None else every_s)))
    where = where or {}
    labelled = targets or (label,)
    table = read_table(found, [*channels, *labelled, subject, time, *recording, *where])
    keep = np.ones(table.num_rows, bool)
    for column, value in where.items():
        keep &= texts(table, column) == str(value)
    if not keep.any():
        raise ConfigError(f"dataset.where={where}: no row of {table.num_rows} has these values.")
    table = table.filter(keep)
    values = np.stack([numbers(table, name) for name in channels], axis=1)
    subjects, keys = texts(table, subject), [texts(table, name) for name in (subject, *recording)]
    together = keys[0]
    for more in keys[1:]:
        together = np.char.add(np.char.add(together, "\0"), more)
    stretches, mended = recordings(
        numbers(table, time) * TICKS[time_unit],
        values,
        np.stack([numbers(table, name) for name in targets], axis=1) if targets else texts(table, label),
        subjects,
        together,
        rate_hz=rate_hz,
        max_gap_s=max_gap_s,
    )
    parts = _subjects(sorted(set(subjects.tolist())), val_subjects, test_subjects, val_share, test_share, split_seed)
    classes = [] if targets else sorted({str(name) for stretch in stretches for name in stretch.labels})
    training = [stretch.values for stretch in stretches if stretch.subject in parts["train"]]
    if not training:
        raise ConfigError(
            f"{root}: no samples are left of the subjects for training, {', '.join(sorted(parts['train']))}."
        )
    window = SampleWindow.fitted(tuple(channels), np.concatenate(training), rate_hz, length)
    if units_per_count:
        if len(units_per_count) != len(channels):
            raise ConfigError(f"dataset.units_per_count wants a number for each of {len(channels)} channels.")
        window = window.in_units(units_per_count)
    splits = {
        part: _cut([one for one in stretches if one.subject in names], window, step, classes, f"{root}, {part}")
        for part, names in parts.items()
    }
    about: dict[str, str | int] = {
        "rows": mended.rows,
        "recordings": len(stretches),
        "gaps": mended.gaps,
        "rows_not_finite": mended.not_finite,
        "rows_with_equal_stamps": mended.equal_stamps,
        "rows_out_of_order": mended.backward_stamps,
        "test_subjects": ", ".join(sorted(parts["test"])),
        "val_subjects": ", ".join(sorted(parts["val"])),
    }
    held = [window.counts(one.values) for one in stretches if one.subject in parts["val"]]
    make = assemble_values if targets else assemble
    return make(
        root.name,
        targets or classes,
        splits["train"],
        val=splits["val"],
        test=splits["test"],
        val_share=0,
        split_seed=split_seed,
        front_end=window,
        recording=_joined(held, round(_RECORDING_S * rate_hz)),
        notes=about,
    )


def _subjects(
    names: Sequence[str],
    val: tuple[str, ...],
    test: tuple[str, ...],
    val_share: float,
    test_share: float,
    seed: int,
) -> dict[str, set[str]]:
    """Return who is in which split."""
    for who in (*val, *test):
        if who not in names:
            raise unknown_name("subject", who, list(names))
    if both := set(val) & set(test):
        raise ConfigError(
            f"dataset: subject {min(both)!r} is in val_subjects and in test_subjects: take it out of one."
        )
    free = [name for name in names if name not in (*val, *test)]
    order = [free[index] for index in np.random.default_rng(seed).permutation(len(free))]
    parts = {"val": set(val), "test": set(test)}
    for part, share in (("test", test_share), ("val", val_share)):
        if not parts[part]:
            count = max(1, round(share * len(names)))
            parts[part], order = set(order[:count]), order[count:]
    parts["train"] = set(order)
    if not all(parts.values()):
        raise ConfigError(
            f"{len(names)} subjects cannot be split into training, validation and test: three are wanted."
        )
    return parts


def _cut(stretches: Sequence[Recording], window: SampleWindow, step: int, classes: Sequence[str], what: str) -> Split:
    """Return the windows of some recordings, the label of each that of most of its samples; without classes a mean."""
    starts = [range(0, len(one.values) - window.length + 1, step) for one in stretches]
    total = sum(map(len, starts))
    if not total:
        raise ConfigError(f"{what}: no recording is as long as a window, {window.length} samples: take shorter ones.")
    check_memory(what, total * window.length * window.channels)
    images, labels = [], []
    for one, at in zip(stretches, starts, strict=True):
        counts = window.counts(one.values)
        numbered = np.searchsorted(classes, one.labels) if classes else one.labels
        for start in at:
            images.append(window.window(counts[start:]))
            mine = numbered[start : start + window.length]
            labels.append(np.bincount(mine).argmax() if classes else mine.mean(axis=0))
    made = np.array(labels)
    return Split(np.stack(images), made.astype(np.int64) if classes else as_values(made, what))


def _joined(parts: Sequence[Samples], most: int) -> NDArray[np.int16]:
    """Return recordings one after the other, up to so many samples."""
    return np.concatenate(parts)[:most]
