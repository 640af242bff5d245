"""The backend around ai8xize, with a stand-in for the tool; `test_ai8x_tool.py` runs the real one."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml

from automcu_ray.core.errors import ConfigError, ToolchainError, ToolMissingError
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.testing.backend_contract import BackendContract
from backends.ai8x import float_graph
from backends.ai8x.backend import Ai8xBackend, convert
from backends.ai8x.limits import Refused
from backends.base import Backend, Firmware
from backends.programs import Completed
from backends.source_fingerprint import digest
from tests.backends.ai8x.networks import conv, deploy_graph, images, make_graph, make_task, read_target

LAYERS = [conv(8), {"type": "max_pool"}, conv(12)]
WEIGHTS, BIASES = 3 * 8 * 9 + 8 * 12 * 9 + 120, 8 + 12 + 10


@dataclass
class FakeTool:
    """Writes what ai8xize writes that is read; `outputs` are the known answers."""

    outputs: np.ndarray
    weights: int = WEIGHTS
    returncode: int = 0
    stderr: str = ""
    seen: list[list[str]] = field(default_factory=list)

    def __call__(self, argv: Sequence[str], *, timeout_s: float, cwd: Path) -> Completed:
        if "-c" in argv:
            return Completed(list(argv), 0, "1.26.4 2.3.1\n", "")
        self.seen.append(list(argv))
        assert (cwd / "assets").is_symlink(), "ai8xize looks for its assets in the current folder"
        project = cwd / "project"
        project.mkdir(exist_ok=True)
        memory = f"Weight memory: {self.weights:,} bytes out of 442,368 bytes total (0.1%)\n"
        (project / "main.c").write_text(memory + "Bias memory:   30 bytes out of 2,048 bytes total (1.5%)\n")
        words = [int(value) & 0xFFFFFFFF for value in self.outputs]
        blocks = [(0x50400000 + 0x8000 * i, words[4 * i : 4 * i + 4]) for i in range(3)]
        parts = [word for address, values in blocks for word in (address, 0xFFFFFFFF, len(values), *values)]
        (project / "sampleoutput.h").write_text(", ".join(f"0x{word:08x}" for word in [*parts, 0]))
        return Completed(list(argv), self.returncode, "", self.stderr)


@pytest.fixture(scope="module")
def deployed() -> DeployedNetwork:
    return deploy_graph(make_graph(LAYERS))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "ai8x-synthesis"
    folder.mkdir()
    (folder / "ai8xize.py").write_text("")
    return folder


@pytest.fixture
def tool(deployed: DeployedNetwork) -> FakeTool:
    sample = np.random.default_rng(0).integers(-128, 128, (3, 16, 16)).astype(np.int8)
    return FakeTool(convert(deployed, read_target(), Constraints())[0].run(sample[None])[0])


@pytest.fixture
def build(tool: FakeTool, deployed: DeployedNetwork, checkout: Path, tmp_path: Path) -> Callable[[], Firmware]:
    (tmp_path / "work").mkdir()
    backend = Ai8xBackend(checkout=str(checkout), run=tool)
    return lambda: backend.build(deployed, read_target(), Constraints(), tmp_path / "work")


def test_a_network_that_fits_comes_with_its_project(build: Callable[[], Firmware], tmp_path: Path) -> None:
    made = build()
    assert made.report.feasible and made.report.rung == "vendor tool" and made.elf is None
    assert (made.report.ram_bytes, made.report.flash_bytes) == (None, None)  # nothing has been compiled
    assert made.report.notes[:2] == (
        f"weight memory: {WEIGHTS:,} of 442,368 bytes",
        f"bias memory: {BIASES} of 2,048 bytes",
    )
    assert [path.name for path in made.sources] == ["project", "network.yaml", "network.pth.tar", "sample.npy"]
    assert not (tmp_path / "work" / "assets").exists()
    made.collect(tmp_path / "shipped")
    assert (tmp_path / "shipped" / "project" / "main.c").is_file()


def test_the_tool_gets_the_files_of_its_folder(
    tool: FakeTool, build: Callable[[], Firmware], checkout: Path, tmp_path: Path
) -> None:
    build()
    (argv,) = tool.seen
    given = dict(zip(argv[2::2], argv[3::2], strict=False))
    assert argv[1] == str(checkout / "ai8xize.py") and given["--device"] == "MAX78000"
    assert (tmp_path / "work" / given["--config-file"]).is_file() and "--avg-pool-rounding" in argv
    described = yaml.safe_load((tmp_path / "work" / "network.yaml").read_text())["layers"]
    assert [layer["op"] for layer in described] == ["conv2d"] * 3
    assert described[1] == {
        "in_sequences": [0],
        "in_offset": 0,
        "out_offset": 0,
        "processors": "0x0000000000ff0000",
        "output_processors": "0x00000fff00000000",
        "max_pool": [2, 2],
        "pool_stride": 2,
        "op": "conv2d",
        "kernel_size": "3x3",
        "pad": 1,
        "activate": "ReLU",
        "quantization": 8,
    }
    assert np.load(tmp_path / "work" / "sample.npy").dtype == np.int64


def test_known_answers_that_are_not_ours_are_an_error(tool: FakeTool, build: Callable[[], Firmware]) -> None:
    tool.outputs = tool.outputs + np.eye(10, dtype=np.int64)[3]
    with pytest.raises(ToolchainError, match="ai8xize expects"):
        build()
    tool.weights += 1
    with pytest.raises(ToolchainError, match=f"where {WEIGHTS} bytes of weights were expected"):
        build()


def test_a_refusal_of_the_tool_is_a_report(tool: FakeTool, build: Callable[[], Firmware]) -> None:
    tool.returncode, tool.stderr = 1, "ERROR: Processor 0: Layer 1 output for CHW=0,27,25 is overwriting input at 0x0\n"
    made = build()
    (violation,) = made.report.violations
    assert (made.report.feasible, made.sources) == (False, ())
    assert (violation.resource, violation.where, violation.rung) == ("data_memory", "layer_3.conv", "vendor tool")


def test_a_crash_of_the_tool_is_an_error(tool: FakeTool, build: Callable[[], Firmware], tmp_path: Path) -> None:
    tool.returncode, tool.stderr = 1, "Traceback (most recent call last):\nOverflowError: out of bounds for uint8\n"
    with pytest.raises(ToolchainError, match="OverflowError"):
        build()
    assert not (tmp_path / "work" / "assets").is_symlink()


def test_what_is_foreseen_is_what_build_refuses_without_the_tool(tmp_path: Path) -> None:
    graph = make_graph([conv(64, kernel_size=1), conv(64), conv(8, kernel_size=1)])
    task = make_task(flash_kb=16)
    (foreseen,) = Ai8xBackend().check_bounds(graph, task)
    need = 3 * 64 + 64 * 64 * 9 + 64 * 8 + 80 + 64 + 64 + 8 + 10
    assert (foreseen.resource, foreseen.where, foreseen.found_bytes) == ("flash", "layer_2.conv", need)
    made = Ai8xBackend().build(deploy_graph(graph), task.target, task.constraints, tmp_path)
    (refused,) = made.report.violations
    assert refused.message == foreseen.message and (foreseen.rung, refused.rung) == ("analytic", "convert")
    assert Ai8xBackend().check_bounds(graph, make_task()) == ()


def test_too_large_and_unsupported_networks_are_refused_with_the_reason_without_a_checkout() -> None:
    backend, task = Ai8xBackend(), make_task()
    (large,) = backend.check_bounds(make_graph([conv(128), conv(256), conv(256)]), task)
    assert large.message == "weights need 890,752 bytes, the accelerator has 442,368"
    (unsupported,) = backend.check_bounds(make_graph([conv(8), conv(8, stride=2)]), task)
    assert unsupported.message == "layer_2.conv: MAX78000 cannot run it: stride 2, it does 1"


def test_accuracy_is_that_of_the_integers_which_the_accelerator_computes(deployed: DeployedNetwork) -> None:
    seen, task = images((3, 16, 16), 70), make_task()
    outputs = convert(deployed, task.target, task.constraints)[0].run(deployed.encode(seen))
    labels = outputs.argmax(axis=1)
    labels[:7] = (labels[:7] + 1) % 10
    assert Ai8xBackend().accuracy(deployed, task, seen, labels) == 0.9


def test_a_target_without_accelerator_or_float32_is_unsuitable(digits_task) -> None:
    backend = Ai8xBackend()
    assert "has no accelerator" in backend.unsuitable(digits_task)
    assert backend.check_bounds(make_graph([conv(8)]), digits_task)[0].message == backend.unsuitable(digits_task)
    assert "int8" in backend.unsuitable(make_task().replace(precision="float32"))
    assert backend.unsuitable(make_task()) == ""


def test_without_a_checkout_it_says_how_to_get_one(checkout: Path, tmp_path: Path, deployed: DeployedNetwork) -> None:
    assert Ai8xBackend().missing_programs() == ("ai8xize.py",)
    assert "git clone" in Ai8xBackend().how_to_install()
    assert Ai8xBackend(checkout=str(checkout)).missing_programs() == ()
    assert Ai8xBackend(checkout=str(checkout), python="/no/python").missing_programs() == ("/no/python",)
    with pytest.raises(ToolMissingError, match="git clone"):
        Ai8xBackend().build(deployed, read_target(), Constraints(), tmp_path)
    for relative in ({"checkout": "some/folder"}, {"checkout": "folder"}, {"python": "venv/bin/python"}):
        with pytest.raises(ConfigError, match="absolute"):
            Ai8xBackend(**relative)


@pytest.mark.parametrize(
    ("stdout", "returncode", "reason"),
    [
        ("1.26.4 2.3.1\n", 0, ""),
        ("2.4.6 2.13.0\n", 0, "numpy below 2"),
        ("", 1, "needs numpy"),
        ("?", 0, "needs numpy"),
    ],
)
def test_its_version_tells_whether_the_tool_can_run(stdout: str, returncode: int, reason: str, checkout: Path) -> None:
    said = Completed([], returncode, stdout, "")
    backend = Ai8xBackend(checkout=str(checkout), run=lambda argv, **_: said)
    if reason:
        with pytest.raises(ToolMissingError, match=reason):
            backend.version()
    else:
        assert "numpy 1.26.4, torch 2.3.1" in backend.version()


def test_the_version_covers_the_tool_and_leaves_out_what_else_lies_in_the_checkout(
    tool: FakeTool, checkout: Path
) -> None:
    def version() -> str:
        digest.cache_clear()
        return Ai8xBackend(checkout=str(checkout), run=tool).version()

    (checkout / "izer" / "backend").mkdir(parents=True)
    (checkout / "venv" / "izer").mkdir(parents=True)
    seen = {version()}
    for name, counts in {"ai8xize.py": True, "izer/backend/max7800x.py": True, "venv/izer/other.py": False}.items():
        (checkout / name).write_text("# changed")
        assert (version() not in seen) == counts, name
        seen.add(version())


@pytest.mark.parametrize("operator", ["Shape", "Unique", "Same", "With_Values"])
def test_an_operator_is_refused_by_name_even_where_the_reader_has_a_method_of_that_name(
    deployed: DeployedNetwork, operator: str
) -> None:
    model = onnx.load_from_string(deployed.float_onnx)
    model.graph.node[0].op_type = operator
    with pytest.raises(Refused, match=f"no operator {operator}"):
        float_graph.read(dataclasses.replace(deployed, float_onnx=model.SerializeToString()))


class TestContract(BackendContract):
    builds_elf = measures_sizes = False

    @pytest.fixture
    def target(self) -> McuTarget:
        return read_target()

    @pytest.fixture(autouse=True)
    def installed(self, tool: FakeTool, deployed: DeployedNetwork, checkout: Path) -> None:
        self.tool, self.deployed, self.checkout = tool, deployed, checkout

    def make(self) -> Backend:
        return Ai8xBackend(checkout=str(self.checkout), run=self.tool)

    def network(self) -> DeployedNetwork:
        return self.deployed
