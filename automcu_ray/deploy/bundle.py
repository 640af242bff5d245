"""The deliverable of a run: C, ELF, ONNX, test vectors and a manifest, in one folder."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.records.manifest import NetworkManifest

TEST_VECTORS = 64  # where no board ran


def write_bundle(
    folder: Path,
    deployed: DeployedNetwork,
    manifest: NetworkManifest,
    *,
    shipped: Path,
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    finish: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Write the bundle; a bundle that was there before is replaced as a whole.

    `shipped` is the folder of what the toolchain leaves: sources, firmware; there is none where no toolchain took part.
    Test vectors are the first test images (uint8 NCHW), all that the board ran, for its counts are the largest over
    these; the bytes that go into the network, the labels and, where the manifest speaks of outputs, those that
    onnxruntime gives: c_qemu's firmware gives the same bytes, other backends may differ by some steps, as their notes
    say. Elsewhere what ships has scales and roundings of its own. `finish` does the rest before anyone sees the bundle:
    the toolchain's `package`.
    """
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    if shipped.is_dir():
        shutil.copytree(shipped, part)
    part.mkdir(parents=True, exist_ok=True)
    (part / "network_float32.onnx").write_bytes(deployed.float_onnx)
    if deployed.precision != "float32":
        (part / f"network_{deployed.precision}.onnx").write_bytes(deployed.onnx)
    count = manifest.board_images or TEST_VECTORS
    images, labels = images[:count], labels[:count]
    vectors: dict[str, Any] = {"images": images, "inputs": deployed.encode(images), "labels": labels}
    if manifest.output is not None:
        vectors["outputs"] = deployed.run(images)
    np.savez_compressed(part / "test_vectors.npz", **vectors)
    (part / "manifest.json").write_text(json.dumps(manifest.model_dump(mode="json"), indent=2) + "\n", encoding="utf-8")
    finish(part)
    shutil.rmtree(folder, ignore_errors=True)
    part.replace(folder)
