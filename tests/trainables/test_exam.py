"""The test set and the bundle: a vector must not promise outputs that what ships does not give."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from automcu_ray.record import Candidate
from automcu_ray.repository import Repository
from automcu_ray.task import Task
from backends.base import Backend
from tests.trainables.test_finalist import DATA, SPEC, VendorBackend, job
from trainables.exam import examine
from trainables.finalist import run_finalist


class SameAsOnnxRuntime(VendorBackend):
    def accuracy(self, deployed: object, task: object, images: object, labels: object) -> None:
        return None


@pytest.mark.parametrize(("backend", "same"), [(SameAsOnnxRuntime(), True), (VendorBackend(), False)])
def test_outputs_are_in_the_bundle_where_what_ships_computes_as_onnxruntime(
    backend: Backend, same: bool, digits_task: Task, tmp_path: Path
) -> None:
    about = job(digits_task, tmp_path)
    assert about.toolchain is not None
    about.toolchain.backend = backend
    winner = run_finalist(Candidate(number=3, hash="abc", spec=SPEC), about)
    manifest = examine(
        winner, about, DATA.test.open("this test", Repository()), board_images=4, bundle=tmp_path / "bundle", about={}
    )
    vectors = np.load(tmp_path / "bundle" / "test_vectors.npz")
    assert {"images", "inputs", "labels"} <= set(vectors) and ("outputs" in vectors) == same
    assert (manifest["output"] is not None) == same == ("outputs as onnxruntime" in manifest["test_vectors"])
    assert (manifest["test_accuracy"] == 0.125) != same
    assert json.loads((tmp_path / "bundle" / "manifest.json").read_text())["output"] == manifest["output"]


def test_second_opinions_of_a_run_without_toolchain_are_in_bundle_and_manifest(
    digits_task: Task, tmp_path: Path
) -> None:
    about = dataclasses.replace(job(digits_task, tmp_path), toolchain=None, second_opinions=(VendorBackend(),))
    winner = run_finalist(Candidate(number=3, hash="abc", spec=SPEC), about)
    manifest = examine(
        winner, about, DATA.test.open("this test", Repository()), board_images=4, bundle=tmp_path / "bundle", about={}
    )
    assert winner.usable and manifest["backend"] is None
    assert [opinion["flash_bytes"] for opinion in manifest["second_opinions"]] == [1000]
    assert (tmp_path / "bundle" / "vendor" / "project" / "net.c").exists()
