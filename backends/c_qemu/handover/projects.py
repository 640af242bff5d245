"""Projects and a README around the C of a bundle, for the board it was made for."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from automcu_ray.problem.target import McuTarget

TEMPLATES = Path(__file__).parent / "templates"
_FILES = {
    "README.md": "README.md.j2",
    "CMakeLists.txt": "CMakeLists.txt.j2",
    "library.properties": "library.properties.j2",
    "library.json": "library.json.j2",
    "platformio.ini": "platformio.ini.j2",
    "examples/host/main.c": "host_main.c.j2",
    "examples/{verb}/{verb}.ino": "classify.ino.j2",
}
_PLATFORMIO = {  # boards of PlatformIO's registry that carry the chip; their own RAM and Flash may be smaller
    "stm32f103": ("ststm32", "bluepill_f103c8"),
    "stm32f401": ("ststm32", "nucleo_f401re"),
    "stm32f405": ("ststm32", "adafruit_feather_f405"),
    "stm32f407": ("ststm32", "disco_f407vg"),
    "stm32f411": ("ststm32", "nucleo_f411re"),
    "stm32f446": ("ststm32", "nucleo_f446re"),
    "stm32h743": ("ststm32", "nucleo_h743zi"),
    "stm32l476": ("ststm32", "nucleo_l476rg"),
    "feather_nrf52840": ("nordicnrf52", "adafruit_feather_nrf52840"),
    "nrf52840": ("nordicnrf52", "nrf52840_dk"),
    "rp2040": ("raspberrypi", "pico"),
}
_OPENOCD = {"nrf51": "nrf51", "nrf52": "nrf52", "rp2040": "rp2040", "rp2350": "rp2350", "stm32l0": "stm32l0"}
# USART1 on PA9 and PA10, as every STM32F4 has it (ST RM0090, and the datasheets' tables of alternate functions).


@dataclass(frozen=True)
class Guide:
    """How a board is reached: everything is a name of ours or of a tool."""

    openocd: str
    platform: str
    platformio_board: str
    wiring: str
    talks: bool

    @classmethod
    def of(cls, target: McuTarget) -> "Guide":
        """Return what is known of a target; "" where nothing is."""
        name = re.sub("[^a-z0-9_]", "_", target.name.lower())[:40]
        openocd = next((to for prefix, to in _OPENOCD.items() if name.startswith(prefix)), "")
        if not openocd and (family := re.match(r"stm32[a-z]+\d", name)):
            openocd = f"{family[0]}x"
        platform, board = _PLATFORMIO.get(name, ("", ""))
        return cls(openocd, platform, board, target.uart.wiring, bool(target.uart.setup))


def write(folder: Path, target: McuTarget, *, inputs: str, names: Sequence[str], about: dict[str, object]) -> None:
    """Write README, examples and project files; `about` are figures, `inputs` is what goes into the network.

    Names of classes or values stand in the README alone, in ASCII and inside a block of code: they cannot end it.
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, autoescape=False,
    )  # fmt: skip
    shown = [ascii(name)[1:-1].replace("`", "'")[:64] for name in names]
    for name, template in _FILES.items():
        path = folder / name.format(**about)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = environment.get_template(template).render(
            target=target, guide=Guide.of(target), inputs=inputs, names=shown, **about
        )
        path.write_text(text, encoding="utf-8")
