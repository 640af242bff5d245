"""Names that would be C, YAML, JSON, linker script, make, HTML or a template, were they written: every generator."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from automcu_ray.core.confinement import obstacle
from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import DeployedNetwork, deploy
from backends.ai8x import files
from backends.ai8x.backend import convert
from backends.c_qemu.cgen import generate
from backends.int8_graph import read_int8_graph
from backends.programs import run_confined
from backends.qdq import importable
from tests.backends.ai8x.networks import images, make_task, read_target

SHAPE = (3, 16, 16)
NAMES = (
    '*/\n#include "/etc/EVIL"\n/*',
    "*/\n#ifndef EVIL\nint evil(void) { return 1; }\n#endif\n/*",
    "*/ int EVIL[1 << 30]; /*",
    "??/\n#define net EVIL",
    "\\\n#pragma GCC EVIL",
    '*/ __asm__(".incbin \\"/etc/EVIL\\""); /*',
    "\n- !!python/object/apply:os.system ['EVIL']",
    "name: EVIL\n  op: conv2d",
    "@RAM_BYTES@ EVIL",
    "INCLUDE /etc/EVIL",
    "$(shell touch EVIL)",
    "`touch EVIL`; touch EVIL",
    "{{ EVIL }}{% include '/etc/EVIL' %}",
    "</style><script>EVIL</script>",
    '"EVIL": "x',
    "%n%s EVIL",
    "../../../../EVIL",
    "EVIL" * 2000,
    "\u202e\u2066 EVIL \x1b]0;EVIL\x07",
    "net EVIL\rnode0",
)


class Chain(nn.Module):
    """A convolution under each of the names."""

    def __init__(self) -> None:
        super().__init__()
        self.names = [name.replace(".", "\uff0e") for name in NAMES]  # torch takes all but a dot
        for at, name in enumerate(self.names):
            self.add_module(name, nn.Conv2d(3 if at == 0 else 4, 4, 3, padding=1))
        self.head = nn.Linear(1024, 3)

    def forward(self, values: Tensor) -> Tensor:
        for name in self.names:
            values = torch.relu(self._modules[name](values))  # type: ignore[misc]
        return self.head(values.flatten(1))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def deployed() -> DeployedNetwork:
    torch.manual_seed(0)
    return deploy(Chain().eval(), SHAPE, precision="int8", calibration=images(SHAPE))


def c_files(deployed: DeployedNetwork, folder: Path) -> None:
    code = generate(deployed)
    (folder / "net.c").write_text(code.source)
    (folder / "net.h").write_text(code.header)


def int8_graph(deployed: DeployedNetwork, folder: Path) -> None:
    read_int8_graph(deployed).write(folder)


def qdq(deployed: DeployedNetwork, folder: Path) -> None:
    (folder / "network.onnx").write_bytes(importable(deployed))


def ai8x(deployed: DeployedNetwork, folder: Path) -> None:
    task = make_task()
    network, placement = convert(deployed, read_target("max78000"), task.constraints)
    files.write(folder, network, placement, np.zeros(SHAPE, np.int8))


def shipped(deployed: DeployedNetwork, folder: Path) -> None:
    (folder / "float.onnx").write_bytes(deployed.float_onnx)
    (folder / "int8.onnx").write_bytes(deployed.onnx)


@pytest.mark.parametrize("write", [c_files, int8_graph, qdq, ai8x, shipped], ids=lambda write: write.__name__)
def test_no_name_from_outside_is_written(
    write: Callable[[DeployedNetwork, Path], None], deployed: DeployedNetwork, tmp_path: Path
) -> None:
    write(deployed, tmp_path)
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert written and not any(b"evil" in text.lower() for text in written)


def test_the_layers_stay_known_in_plain_letters(deployed: DeployedNetwork) -> None:
    labels = set(deployed.labels.values())
    assert len(labels) > 3 and "head" in labels and all(len(text) <= 60 and text.isprintable() for text in labels)


@pytest.mark.parametrize(
    "line",
    ['#include "/etc/passwd"', '#include "../secret.h"', '__asm__(".incbin \\"/etc/passwd\\"");'],
)
def test_the_compiler_sees_its_folder_and_its_toolchain_alone(line: str, gcc: None, tmp_path: Path) -> None:
    if reason := obstacle():
        pytest.skip(reason)
    (tmp_path / "secret.h").write_text("int secret;\n")
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "net.c").write_text(f"#include <string.h>\n{line}\nint one;\n")
    done = run_confined(["arm-none-eabi-gcc", "-c", "net.c", "-o", "net.o"], timeout_s=60, cwd=folder)
    assert done.returncode != 0 and "No such file" in done.stderr.replace("file not found", "No such file")
    (folder / "net.c").write_text("#include <string.h>\nint one;\n")
    done = run_confined(["arm-none-eabi-gcc", "-c", "net.c", "-o", "net.o"], timeout_s=60, cwd=folder)
    assert (done.returncode, (folder / "net.o").is_file()) == (0, True)


def test_a_confined_program_has_no_network_no_neighbours_and_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := obstacle():
        pytest.skip(reason)
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    script = f"cat /proc/net/route /etc/passwd; echo $OPENAI_API_KEY $$; touch {tmp_path.parent}/mark; ls /tmp"
    done = run_confined(["sh", "-c", script], timeout_s=30, cwd=tmp_path)
    assert done.stdout.split() == ["1", *tmp_path.parts[2:3]], "its own process, and the way to its folder"


def test_a_confined_program_that_does_not_end_is_killed(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"sleep should end within 0\.3 s"):
        run_confined(["sleep", "60"], timeout_s=0.3, cwd=tmp_path)
