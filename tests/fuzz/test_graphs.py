"""Files of networks, their graphs damaged: taken to int8, or refused by a true name."""

import functools
import io
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import deploy
from tests.backends.operator_networks import CLASSES, NETWORKS, SHAPE
from tests.fuzz import sound
from tests.fuzz.damaged_graphs import graphs
from tests.fuzz.test_readers import COUNT, FOREIGN, to_int8

pytestmark = pytest.mark.fuzz

OPERATORS = ("attention by hand", "InstanceNorm2d", "ConvTranspose2d 3, 2", "shifted windows", "class token", "cumsum")


@functools.cache
def of_operators() -> list[bytes]:
    """Return files of networks of many operators, the first at int8 as well."""
    torch.manual_seed(0)
    networks, files = [NETWORKS[name]().eval() for name in OPERATORS], list[bytes]()
    files.append(deploy(networks[0], SHAPE, precision="int8", calibration=np.zeros((4, *SHAPE), np.uint8)).onnx)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one in networks:
            buffer, example = io.BytesIO(), torch.zeros(1, *SHAPE)
            torch.onnx.export(one, (example,), buffer, dynamo=False, opset_version=17)  # type: ignore[arg-type]
            files.append(buffer.getvalue())
    return files


GRAPHS: dict[str, tuple[Callable[[], Sequence[bytes]], tuple[int, int, int], int]] = {
    "small": (lambda: (sound.ONNX_FILE, sound.ONNX_PAIRS), (1, 8, 8), 10),
    "of many operators": (of_operators, SHAPE, CLASSES),
}


@pytest.mark.parametrize("name", GRAPHS)
@settings(
    max_examples=COUNT or 12,
    derandomize=not COUNT,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_a_damaged_graph_is_read_or_refused_by_name(name: str, data: st.DataObject) -> None:
    files, shape, classes = GRAPHS[name]
    try:
        to_int8(data.draw(graphs(files())), shape, classes)
    except ToolchainError as error:
        assert str(error) and len(str(error)) < 3000 and "\n" not in str(error) and not FOREIGN.search(str(error))
