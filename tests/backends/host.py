"""The generated C, compiled for this computer: what a board computes, a thousand times faster."""

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.target import Core
from backends.c_qemu.cgen import generate
from backends.c_qemu.form import USUAL, Form

FLAGS = ("-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


SANITISED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_MAIN = """#include <stdio.h>
void net(const void *, void *);
static char in[%d], out[%d];
int main(void) {
    while (fread(in, 1, sizeof in, stdin) == sizeof in) net(in, out), fwrite(out, 1, sizeof out, stdout);
}
"""


def run_sanitised(source: str, made: DeployedNetwork, batch: npt.NDArray[np.uint8], folder: Path, *options: str) -> Any:
    """Return the outputs (N, num_classes), int8, of C whose every access and sum is checked."""
    inputs = made.encode(batch)
    (folder / "net.c").write_text(source)
    (folder / "main.c").write_text(_MAIN % (inputs[0].nbytes, made.num_classes))
    argv = ["gcc", *SANITISED, "-w", *options, "net.c", "main.c", "-o", "net", "-lm"]
    subprocess.run(argv, cwd=folder, check=True)
    done = subprocess.run([folder / "net"], input=inputs.tobytes(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[:2000]
    return np.frombuffer(done.stdout, np.int8).reshape(len(batch), -1)


def run_on_host(
    made: DeployedNetwork,
    batch: npt.NDArray[np.uint8],
    folder: Path,
    core: Core | None = None,
    *options: str,
    form: Form = USUAL,
) -> npt.NDArray[Any]:
    """Return the outputs (N, num_classes), int8 or float32, of the C for images (N, C, H, W).

    `core` chooses the kernels, which this computer runs with plain C in place of its special instructions.
    """
    (folder / "net.c").write_text(generate(made, core, form=form).source)
    subprocess.run(["gcc", *FLAGS, *options, "net.c", "-o", "net.so", "-lm"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "net.so"))
    inputs, outputs = made.encode(batch), np.zeros((len(batch), made.num_classes), made.output_dtype)
    for image, output in zip(inputs, outputs, strict=True):
        image = np.ascontiguousarray(image)
        library.net(ctypes.c_void_p(image.ctypes.data), ctypes.c_void_p(output.ctypes.data))
    return outputs
