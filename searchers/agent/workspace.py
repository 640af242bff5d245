"""What an agent works in: a folder of plain files, tools with bounds, and a list of what was refused."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from automcu_ray.problem.artifact import MOST_BYTES, refusal

ARTIFACT, SCRATCH, DATA, ATTEMPTS, NOTES = "artifact", "scratch", "data", "attempts", "notes.md"
READ_CHARS, RUN_CHARS, NOTES_CHARS = 12_000, 6_000, 4_000
LIST_FILES = 200
_SCRATCH_FILES = 64

Shell = Callable[[str, Path], str]  # runs a command in a folder, jailed; returns what it said


class ToolError(Exception):
    """The tool did not do it; the message is for the agent."""


class Workspace:
    """The files of one run; `root` holds `artifact/`, `scratch/`, `data/`, `attempts/` and `notes.md`.

    An agent writes in `artifact/` what an artifact may hold, in `scratch/` anything, and its notes. All else is read
    only. No link exists in it: what a command leaves is taken over file by file, as if it had been written.
    """

    def __init__(self, root: Path, shell: Shell, kind: str = "code") -> None:
        self.root, self.shell, self.kind = root, shell, kind
        self.refused: list[str] = []
        for name in (ARTIFACT, SCRATCH, DATA, ATTEMPTS):
            (root / name).mkdir(parents=True, exist_ok=True)

    @property
    def artifact(self) -> Path:
        """The folder that is submitted."""
        return self.root / ARTIFACT

    @property
    def notes(self) -> str:
        """What the agent wrote down for its later attempts."""
        path = self.root / NOTES
        return path.read_text(errors="replace")[:NOTES_CHARS] if path.exists() else ""

    def read(self, name: str, offset: int = 0) -> str:
        """Return text of a file from a character on."""
        path = self._path(name)
        if not path.is_file():
            raise ToolError(f"no file {name[:80]!r}; list shows what there is")
        text = path.read_text(errors="replace")
        part = text[max(0, offset) :][:READ_CHARS]
        rest = len(text) - max(0, offset) - len(part)
        return part + (f"\n[{rest} more characters: read again with offset {offset + len(part)}]" if rest > 0 else "")

    def write(self, name: str, content: str) -> str:
        """Write a whole file."""
        self._put(name, content.encode("utf-8", "replace"))
        return f"wrote {len(content)} characters to {name}"

    def files(self, name: str = "") -> str:
        """Return the files below a folder, with their sizes."""
        folder = self._path(name or ".")
        if not folder.is_dir():
            raise ToolError(f"no folder {name[:80]!r}")
        found = sorted(path for path in folder.rglob("*") if path.is_file())
        lines = [f"{path.relative_to(self.root)} {path.stat().st_size}" for path in found[:LIST_FILES]]
        more = [f"[{len(found) - LIST_FILES} more]"] if len(found) > LIST_FILES else []
        return "\n".join([*lines, *more]) or "nothing"

    def run(self, command: str) -> str:
        """Run a command on a copy of the workspace; what it changed is taken over where it could have been written."""
        with tempfile.TemporaryDirectory(prefix="automcu-run-") as there:
            copy = Path(there, "work")
            shutil.copytree(self.root, copy)
            said = self.shell(command, copy)
            lost = self._take_over(copy)
        if len(said) > RUN_CHARS:
            half = RUN_CHARS // 2
            said = f"{said[:half]}\n[... {len(said) - RUN_CHARS} characters left out ...]\n{said[-half:]}"
        return "\n".join([said.rstrip(), *(f"not kept: {reason}" for reason in lost)])

    def _take_over(self, copy: Path) -> list[str]:
        """Write what a command left, with the rules of `write`; return what was refused."""
        lost, left = [], [path for path in sorted(copy.rglob("*")) if path.is_symlink() or path.is_file()]
        kept = {path.relative_to(copy) for path in left if not path.is_symlink()}
        for old in [path for top in (ARTIFACT, SCRATCH) for path in (self.root / top).rglob("*") if path.is_file()]:
            if old.relative_to(self.root) not in kept:
                old.unlink()
        for path in left:
            name = path.relative_to(copy)
            mine = self.root / name
            if name == Path("commands.log"):
                continue
            try:
                if path.is_symlink():
                    raise ToolError(self._refuse(f"{str(name)[:80]!r} is a link"))
                if path.stat().st_size > MOST_BYTES:
                    raise ToolError(self._refuse(f"{str(name)[:80]!r} is larger than {MOST_BYTES} bytes"))
                content = path.read_bytes()
                if not mine.is_file() or mine.read_bytes() != content:
                    self._put(str(name), content)
            except ToolError as error:
                lost.append(str(error))
        return lost[:10]

    def _put(self, name: str, content: bytes) -> None:
        path = self._path(name)
        parts = path.relative_to(self.root).parts
        if parts[:1] == (ARTIFACT,):
            reason = refusal("/".join(parts[1:]), self.kind)
        elif parts[:1] == (SCRATCH,) and len(parts) == 2:
            full = len(list((self.root / SCRATCH).iterdir())) >= _SCRATCH_FILES and not path.exists()
            reason = f"scratch/ has {_SCRATCH_FILES} files already" if full else ""
        else:
            reason = (
                "" if parts == (NOTES,) else f"{name[:80]!r} is not yours to write: artifact/, scratch/, {NOTES} are"
            )
        if not reason and len(content) > MOST_BYTES:
            reason = f"a file has at most {MOST_BYTES} bytes, found {len(content)}"
        if reason:
            raise ToolError(self._refuse(reason))
        path.write_bytes(content)

    def _path(self, name: str) -> Path:
        """Return a path inside; a path that leads out is refused."""
        wanted = PurePosixPath(name)
        if wanted.is_absolute() or ".." in wanted.parts or "\0" in name or len(name) > 200:
            raise ToolError(self._refuse(f"{name[:80]!r} leads out of the workspace: paths are relative, without .."))
        return self.root.joinpath(*wanted.parts)

    def _refuse(self, reason: str) -> str:
        self.refused.append(reason)
        return reason
