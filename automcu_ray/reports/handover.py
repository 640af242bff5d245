"""What a report says of the bundle: where it is, how it is checked, how its firmware is flashed."""

import shlex
from pathlib import Path
from typing import NamedTuple

_HEADING = "\n## Flash the test firmware\n"  # of the README in a bundle (backends/c_qemu/handover/templates)


class Handover(NamedTuple):
    """The commands that a user goes on with; `flashing` are pieces of prose and, where marked, of commands."""

    bundle: str
    verify: str
    warm_start: str
    flashing: list[tuple[bool, str]]


def handover(run: Path, typed: Path) -> Handover:
    """Return what the bundle in a run's folder offers; `typed` is that folder as the user would type it."""
    bundle = typed / "bundle"
    has_check = (run / "bundle" / "verify.py").is_file()
    return Handover(
        bundle=str(bundle),
        verify=f"automcu verify {shlex.quote(str(bundle))}" if has_check else "",
        warm_start=f"automcu search --target NAME --warm-start {shlex.quote(str(typed))}",
        flashing=flashing(run / "bundle" / "README.md"),
    )


def flashing(readme: Path) -> list[tuple[bool, str]]:
    """Return how the firmware is flashed, as the bundle's README says; [] where none says it."""
    if not readme.is_file():
        return []
    section = readme.read_text(encoding="utf-8").partition(_HEADING)[2].partition("\n## ")[0]
    pieces: list[tuple[bool, list[str]]] = []
    for line in filter(str.strip, section.splitlines()):
        is_command = line.startswith("    ")
        if not pieces or pieces[-1][0] is not is_command:
            pieces.append((is_command, []))
        pieces[-1][1].append(line[4:] if is_command else line.replace("`", ""))
    return [(is_command, "\n".join(lines)) for is_command, lines in pieces]
