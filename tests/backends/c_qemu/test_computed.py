"""Softmax, quotients and maxima of two tensors, products of computed matrices: near real values, C of the same bits."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy import integer_functions
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.deploy.integer_functions import Scale
from automcu_ray.problem.target import Core
from backends.c_qemu.cgen import generate
from backends.c_qemu.form import Form
from tests.backends.host import run_on_host, run_sanitised
from tests.backends.operators import EVERY, Model, Rng, run_one_at_a_time

PAIRS = (1, 256, 256)
Array = npt.NDArray[np.float64]


def function(kind: str, shape: tuple[int, ...], reads: list[Scale], gives: Scale, **options: int) -> DeployedNetwork:
    """Return one integer function of the image and, where it reads two tensors, of a constant: every value in a row."""
    ends = [helper.make_tensor_value_info("image", TensorProto.INT8, ["batch", *shape])]
    size = int(np.prod(shape))
    ends.append(helper.make_tensor_value_info("logits", TensorProto.INT8, ["batch", size]))
    second = numpy_helper.from_array(EVERY.astype(np.int8).reshape(1, 1, 1, 256), "second")
    model = helper.make_model(
        helper.make_graph([], "one", ends[:1], ends[1:], [second] if len(reads) > 1 else []),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    sources = ["image", "second"][: len(reads)]
    node = helper.make_node(kind, sources, ["y"], name="function", **options)
    call = integer_functions.write(model, node, sources, reads, "found", gives)
    model.graph.node.extend([call, helper.make_node("Flatten", ["found"], ["logits"], name="flat", axis=1)])
    return DeployedNetwork("int8", b"", model.SerializeToString(), shape, size, 1 / 128, 0, gives.step, gives.zero)  # type: ignore[arg-type]


def in_c(made: DeployedNetwork, inputs: npt.NDArray[np.int64], folder: Path) -> npt.NDArray[np.int8]:
    """Return onnxruntime's answers, which C for boards with and without floats must give."""
    wanted = run_one_at_a_time(made.onnx, inputs.astype(np.int8))
    images = (inputs + 128).astype(np.uint8)
    assert np.array_equal(run_sanitised(generate(made).source, made, images, folder), wanted)
    small = run_on_host(made, images, folder, "cortex-m0plus", "-DNET_INTEGER_ROUNDING", form=Form("small"))
    assert np.array_equal(small, wanted)
    return wanted


def real(values: npt.ArrayLike, scale: Scale) -> Array:
    made: Array = (np.asarray(values, np.float64) - scale.zero) * scale.step
    return made


@pytest.mark.parametrize(
    ("kind", "zero_b", "step"),
    [("Div", -128, 0.02), ("Div", 3, 0.001), ("Div", 127, 4.0), ("Max", -128, 0.02), ("Min", 90, 0.015)],
)
def test_all_pairs_of_values_give_the_nearest_result(
    kind: str, zero_b: int, step: float, host_gcc: None, tmp_path: Path
) -> None:
    a, b, y = Scale(0.02, -7), Scale(0.03, zero_b), Scale(step, -20)
    values = np.tile(EVERY[:, None], (1, 256)).reshape(1, *PAIRS)
    found = in_c(function(kind, PAIRS, [a, b], y), values, tmp_path).reshape(256, 256)
    first, second = real(EVERY, a)[:, None], real(EVERY, b)[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = {"Div": first / second, "Max": np.maximum(first, second), "Min": np.minimum(first, second)}[kind]
    exact = wanted / step + y.zero
    defined = ~np.isnan(exact)  # 0 / 0 gives 0
    assert np.abs(exact.clip(-128, 127) - found)[defined].max() < (0.52 if kind == "Div" else 0.51)
    assert (found[~defined] == y.zero).all()
    assert len(np.unique(found)) > 50 or step > 1


@pytest.mark.parametrize(("shape", "axis", "step"), [((8, 1, 2), 1, 0.1), ((3, 5, 40), 3, 0.02), ((2, 1, 1), 2, 0.1)])
def test_a_softmax_gives_the_nearest_result(
    shape: tuple[int, ...], axis: int, step: float, host_gcc: None, tmp_path: Path
) -> None:
    x, y = Scale(step, 5), Scale(1 / 255, -128)
    inputs = np.random.default_rng(0).integers(-128, 128, (20, *shape))
    inputs[0], inputs[1] = 127, -128
    inputs[2].flat[0] = 127
    found = in_c(function("Softmax", shape, [x], y, axis=axis), inputs, tmp_path)
    parts = np.exp(real(inputs, x))
    exact = (parts / parts.sum(axis, keepdims=True) * 255 - 128).reshape(20, -1)
    assert np.abs(exact - found).max() < 0.51


def test_a_softmax_of_many_small_shares_keeps_their_differences(host_gcc: None, tmp_path: Path) -> None:
    x, y, shape = Scale(0.001, 0), Scale(1e-3 / 255, -128), (1, 64, 64)
    inputs = np.random.default_rng(0).integers(-128, 128, (2, 1, 1, 4096)).reshape(2, *shape)
    made = function("Softmax", (4096, 1, 1), [x], y, axis=1)
    found = in_c(made, inputs.reshape(2, 4096, 1, 1), tmp_path)
    parts = np.exp(real(inputs.reshape(2, -1), x))
    exact = parts / parts.sum(1, keepdims=True) / y.step - 128
    assert np.abs(exact.clip(-128, 127) - found).max() < 0.6
    assert len(np.unique(found)) > 10


def test_a_softmax_over_the_images_or_over_too_many_values_is_refused_by_name() -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], name="node", axis=0)
    with pytest.raises(ToolchainError, match=r"Softmax .*found axis 0"):
        integer_functions.check_size(node, (1, 5))
    with pytest.raises(ToolchainError, match="at most 4096 values"):
        integer_functions.check_size(helper.make_node("Softmax", ["x"], ["y"], axis=-1), (1, 5000))


# Count, rows, depth, columns.
SIZES = [(1, 1, 1, 1), (1, 5, 7, 3), (3, 4, 16, 4), (2, 6, 13, 18), (1, 3, 8, 35), (4, 2, 33, 2)]


def matrices(rng: Rng) -> Model:
    """Return products of stacks of matrices that lie in the image; zero points are often extreme."""
    model = Model(rng, (1, 1, 640))
    for count, rows, depth, columns in SIZES:
        a, b = model.scale(1e-3, 0.05), model.scale(1e-3, 0.05)
        first, second = (rows, depth), (depth, columns)
        starts = (0, count * rows * depth)
        shaped = []
        for start, size in zip(starts, (first, second), strict=True):
            places = model.constant(np.arange(start, start + count * int(np.prod(size))))
            part = model.add("Gather", "image", places, axis=3)
            shaped.append(model.add("Reshape", part, model.constant(np.array([0, count, *size], np.int64))))
        y = a * b * 5000 * np.sqrt(depth) / rng.uniform(20, 90)
        quantised = [*model.quantised(a), shaped[1], *model.quantised(b), *model.quantised(float(y))]
        model.add("QLinearMatMul", shaped[0], *quantised)
    return model


@pytest.mark.parametrize("core", [pytest.param(None, marks=pytest.mark.slow), "cortex-m4f", "cortex-m55d"])
def test_products_of_computed_matrices_give_the_bits_of_onnxruntime(
    core: Core | None, host_gcc: None, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    made = matrices(rng).deployed()
    inputs = rng.choice(np.int8([-128, 127, *rng.integers(-128, 128, 20)]), (20, *made.input_shape))
    wanted = run_one_at_a_time(made.onnx, inputs)
    images = (inputs + np.int16(128)).astype(np.uint8)
    assert np.array_equal(run_sanitised(generate(made, core).source, made, images, tmp_path), wanted)
    assert len(np.unique(wanted)) > 100


def test_stacks_that_are_repeated_in_part_are_refused_by_name() -> None:
    model = Model(np.random.default_rng(0), (2, 4, 4))
    ones = [model.constant(np.ones((1, 2, *size, 4, 4), np.int8)) for size in ((), (3,))]
    quantised = [model.quantised(0.1) for _ in range(3)]
    wide = model.add("Reshape", "image", model.constant(np.array([0, 2, 1, 4, 4], np.int64)))
    model.add("QLinearMatMul", wide, *quantised[0], ones[1], *quantised[1], *quantised[2])
    with pytest.raises(ToolchainError, match="QLinearMatMul should have as many matrices on both sides"):
        generate(model.deployed())


def test_the_functions_run_without_onnxruntimes_own_quantised_operators() -> None:
    made = onnx.load_from_string(function("Softmax", (8, 1, 2), [Scale(0.1, 0)], Scale(1 / 255, -128), axis=1).onnx)
    kinds = {node.op_type for body in made.functions for node in body.node}
    assert not any(kind.startswith("Q") or "Float" in kind for kind in kinds)
    assert {entry.domain for entry in made.opset_import} == {"", integer_functions.DOMAIN}
