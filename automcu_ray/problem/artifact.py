"""What an agent may submit: C files in one folder, and a few numbers in `artifact.yaml`."""

import re
import shutil
import stat
from pathlib import Path

from pydantic import Field, ValidationError

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.models import FrozenModel, rule
from automcu_ray.core.yaml_text import parse_yaml

OPTIONS = "artifact.yaml"
MOST_FILES, MOST_BYTES = 64, 4 * 2**20  # of all files together
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,60}\.(c|h)")
_OURS = re.compile(r"(main|guard|startup|uart_\w+)\.[ch]|arena\.h|harness\.h|.*\.ld|artifact\.o")


class Options(FrozenModel):
    """What an artifact says of itself: the stack that net() gets, in bytes of its own RAM."""

    stack_bytes: int = Field(default=1024, ge=64, le=65536)


def refusal(name: str) -> str:
    """Return why a file of this name may not be in an artifact; "" where it may."""
    if _OURS.fullmatch(name):
        return (
            f"{name[:80]!r} belongs to the harness (main, guard, linker script, serial protocol), which is not edited"
        )
    if name != OPTIONS and not _NAME.fullmatch(name):
        return f"an artifact holds *.c, *.h and {OPTIONS} in one folder, found {name[:80]!r}"
    return ""


def check_files(folder: Path) -> list[Path]:
    """Return the files of an artifact, by name.

    Raises:
        ToolchainError: a name that may not be there, a link, a folder, or too much.
    """
    found = sorted(folder.iterdir())
    for path in found:
        if reason := refusal(path.name):
            raise ToolchainError(f"{reason}.")
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ToolchainError(f"an artifact holds plain files, found {path.name!r}, which is none.")
    size = sum(path.stat().st_size for path in found)
    if len(found) > MOST_FILES or size > MOST_BYTES:
        raise ToolchainError(
            f"an artifact has at most {MOST_FILES} files of {MOST_BYTES} bytes together, found {size}."
        )
    if not any(path.suffix == ".c" for path in found):
        raise ToolchainError("an artifact needs a C file that defines net(), found none.")
    return found


def copy_files(source: Path, to: Path) -> None:
    """Copy an artifact, checked, into a new folder."""
    found = check_files(source)
    to.mkdir(parents=True)
    for path in found:
        shutil.copyfile(path, to / path.name, follow_symlinks=False)


def read_options(folder: Path) -> Options:
    """Return what an artifact's `artifact.yaml` says, the defaults where there is none.

    Raises:
        ToolchainError: it cannot be read.
    """
    path = folder / OPTIONS
    if not path.exists():
        return Options()
    try:
        return Options.model_validate(parse_yaml(path.read_text(errors="replace")[:2000]) or {})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ToolchainError(f"{OPTIONS}: {'.'.join(map(str, first['loc']))}: {rule(first)}.") from error
    except ValueError as error:
        raise ToolchainError(f"{OPTIONS} is not YAML: {error}.") from error
