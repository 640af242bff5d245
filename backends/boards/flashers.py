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
_MASS_ERASE = "init; reset halt; max32xxx mass_erase 0; exit"  # of Analog Devices' own OpenOCD


@dataclass(frozen=True)
class Flasher:
    """A program and its arguments; `{elf}` and the fields of a board's entry in braces are filled in.

    `helps` are the arguments that print the help of what is used. `recovers` are those that unlock or erase a chip that
    could not be written to; it is tried once more after that. `by_port`: it writes by the board's serial port, which
    is then opened after it, and the chip reset.
    """

    program: str
    arguments: tuple[str, ...]
    helps: tuple[str, ...] = ("--help",)
    recovers: tuple[str, ...] = ()
    by_port: bool = False


FLASHERS = {
    "pyocd": Flasher(
        "pyocd",
        ("flash", "--uid", "{probe_id}", "--target", "{part}", "--erase", "sector", "{elf}"),
        ("flash", "--help"),
        ("erase", "--uid", "{probe_id}", "--target", "{part}", "--chip"),
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
        recovers=(
            *("--file", "interface/cmsis-dap.cfg", "--file", "target/max78000.cfg"),
            *("--command", "adapter serial {probe_id}", "--command", _MASS_ERASE),
        ),
    ),
    "probe-rs": Flasher(
        "probe-rs",
        ("download", "--non-interactive", "--probe", "{probe_id}", "--chip", "{part}", "--verify", "{elf}"),
        ("download", "--help"),
        ("erase", "--non-interactive", "--probe", "{probe_id}", "--chip", "{part}", "--allow-erase-all"),
    ),
    "stm32cubeprogrammer": Flasher(
        "STM32_Programmer_CLI",
        ("--connect", "port=SWD", "sn={probe_id}", "--download", "{elf}", "--verify", "-rst"),
        recovers=("--connect", "port=SWD", "sn={probe_id}", "--erase", "all"),
    ),
    "picotool": Flasher(
        "picotool", ("load", "--ser", "{probe_id}", "--verify", "--execute", "{elf}"), ("help", "load")
    ),
    "esptool": Flasher(
        "esptool",
        ("--chip", "{part}", "--port", "{serial}", "write-flash", "0x0", "{elf}"),  # a merged image, not an ELF
        ("write-flash", "--help"),
        ("--chip", "{part}", "--port", "{serial}", "erase-flash"),
        by_port=True,
    ),
    "idf.py": Flasher(  # a project folder
        "idf.py",
        ("--project-dir", "{elf}", "--port", "{serial}", "flash"),
        recovers=("--project-dir", "{elf}", "--port", "{serial}", "erase-flash"),
        by_port=True,
    ),
}


def command(entry: BoardEntry, elf: Path) -> list[str]:
    """Return the command line that writes a firmware to a board.

    Raises:
        ConfigError: no such runner, or a field that it needs is missing in the map.
    """
    return _filled(entry, elf, flasher_of(entry).arguments)


def flasher_of(entry: BoardEntry) -> Flasher:
    """Return what writes to a board of the map.

    Raises:
        ConfigError: no such runner.
    """
    if entry.runner not in FLASHERS:
        raise unknown_name("runner", entry.runner, FLASHERS)
    return FLASHERS[entry.runner]


def _filled(entry: BoardEntry, elf: Path, arguments: tuple[str, ...]) -> list[str]:
    about, words = {**entry.model_dump(), "elf": str(elf.resolve())}, []
    for word in arguments:
        needed = [name for name in ("probe_id", "part", "config", "serial") if f"{{{name}}}" in word]
        if absent := [name for name in needed if not about[name]]:
            raise ConfigError(
                f"board {entry.id!r}: runner {entry.runner!r} needs {absent[0]!r} in the map, found none."
            )
        words.append(word.format(**about))
    return [FLASHERS[entry.runner].program, *words]


def flash(entry: BoardEntry, elf: Path, workdir: Path, run: Runner = run_program) -> None:
    """Write a firmware to a board; where that fails, unlock or erase the chip, and write once more.

    Raises:
        BoardError: the program failed, or took longer than `flash_timeout_s`.
        ToolMissingError: it is not installed.
    """
    argv, recovers = command(entry, elf), flasher_of(entry).recovers
    said = _run(entry, argv, workdir, run)
    if said and recovers:
        _run(entry, _filled(entry, elf, recovers), workdir, run)
        said = _run(entry, argv, workdir, run)
    if said:
        raise BoardError(f"board {entry.id!r}: {said}")


def _run(entry: BoardEntry, argv: list[str], workdir: Path, run: Runner) -> str:
    """Return what went wrong; "" for nothing."""
    try:
        done = run(argv, timeout_s=entry.flash_timeout_s, cwd=workdir)
    except ToolchainError as error:
        return str(error)
    if not done.returncode:
        return ""
    said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1][:200]
    return f"{argv[0]} failed ({done.returncode}): {said}"
