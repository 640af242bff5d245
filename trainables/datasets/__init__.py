"""Data sets by name: one function in one file, and one line here each."""

DATASETS = {
    "cifar10": "trainables.datasets.published:cifar10",
    "cifar100": "trainables.datasets.published:cifar100",
    "digits": "trainables.datasets.digits:digits",
    "fashion_mnist": "trainables.datasets.published:fashion_mnist",
    "image_folder": "trainables.datasets.image_folder:image_folder",
    "imagenette": "trainables.datasets.published:imagenette",
    "mnist": "trainables.datasets.published:mnist",
    "nasbench201": "trainables.datasets.nasbench201:load",
    "npz": "trainables.datasets.npz:npz",
    "parquet": "trainables.datasets.parquet_images:parquet_images",
    "speech_commands": "trainables.datasets.speech_commands:speech_commands",
    "wav_folders": "trainables.datasets.wav_folders:wav_folders",
    "windows": "trainables.datasets.windows:windows",
}
