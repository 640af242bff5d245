"""What an agent may submit: C files in one folder, a few numbers in `artifact.yaml`; or a network and its training."""

import re
import shutil
import stat
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, StringConstraints, ValidationError, model_validator

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.models import FrozenModel, rule
from automcu_ray.core.training_recipe import Protocol
from automcu_ray.core.yaml_text import parse_yaml
from automcu_ray.networks.spec import ArchitectureSpec

OPTIONS = "artifact.yaml"
MOST_FILES, MOST_BYTES = 64, 4 * 2**20  # of all files together
MOST_EPOCHS, YAML_CHARS = 300, 20_000
Setting = Annotated[str, StringConstraints(pattern=r"^CONFIG_[A-Z0-9_]{1,80}$")]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{0,80}$")]
Model = TypeVar("Model", bound=BaseModel)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,60}\.(c|h)")
NETWORK = "network.yaml"
_OURS = re.compile(  # harness, port, build files
    r"(main|guard|clock|vendor|port|startup|uart_\w+)\.[ch]|(arena|harness|app)\.h|.*\.(ld|mk)|artifact\.o"
)


class Options(FrozenModel):
    """What an artifact says of itself: the stack that net() gets, in bytes of its own RAM.

    `sdkconfig` are settings of ESP-IDF (CONFIG_...), on an ESP32-S3 alone.
    """

    stack_bytes: int = Field(default=1024, ge=64, le=65536)
    sdkconfig: dict[Setting, bool | int | Word] = Field(default_factory=dict, max_length=100)


class NetworkArtifact(FrozenModel):
    """A network and how it is trained: the harness trains it, once, and knows what it costs."""

    network: ArchitectureSpec
    training: Protocol

    @model_validator(mode="after")
    def _bounded(self) -> "NetworkArtifact":
        if self.training.epochs > MOST_EPOCHS:
            raise ValueError(f"a training has at most {MOST_EPOCHS} epochs")
        return self


def refusal(name: str, artifact: str = "code") -> str:
    """Return why a file of this name may not be in an artifact; "" where it may."""
    if artifact == "network":
        return "" if name == NETWORK else f"this artifact is one file, {NETWORK}, found {name[:80]!r}"
    if _OURS.fullmatch(name):
        return (
            f"{name[:80]!r} belongs to the harness (main, guard, linker script, serial protocol), which is not edited"
        )
    if name != OPTIONS and not _NAME.fullmatch(name):
        return f"an artifact holds *.c, *.h and {OPTIONS} in one folder, found {name[:80]!r}"
    return ""


def check_files(folder: Path, artifact: str = "code") -> list[Path]:
    """Return the files of an artifact, by name.

    Raises:
        ToolchainError: a name that may not be there, a link, a folder, or too much.
    """
    found = sorted(folder.iterdir())
    for path in found:
        if reason := refusal(path.name, artifact):
            raise ToolchainError(f"{reason}.")
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ToolchainError(f"an artifact holds plain files, found {path.name!r}, which is none.")
    size = sum(path.stat().st_size for path in found)
    if len(found) > MOST_FILES or size > MOST_BYTES:
        raise ToolchainError(
            f"an artifact has at most {MOST_FILES} files of {MOST_BYTES} bytes together, found {size}."
        )
    if artifact == "network":
        if not found:
            raise ToolchainError(f"an artifact needs {NETWORK}, found no file.")
        return found
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
    return _read(path, Options) if path.exists() else Options()


def read_network(folder: Path) -> NetworkArtifact:
    """Return the network that an artifact is.

    Raises:
        ToolchainError: it cannot be read.
    """
    return _read(folder / NETWORK, NetworkArtifact)


def _read(path: Path, model: type[Model]) -> Model:
    try:
        return model.model_validate(parse_yaml(path.read_text(errors="replace")[:YAML_CHARS]) or {})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ToolchainError(f"{path.name}: {'.'.join(map(str, first['loc']))}: {rule(first)}.") from error
    except (OSError, ValueError) as error:
        raise ToolchainError(f"{path.name} is not YAML: {error}.") from error
