"""Every int8 operator of the search space: the C gives the bits of onnxruntime, ties and tails included."""

from pathlib import Path

import numpy as np
import pytest

from backends.c_qemu.form import Form
from tests.backends.host import run_on_host
from tests.backends.operators import EVERY, MODELS, PAIRS, VALUES, run_one_at_a_time

# At which the forms of emx-onnx-cgen that backends/c_qemu/cgen_patches.py replaces differ somewhere; 0 for the others.
SEEDS = {"add": 2, "add of odd sizes": 14, "average pool of the whole": 1, "sigmoid": 20}


@pytest.mark.parametrize("name", MODELS)
def test_an_operator_gives_the_bits_of_onnxruntime(name: str, host_gcc: None, tmp_path: Path) -> None:
    rng = np.random.default_rng(SEEDS.get(name, 0))
    model = MODELS[name](rng)
    values = {PAIRS: np.tile(EVERY, 256), VALUES: EVERY}.get(model.shape)
    inputs = rng.integers(-128, 128, (60, *model.shape)) if values is None else values.reshape(1, *model.shape)
    made = model.deployed()
    wanted = run_one_at_a_time(made.onnx, inputs.astype(np.int8))
    assert len(np.unique(wanted)) > 50  # else little was compared
    images = (inputs + 128).astype(np.uint8)
    assert np.array_equal(run_on_host(made, images, tmp_path), wanted)
    (tmp_path / "small").mkdir()
    without_floats = run_on_host(
        made, images, tmp_path / "small", "cortex-m0plus", "-DNET_INTEGER_ROUNDING", form=Form("small")
    )
    assert np.array_equal(without_floats, wanted)
