"""ESP32-S3: ESP-IDF builds the firmware (idf.py), with its access point and the answers that go out by UDP.

Its C and its settings were checked against ESP-IDF's own headers and Kconfig; idf.py, a compiler for the chip and a
board were not at hand. The harness without its port was run on a host.
"""

import os
from pathlib import Path

from automcu_ray.core.errors import ToolMissingError
from automcu_ray.problem.artifact import read_options
from backends.arena.build import Built
from backends.arena.rigs import ArenaRig, programs_lacking, sdk_of
from backends.arena.vendor import BOOT_DELAY_US, VENDOR, confined_runner, definitions, lay_out, made

IDF = (
    "ESP-IDF 5.3 or later (https://docs.espressif.com/projects/esp-idf), its export.sh sourced, so that IDF_PATH is set"
)
CHIP = "esp32s3"
COMPONENTS = "esp_driver_tsens esp_driver_usb_serial_jtag esp_event esp_netif esp_timer esp_wifi heap lwip nvs_flash"
# What the artifact's own settings cannot undo: the console is the harness', and it says nothing else.
SETTINGS = (
    "CONFIG_ESP_CONSOLE_NONE=y",
    "CONFIG_ESP_CONSOLE_SECONDARY_NONE=y",  # else a second console shares the port
    "CONFIG_LOG_DEFAULT_LEVEL_NONE=y",
    "CONFIG_BOOTLOADER_LOG_LEVEL_NONE=y",
    "CONFIG_SPIRAM=y",
    "CONFIG_SPIRAM_MODE_OCT=y",
    "CONFIG_ESP_TASK_WDT_EN=n",
)
_VARIABLES = ("IDF_PATH", "IDF_TOOLS_PATH", "IDF_PYTHON_ENV_PATH", "ESP_IDF_VERSION")  # as export.sh sets them
_PROJECT = """cmake_minimum_required(VERSION 3.16)
include($ENV{{IDF_PATH}}/tools/cmake/project.cmake)
project(firmware)
"""
_MAIN = """idf_component_register(SRC_DIRS "." INCLUDE_DIRS "." PRIV_REQUIRES {components})
target_compile_options(${{COMPONENT_LIB}} PRIVATE -Wno-unused-parameter {definitions})
set_source_files_properties(main.c PROPERTIES COMPILE_DEFINITIONS main=app_main)
"""


class Esp32S3Rig(ArenaRig):
    """A project of ESP-IDF; what is flashed is the project, what is compared its ELF."""

    name = "esp32s3"
    delay_ticks = BOOT_DELAY_US
    preamble_lines = 64  # the ROM's boot log

    def lacking(self) -> list[str]:
        absent = programs_lacking("idf.py")
        return absent if sdk_of(self.task.rig.sdk, "IDF_PATH") else [*absent, IDF]

    def build(self, artifact: Path, workdir: Path, input_bytes: int, output_bytes: int) -> Built:
        sdk = sdk_of(self.task.rig.sdk, "IDF_PATH")
        if sdk is None:
            raise ToolMissingError(f"rig {self.name!r} needs {'; '.join(self.lacking())}.")
        workdir.mkdir(parents=True, exist_ok=True)
        lay_out(artifact, workdir / "main", VENDOR / f"{self.name}_port.c")
        asked = self.task.feasibility
        flags = definitions(input_bytes, output_bytes, CLIENTS=asked.clients, SAMPLE_HZ=asked.sample_hz)
        (workdir / "CMakeLists.txt").write_text(_PROJECT.format())
        text = _MAIN.format(components=COMPONENTS, definitions=" ".join(flags))
        (workdir / "main" / "CMakeLists.txt").write_text(text)
        own = [f"{name}={_value(value)}" for name, value in read_options(artifact).sdkconfig.items()]
        (workdir / "sdkconfig.defaults").write_text("\n".join([*own, *SETTINGS, ""]))
        variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ} | {"IDF_PATH": str(sdk)}
        argv = ["env", *(f"{name}={value}" for name, value in variables.items()), "idf.py"]
        argv += ["--project-dir", str(workdir.resolve()), "--define-cache-entry", f"IDF_TARGET={CHIP}", "build"]
        tools = Path(variables.get("IDF_TOOLS_PATH") or Path.home() / ".espressif")
        readable = [path for path in (sdk, tools) if path.is_dir()]
        return made(confined_runner(readable), argv, workdir, workdir / "build" / "firmware.elf", image=workdir)


def _value(value: bool | int | str) -> str:
    if isinstance(value, bool):
        return "y" if value else "n"
    return str(value) if isinstance(value, int) else f'"{value}"'
