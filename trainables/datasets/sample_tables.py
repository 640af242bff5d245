"""Tables of samples in Parquet or CSV files: recordings at even intervals, whatever their time stamps were like."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from automcu_ray.core.errors import ConfigError
from trainables.datasets.base import check_memory, in_short

TICKS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}  # of a time column, in seconds
MOST_SAMPLES = 1 << 27  # of all recordings, resampled: a time stamp far away must not fill the memory


class Recording(NamedTuple):
    """A stretch without gaps: who, values (samples, channels) at even intervals, and labels of each sample.

    Labels are names (samples,), or numbers (samples, targets).
    """

    subject: str
    values: NDArray[np.float64]
    labels: NDArray[Any]


class Cleaning(NamedTuple):
    """What was done to make recordings of rows."""

    rows: int
    not_finite: int  # rows left out
    equal_stamps: int  # rows averaged with the one before
    backward_stamps: int  # rows put in order
    gaps: int  # where a recording was cut


def read_table(files: Sequence[Path], columns: Sequence[str]) -> pa.Table:
    """Return columns of Parquet or CSV files, one after the other.

    Raises:
        ConfigError: a file that is neither, cannot be read, or lacks a column.
    """
    return pa.concat_tables([_read(path, list(dict.fromkeys(columns))) for path in files], promote_options="permissive")


def _read(path: Path, columns: list[str]) -> pa.Table:
    try:
        if path.suffix.lower() == ".parquet":
            file = pq.ParquetFile(path)
            names = file.schema_arrow.names
            groups = (file.metadata.row_group(index) for index in range(file.metadata.num_row_groups))
            check_memory(str(path), sum(group.total_byte_size for group in groups))
        else:
            check_memory(str(path), 4 * path.stat().st_size)
            names = pyarrow.csv.open_csv(path).schema.names
        if missing := [name for name in columns if name not in names]:
            raise ConfigError(
                f"{path} has no column {missing[0]!r}; found {', '.join(map(str, names[:20]))}: see dataset.channels, "
                "label, subject and time."
            )
        if path.suffix.lower() == ".parquet":
            return file.read(columns=columns)
        wanted = pyarrow.csv.ConvertOptions(include_columns=columns)
        return pyarrow.csv.read_csv(path, convert_options=wanted)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:  # KeyError: two columns of one name
        kind = "Parquet" if path.suffix.lower() == ".parquet" else "CSV"
        raise ConfigError(f"{path} cannot be read as {kind}: {in_short(error)}.") from error


def numbers(table: pa.Table, name: str) -> NDArray[np.float64]:
    """Return a column as float64, missing values as NaN.

    Raises:
        ConfigError: it does not hold numbers.
    """
    column = table[name]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ns")).cast(pa.int64())
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise ConfigError(f"column {name!r} should hold numbers, found {column.type}.")
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)


def texts(table: pa.Table, name: str) -> NDArray[np.str_]:
    """Return a column as text.

    Raises:
        ConfigError: a value is missing, or the column holds no names.
    """
    column = table[name]
    if column.null_count or pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
        raise ConfigError(
            f"column {name!r} should hold a name in every row, found {column.type}, some missing perhaps."
        )
    return np.array([str(value) for value in column.to_pylist()])


def recordings(
    seconds: NDArray[np.float64],
    values: NDArray[np.float64],
    labels: NDArray[Any],
    subjects: NDArray[np.str_],
    keys: NDArray[np.str_],
    *,
    rate_hz: float,
    max_gap_s: float,
) -> tuple[list[Recording], Cleaning]:
    """Return recordings at `rate_hz`, by linear interpolation, and what had to be mended.

    Rows of one of `keys` are a recording, put in the order of their time stamps. Rows with equal stamps are averaged,
    those with values that are no finite numbers left out; where nothing was sampled for `max_gap_s` a new recording
    begins. A sample has the label of the nearest row before it, a name or some numbers.

    Raises:
        ConfigError: time stamps so far apart that nothing could hold what lies between.
    """
    finite = np.isfinite(seconds) & np.isfinite(values).all(axis=1)
    if labels.dtype.kind == "f":
        finite &= np.isfinite(labels).all(axis=1)
    found: list[Recording] = []
    equal = backward = gaps = total = 0
    names, first = np.unique(keys, return_index=True)
    for name in names[np.argsort(first)]:
        rows = np.flatnonzero((keys == name) & finite)
        if not len(rows):
            continue
        backward += int((np.diff(seconds[rows]) < 0).sum())
        rows = rows[np.argsort(seconds[rows], kind="stable")]
        stamps, start, count = np.unique(seconds[rows], return_index=True, return_counts=True)
        equal += len(rows) - len(stamps)
        means = np.add.reduceat(values[rows], start, axis=0) / count[:, None]
        cuts = np.flatnonzero(np.diff(stamps) > max_gap_s) + 1
        gaps += len(cuts)
        for part in np.split(np.arange(len(stamps)), cuts):
            span = float(stamps[part[-1]] - stamps[part[0]])
            total += round(span * rate_hz) + 1
            if total > MOST_SAMPLES:
                raise ConfigError(
                    f"at {rate_hz:g} Hz there would be more than {MOST_SAMPLES} samples between the time stamps: is "
                    "dataset.time_unit right?"
                )
            times = stamps[part[0]] + np.arange(int(span * rate_hz) + 1) / rate_hz
            even = np.stack([np.interp(times, stamps[part], channel) for channel in means[part].T], axis=1)
            before = np.searchsorted(stamps[part], times, side="right") - 1
            found.append(Recording(str(subjects[rows[0]]), even, labels[rows[start[part]]][before]))
    mended = Cleaning(len(seconds), int((~finite).sum()), equal, backward, gaps)
    return found, mended
