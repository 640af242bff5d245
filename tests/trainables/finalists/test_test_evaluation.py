"""The test set and the bundle: a vector must not promise outputs that what ships does not give."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from automcu_ray.problem.task import Task
from automcu_ray.records.journal import Repository
from automcu_ray.records.manifest import NetworkManifest
from automcu_ray.records.record import Finalist
from backends.base import Backend
from tests.trainables.finalists.pipelines import CANDIDATE, DATA
from tests.trainables.finalists.test_finalist import VendorBackend, asked
from trainables.finalists.finalist import FinalistPipeline, run_finalist
from trainables.finalists.test_evaluation import evaluate_on_test

pytestmark = pytest.mark.thorough


def evaluated(winner: Finalist, pipeline: FinalistPipeline, bundle: Path) -> NetworkManifest:
    test = DATA.test.open("this test", Repository())
    about: dict[str, Any] = {"seeds": {}, "versions": {}, "architecture": None}  # what only a run knows
    return evaluate_on_test(winner, pipeline, test, board_images=4, bundle=bundle, about=about)


class SameAsOnnxRuntime(VendorBackend):
    def accuracy(self, deployed: object, task: object, images: object, labels: object) -> None:
        return None


@pytest.mark.parametrize(("backend", "same"), [(SameAsOnnxRuntime(), True), (VendorBackend(), False)])
def test_outputs_are_in_the_bundle_where_what_ships_computes_as_onnxruntime(
    backend: Backend, same: bool, digits_task: Task, tmp_path: Path
) -> None:
    about = asked(digits_task, tmp_path)
    assert about.toolchain is not None
    about.toolchain.backend = backend
    manifest = evaluated(run_finalist(CANDIDATE, about), about, tmp_path / "bundle")
    vectors = np.load(tmp_path / "bundle" / "test_vectors.npz")
    assert {"images", "inputs", "labels"} <= set(vectors) and ("outputs" in vectors) == same
    assert (manifest.output is not None) == same == ("outputs as onnxruntime" in manifest.test_vectors)
    assert (manifest.test_accuracy == 0.125) != same
    assert sum(map(sum, manifest.confusion)) == (manifest.test_images if same else 0)
    written = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    assert written["output"] == (manifest.output and manifest.output.model_dump())
    nodes = onnx.load(tmp_path / "bundle" / "network_float32.onnx").graph.node
    assert [node.name for node in nodes] == list(written["layers"])
    assert {"layer_1.conv", "head.linear"} <= set(written["layers"].values())


def test_second_opinions_of_a_run_without_toolchain_are_in_bundle_and_manifest(
    digits_task: Task, tmp_path: Path
) -> None:
    about = asked(digits_task, tmp_path, toolchain=None, second_opinions=(VendorBackend(),))
    winner = run_finalist(CANDIDATE, about)
    manifest = evaluated(winner, about, tmp_path / "bundle")
    assert winner.usable and manifest.backend is None
    assert [opinion.flash_bytes for opinion in manifest.second_opinions] == [1000]
    assert (tmp_path / "bundle" / "vendor" / "project" / "net.c").exists()
