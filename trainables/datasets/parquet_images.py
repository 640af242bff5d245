"""Images in Parquet, the layout of Hugging Face image data sets: a column of {bytes, path}, a column of labels."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from automcu_ray.core.errors import ConfigError
from trainables.datasets.base import (
    Dataset,
    Labels,
    Split,
    assemble,
    check_memory,
    data_folder,
    in_short,
    numbered,
    pick,
)
from trainables.datasets.pictures import decode
from trainables.datasets.prepared import fingerprint
from trainables.datasets.targets import as_values, assemble_values


def parquet_images(
    *,
    folder: str,
    train: str = "*train*.parquet",
    test: str | None = "*test*.parquet",
    label: str = "label",
    targets: tuple[str, ...] = (),
    size: int | None = None,
    val_share: float = 0.1,
    test_share: float = 0.2,
    split_seed: int = 0,
    max_train: int | None = None,
    max_test: int | None = None,
) -> Dataset:
    """Return the images (PNG, JPEG, ...) of Parquet files; validation is cut from those for training, stratified.

    `train` and `test` are names, or patterns where the rows are spread over several files; without `test`, `test_share`
    of the training rows are held back. `max_train` and `max_test` keep so many rows, each class by its share. Class
    names are those that the file's own metadata give, else numbers. `targets` are columns of numbers to estimate, in
    place of a label.

    Raises:
        ConfigError: no folder or file, a column missing, labels out of range, an image that cannot be read, or sizes
            that differ.
    """
    root = data_folder(folder)
    wanted = Wanted(label, targets, size, split_seed)
    names, whole = _read(root, "train", train, max_train, wanted)
    held = None if test is None else _read(root, "test", test, max_test, wanted)[1]
    make = assemble_values if targets else assemble
    return make(root.name, names, whole, test=held, val_share=val_share, test_share=test_share, split_seed=split_seed)


class Wanted(NamedTuple):
    """The columns that are read beside the images: a label, or targets in place of it; and how."""

    label: str
    targets: tuple[str, ...]
    size: int | None
    seed: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.targets or (self.label,)


def _read(root: Path, which: str, pattern: str, limit: int | None, wanted: Wanted) -> tuple[tuple[str, ...], Split]:
    """Return the names of classes or targets, and the rows that are kept, decoded."""
    files = sorted(path for path in root.glob(pattern) if path.is_file())
    if not files:
        raise ConfigError(f"no file {root / pattern}: set dataset.{which} to a Parquet file, or a pattern, in there.")
    table = pa.concat_tables([_table(path, wanted) for path in files])
    labels: Labels = np.stack([table[name].to_numpy() for name in wanted.columns], axis=1)
    if wanted.targets:
        rows = _some(len(labels), limit, wanted.seed)
        labels = as_values(labels, f"{root}, columns {', '.join(wanted.targets)}")
    else:
        labels = labels[:, 0]
        rows = pick(labels, limit, wanted.seed, f"dataset.max_{which}")
    blobs = table["image"]
    where = files[0] if len(files) == 1 else files[0].parent
    images = decode(
        [f"{where} row {row}" for row in rows],
        lambda index: blobs[int(rows[index])].as_py(),
        size=wanted.size,
        source=([fingerprint(path) for path in files], rows.tobytes()),
        what=str(where),
    )
    names = wanted.targets or _class_names(table.schema, wanted.label, labels)
    return names, Split(images, labels[rows])


def _some(count: int, limit: int | None, seed: int) -> NDArray[np.int64]:
    """Return which rows to keep where nothing tells classes apart, in order."""
    return np.sort(np.random.default_rng(seed).permutation(count)[:limit])


def _table(path: Path, wanted: Wanted) -> pa.Table:
    """Return columns `image` (large_binary), and of the label (int64) or the targets (float64), of one file."""
    try:
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
        image = next((field.name for field in schema if _holds_bytes(field.type)), None)
        missing = [name for name in wanted.columns if name not in schema.names]
        if image is None or missing:
            what = "of images, bytes or a struct with field 'bytes'" if image is None else repr(missing[0])
            raise ConfigError(f"{path} has no column {what}; found {', '.join(schema.names)}. See dataset.label.")
        groups = (file.metadata.row_group(index) for index in range(file.metadata.num_row_groups))
        check_memory(str(path), sum(group.total_byte_size for group in groups))
        table = file.read(columns=[image, *wanted.columns])
        column = table[image]  # in chunks: one array holds 2 GB of bytes at most
        blobs = pc.struct_field(column, "bytes") if pa.types.is_struct(column.type) else column
        columns = {"image": blobs.cast(pa.large_binary())}
        for name in wanted.columns:
            labels = table[name]
            fine = pa.types.is_integer(labels.type) or (wanted.targets and pa.types.is_floating(labels.type))
            if not fine or labels.null_count:
                kind, key = ("numbers", "targets") if wanted.targets else ("whole numbers", "label")
                raise ConfigError(
                    f"{path}: {'values' if wanted.targets else 'labels'} must be {kind}, one for each image; found "
                    f"{labels.type} with {labels.null_count} missing. dataset.{key} names the column."
                )
            columns[name] = labels.to_numpy().astype(np.float64 if wanted.targets else np.int64)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:  # KeyError: two columns of one name
        raise ConfigError(f"{path} cannot be read as Parquet: {in_short(error)}.") from error
    return pa.table(columns).replace_schema_metadata(schema.metadata)


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        index = kind.get_field_index("bytes")
        return index >= 0 and _holds_bytes(kind.field(index).type)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))  # the latter is what polars writes


def _class_names(schema: pa.Schema, label: str, labels: Labels) -> tuple[str, ...]:
    """Return the names in Hugging Face's metadata, where there are; else numbers."""
    try:
        about: Any = json.loads((schema.metadata or {})[b"huggingface"])
        names = about["info"]["features"][label]["names"]
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            return tuple(names)
    except (KeyError, ValueError, TypeError):
        pass  # another tool wrote the file
    return numbered(labels)
