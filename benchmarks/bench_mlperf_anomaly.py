"""MLPerf Tiny's anomaly network, as its reference builds it, trained on one spoken digit and written as ONNX.

    python benchmarks/bench_mlperf_anomaly.py anomaly.onnx anomaly_task.yaml
    automcu deploy anomaly.onnx --task anomaly_task.yaml --target stm32l4r5
    automcu deploy anomaly.onnx --task anomaly_task.yaml --all-targets

The network: 640-128-128-128-128-8-128-128-128-128-640, BatchNorm and ReLU after every layer but the last
(mlcommons/tiny, benchmark/training/anomaly_detection/keras_model.py). Its data, ToyADMOS, are not here: the input is
ten frames of 64 log-mel bands of one word in place of five of 128 of a machine. Prints what a PCA of as many
components gets.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.decomposition import PCA
from torch import nn

from automcu_ray.core.learning import Learning
from automcu_ray.runtime.config import compose
from trainables.datasets.targets import only_normal
from trainables.datasets.wav_folders import wav_folders
from trainables.training.augment import normalize

WIDTHS, EPOCHS, BATCH = (128, 128, 128, 128, 8, 128, 128, 128, 128), 100, 64
TASK = """# Made by benchmarks/bench_mlperf_anomaly.py: one word is normal, the nine others are not.
dataset:
  name: wav_folders
  folder: fsdd
  test: "_[0-4]\\.wav$"
  rate_hz: 8000
  seconds: 0.352
  mels: 64
  frame_ms: 64
  hop_ms: 32
normal: [seven]
metric: auc
target: stm32l4r5
constraints: {}
precision: int8
trainer: autoencoder
"""

torch.manual_seed(0)
model_path, task_path = map(Path, sys.argv[1:3])
task_path.write_text(TASK)
config = compose({"task": str(task_path)})
data = only_normal(wav_folders(**config.dataset.options), config.normal)
layers, before = list[nn.Module](), 640
for width in WIDTHS:
    layers += [nn.Linear(before, width), nn.BatchNorm1d(width), nn.ReLU()]
    before = width
network = nn.Sequential(*layers, nn.Linear(before, 640))
train, val = (normalize(torch.as_tensor(split.images)).flatten(1) for split in (data.train, data.val))
optimizer = torch.optim.Adam(network.parameters(), 1e-3)
for _ in range(EPOCHS):
    for rows in torch.randperm(len(train)).split(BATCH):  # type: ignore[no-untyped-call]
        optimizer.zero_grad()
        nn.functional.mse_loss(network(train[rows]), train[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
network.eval()
learning = Learning.of("anomaly")
with torch.no_grad():
    found = learning.score(network(val).numpy(), data.val.images, data.val.labels)
print(f"{len(train)} normal examples for training; validation AUC {found:.4f} in float")
components = PCA(WIDTHS[4]).fit(train.numpy())
rebuilt = components.inverse_transform(components.transform(val.numpy()))
print(f"PCA of {WIDTHS[4]} components: {learning.score(np.asarray(rebuilt), data.val.images, data.val.labels):.4f}")
example = (torch.zeros(1, 640),)
torch.onnx.export(
    network, example, str(model_path), input_names=["input"], output_names=["output"], opset_version=13, dynamo=False
)
