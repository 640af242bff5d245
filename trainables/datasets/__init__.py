"""Data sets by name: one function in one file, and one line here each."""

DATASETS = {
    "digits": "trainables.datasets.digits:digits",
    "parquet_images": "trainables.datasets.parquet_images:parquet_images",
}
