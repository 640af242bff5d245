"""Random networks of the search space, trained a little: the C gives the bits of onnxruntime from end to end."""

from pathlib import Path

import numpy as np
import pytest

from automcu_ray.networks.graph import Shape
from tests.backends.host import run_on_host
from tests.backends.random_networks import images, trained_network

SMALL, COLOUR, SIGNAL = (1, 8, 8), (3, 32, 32), (6, 1, 64)


@pytest.mark.parametrize(
    ("shape", "seed"),
    [(SMALL, 1), (SMALL, 2), (SMALL, 14), (COLOUR, 3), (COLOUR, 18), (COLOUR, 25), (SIGNAL, 0), (SIGNAL, 2)],
)
def test_a_random_network_gives_the_bits_of_onnxruntime(
    shape: Shape, seed: int, host_gcc: None, tmp_path: Path
) -> None:
    made = trained_network(shape, seed, max_macs=600_000 if shape == COLOUR else 100_000)
    batch = images(shape, 300, seed + 100)
    wanted = made.run(batch)
    assert len(np.unique(wanted, axis=0)) > 100  # else little was compared: take other seeds
    assert np.array_equal(run_on_host(made, batch, tmp_path), wanted)
