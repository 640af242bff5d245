"""The README lists every source file, and no file that is gone."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("automcu_ray", "searchers", "trainables", "backends", "scripts", "benchmarks")


def listed() -> set[str]:
    found, folder = set(), ""
    for line in (ROOT / "README.md").read_text().splitlines():
        if match := re.match(r"\| \*\*`(\w+)/`\*\*", line):
            folder = match[1]
        elif (match := re.match(r"\| `([\w/]+\.py)` \|", line)) and folder:
            found.add(f"{folder}/{match[1]}")
    return found


def test_every_source_file_has_a_line_and_every_line_a_file() -> None:
    files = {
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert listed() == files
