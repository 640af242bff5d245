"""Images in Parquet, the layout of Hugging Face image data sets: a column of {bytes, path}, a column of labels."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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


def parquet_images(
    *,
    folder: str,
    train: str = "*train*.parquet",
    test: str | None = "*test*.parquet",
    label: str = "label",
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
    names are those that the file's own metadata give, else numbers.

    Raises:
        ConfigError: no folder or file, a column missing, labels out of range, an image that cannot be read, or sizes
            that differ.
    """
    root = data_folder(folder)
    names, whole = _read(root, "train", train, label, size, max_train, split_seed)
    held = None if test is None else _read(root, "test", test, label, size, max_test, split_seed)[1]
    return assemble(
        root.name, names, whole, test=held, val_share=val_share, test_share=test_share, split_seed=split_seed
    )


def _read(
    root: Path, which: str, pattern: str, label: str, size: int | None, limit: int | None, seed: int
) -> tuple[tuple[str, ...], Split]:
    """Return class names, and the rows that are kept, decoded."""
    files = sorted(path for path in root.glob(pattern) if path.is_file())
    if not files:
        raise ConfigError(f"no file {root / pattern}: set dataset.{which} to a Parquet file, or a pattern, in there.")
    table = pa.concat_tables([_table(path, label) for path in files])
    labels: Labels = table[label].to_numpy()
    rows = pick(labels, limit, seed, f"dataset.max_{which}")
    blobs = table["image"]
    where = files[0] if len(files) == 1 else files[0].parent
    images = decode(
        [f"{where} row {row}" for row in rows],
        lambda index: blobs[int(rows[index])].as_py(),
        size=size,
        source=([fingerprint(path) for path in files], rows.tobytes()),
        what=str(where),
    )
    return _class_names(table.schema, label, labels), Split(images, labels[rows])


def _table(path: Path, label: str) -> pa.Table:
    """Return columns `image` (large_binary) and `label` (int64) of one file."""
    try:
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
        image = next((field.name for field in schema if _holds_bytes(field.type)), None)
        if image is None or label not in schema.names:
            wanted = "of images, bytes or a struct with field 'bytes'" if image is None else repr(label)
            raise ConfigError(f"{path} has no column {wanted}; found {', '.join(schema.names)}. See dataset.label.")
        groups = (file.metadata.row_group(index) for index in range(file.metadata.num_row_groups))
        check_memory(str(path), sum(group.total_byte_size for group in groups))
        table = file.read(columns=[image, label])
        column = table[image]  # in chunks: one array holds 2 GB of bytes at most
        blobs = pc.struct_field(column, "bytes") if pa.types.is_struct(column.type) else column
        labels = table[label]
        if not pa.types.is_integer(labels.type) or labels.null_count:
            raise ConfigError(
                f"{path}: labels must be whole numbers, one for each image; found {labels.type} with "
                f"{labels.null_count} missing. dataset.label names the column."
            )
        columns = {"image": blobs.cast(pa.large_binary()), label: labels.to_numpy().astype(np.int64)}
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
