"""Data sets by name: one function in one file, and one line here each."""

DATASETS = {
    "digits": "trainables.datasets.digits:digits",
    "nasbench201": "trainables.datasets.nasbench201:load",
    "parquet_images": "trainables.datasets.parquet_images:parquet_images",
}
