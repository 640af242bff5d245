"""Programs that write a firmware to a real board, as data: one command line each, bounded in time.

None of them has been tried on real hardware here; their options are compared with those that the tools themselves list
(tests/backends/boards/tool_options.yaml says for which that was their own help, and for which their sources alone).
"""

from dataclasses import dataclass
from pathlib import Path

from automcu_ray.core.errors import BoardError, ConfigError, ToolchainError, unknown_name
from backends.boards.pool import BoardEntry
from backends.programs import Runner, run_program

_PROGRAM = "program {elf} verify reset exit"


@dataclass(frozen=True)
class Flasher:
    """A program and its arguments; `{elf}` and the fields of a board's entry in braces are filled in.

    `helps` are the arguments that print the help of what is used.
    """

    program: str
    arguments: tuple[str, ...]
    helps: tuple[str, ...] = ("--help",)


FLASHERS = {
    "pyocd": Flasher(
        "pyocd",
        ("flash", "--uid", "{probe_id}", "--target", "{part}", "--erase", "sector", "{elf}"),
        ("flash", "--help"),
    ),
    "openocd": Flasher(
        "openocd", ("--file", "{config}", "--command", "adapter serial {probe_id}", "--command", _PROGRAM)
    ),
    "max78000": Flasher(
        "openocd",
        (
            *("--file", "interface/cmsis-dap.cfg", "--file", "target/max78000.cfg"),
            *("--command", "adapter serial {probe_id}", "--command", _PROGRAM),
        ),
    ),
    "probe-rs": Flasher(
        "probe-rs",
        ("download", "--non-interactive", "--probe", "{probe_id}", "--chip", "{part}", "--verify", "{elf}"),
        ("download", "--help"),
    ),
    "stm32cubeprogrammer": Flasher(
        "STM32_Programmer_CLI",
        ("--connect", "port=SWD", "sn={probe_id}", "--download", "{elf}", "--verify", "-rst"),
    ),
    "picotool": Flasher(
        "picotool", ("load", "--ser", "{probe_id}", "--verify", "--execute", "{elf}"), ("help", "load")
    ),
    "esptool": Flasher(
        "esptool",
        ("--chip", "{part}", "--port", "{serial}", "write-flash", "0x0", "{elf}"),  # a merged image, not an ELF
        ("write-flash", "--help"),
    ),
    "idf.py": Flasher("idf.py", ("--project-dir", "{elf}", "--port", "{serial}", "flash")),  # a project folder
}


def command(entry: BoardEntry, elf: Path) -> list[str]:
    """Return the command line that writes a firmware to a board.

    Raises:
        ConfigError: no such runner, or a field that it needs is missing in the map.
    """
    if entry.runner not in FLASHERS:
        raise unknown_name("runner", entry.runner, FLASHERS)
    flasher, about = FLASHERS[entry.runner], {**entry.model_dump(), "elf": str(elf.resolve())}
    words = []
    for word in flasher.arguments:
        needed = [name for name in ("probe_id", "part", "config", "serial") if f"{{{name}}}" in word]
        if absent := [name for name in needed if not about[name]]:
            raise ConfigError(
                f"board {entry.id!r}: runner {entry.runner!r} needs {absent[0]!r} in the map, found none."
            )
        words.append(word.format(**about))
    return [flasher.program, *words]


def flash(entry: BoardEntry, elf: Path, workdir: Path, run: Runner = run_program) -> None:
    """Write a firmware to a board.

    Raises:
        BoardError: the program failed, or took longer than `flash_timeout_s`.
        ToolMissingError: it is not installed.
    """
    argv = command(entry, elf)
    try:
        done = run(argv, timeout_s=entry.flash_timeout_s, cwd=workdir)
    except ToolchainError as error:
        raise BoardError(f"board {entry.id!r}: {error}") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1][:200]
        raise BoardError(f"board {entry.id!r}: {argv[0]} failed ({done.returncode}): {said}")
