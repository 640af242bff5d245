"""MAX78000: Analog Devices' MSDK builds the firmware (make), ai8xize the seed's network for the accelerator.

Built by the MSDK's makefiles as tests/backends/arena/test_sdks.py does; no board was at hand. The seed's C and the
harness were run on a host with a stand-in for the accelerator that computes by ai8xize's own integers.
"""

import re
import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt

from automcu_ray.core.errors import ToolchainError, ToolMissingError
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.artifact import read_options
from backends.ai8x.backend import PROJECT, Ai8xBackend, convert
from backends.arena.build import Built
from backends.arena.rigs import ArenaRig, programs_lacking, sdk_of
from backends.arena.vendor import BOOT_DELAY_US, VENDOR, confined_runner, definitions, lay_out, made
from backends.c_qemu.gnu_tools import GCC

BOARD = "EvKit_V1"
MSDK = "Analog Devices' MSDK (https://github.com/analogdevicesinc/msdk) where MAXIM_PATH or rig.sdk points"
NETWORK_FILES = ("cnn.c", "cnn.h", "weights.h")
OUTPUT_TYPE = np.dtype(np.int32)  # of a wide last layer
_LOAD = re.compile(r"memcpy32\(\(uint32_t \*\) (0x[0-9a-f]{8}), input_(\d+), (\d+)\);")
# Without BUILD_DIR, which the MSDK's files must find set, they would build their drivers' library inside the SDK.
_PROJECT_MK = """# of the arena: names and sizes, nothing of the artifact's
PROJECT := firmware
BUILD_DIR := $(CURDIR)/build
SRCS += {sources}
PROJ_CFLAGS += {definitions}
"""


class Max78000Rig(ArenaRig):
    """A project of the MSDK: its Makefile as ai8x-synthesis has it, the harness, and the artifact's C."""

    name = "max78000"
    delay_ticks = BOOT_DELAY_US

    @property
    def network_tool(self) -> Ai8xBackend:
        """What makes C of a network for the accelerator."""
        return Ai8xBackend(checkout=self.task.rig.checkout, python=self.task.rig.python)

    def lacking(self) -> list[str]:
        absent = programs_lacking("make", GCC, "openocd")
        if sdk_of(self.task.rig.sdk, "MAXIM_PATH") is None:
            absent.append(MSDK)
        if self.network_tool.missing_programs():
            absent.append(
                "a checkout of https://github.com/analogdevicesinc/ai8x-synthesis and a Python with its requirements: "
                "--set rig.checkout=PATH --set rig.python=PATH"
            )
        return absent

    def build(self, artifact: Path, workdir: Path, input_bytes: int, output_bytes: int) -> Built:
        sdk, checkout = sdk_of(self.task.rig.sdk, "MAXIM_PATH"), self.task.rig.checkout
        if sdk is None or checkout is None:
            raise ToolMissingError(f"rig {self.name!r} needs {'; '.join(self.lacking())}.")
        if read_options(artifact).sdkconfig:
            raise ToolchainError("sdkconfig is of ESP-IDF: a MAX78000 has none.")
        lay_out(artifact, workdir, VENDOR / f"{self.name}_port.c")
        (workdir / "Makefile").write_text(_makefile(Path(checkout) / "assets" / "makefile" / "Makefile"))
        sources = " ".join(path.name for path in sorted(workdir.glob("*.c")))
        flags = " ".join(definitions(input_bytes, output_bytes))
        (workdir / "project.mk").write_text(_PROJECT_MK.format(sources=sources, definitions=flags))
        argv = ["make", "--no-builtin-rules", "--no-print-directory", "--jobs=2", "TARGET=MAX78000"]
        argv += [f"BOARD={self.task.rig.board or BOARD}", f"MAXIM_PATH={sdk}"]
        return made(confined_runner([sdk]), argv, workdir, workdir / "build" / "firmware.elf")

    def write_seed(self, deployed: DeployedNetwork, folder: Path, workdir: Path) -> None:
        """Write a network as an artifact for the accelerator into `folder`; ai8xize works in the new `workdir`.

        Raises:
            ToolchainError: the accelerator has no room for it, or does not know an operator.
        """
        workdir.mkdir(parents=True)
        built = self.network_tool.build(deployed, self.task.target, self.task.constraints, workdir)
        if not built.report.feasible:
            raise ToolchainError("; ".join(violation.message for violation in built.report.violations))
        folder.mkdir(parents=True, exist_ok=True)
        for name in NETWORK_FILES:
            shutil.copyfile(workdir / PROJECT / name, folder / name)
        main = (workdir / PROJECT / "main.c").read_text()
        (folder / "net.c").write_text(accelerated(main, deployed.input_shape))

    def output_type(self, deployed: DeployedNetwork) -> np.dtype[np.int32]:
        return OUTPUT_TYPE

    def reference(self, deployed: DeployedNetwork, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
        network, _ = convert(deployed, self.task.target, self.task.constraints)
        return network.run((images.astype(np.int16) - 128).astype(np.int8)).astype(OUTPUT_TYPE)


def accelerated(main: str, shape: tuple[int, int, int]) -> str:
    """Return net() and its set-up for the accelerator, with the addresses that ai8xize's own main.c loads to.

    Raises:
        ToolchainError: that loads its input otherwise than we know: a word a pixel, four channels to a word.
    """
    channels, pixels = shape[0], shape[1] * shape[2]
    loads = {int(number): (address, int(words)) for address, number, words in _LOAD.findall(main)}
    groups = -(-channels // 4)
    if sorted(loads) != list(range(groups)) or {words for _, words in loads.values()} != {pixels}:
        raise ToolchainError(f"ai8xize should load {groups} times {pixels} words, found {loads}.")
    text = (VENDOR / "max78000_app.c").read_text()
    addresses = ", ".join(f"(volatile uint32_t *){loads[number][0]}" for number in range(groups))
    for name, value in {"CHANNELS": channels, "PIXELS": pixels, "ADDRESSES": addresses}.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def _makefile(template: Path) -> str:
    """Return the MSDK's Makefile for projects, from ai8x-synthesis' template with its usual values."""
    values = {"TARGET": "MAX78000", "TARGET_UC": "MAX78000", "TARGET_LC": "max78000", "BOARD": BOARD, "DEPTH": "",
              "VPATHS": "VPATH += .", "IPATHS": "IPATH += .", "AUTOSEARCH": "0", "COMPILER": "GCC",
              "OLEVEL_RELEASE": "2", "OLEVEL_DEBUG": "g", "OLEVEL_DEFAULT": "2", "FLOAT_ABI": "softfp", "SBT": "0",
              "DEFINES": "PROJ_CFLAGS += -DMXC_ASSERT_ENABLE -DARM_MATH_CM4", "DEFAULT_GOAL": "all"}  # fmt: skip
    text = template.read_text()
    for name, value in values.items():
        text = text.replace(f"##__{name}__##", value)
    return text
