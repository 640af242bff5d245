"""Imports point one way: which folder may import which, checked on the source itself."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAY_IMPORT = {
    "automcu_ray": set(),
    "searchers": {"automcu_ray"},
    "backends": {"automcu_ray"},
    "trainables": {"automcu_ray", "backends"},
}
WIRES_EVERYTHING = (
    "automcu_ray/assembly.py",
    "automcu_ray/plan.py",
    "automcu_ray/supervisor.py",
    "automcu_ray/trials.py",
)


def imported(path: Path) -> set[str]:
    """Return the top-level folders of ours that a file imports, in functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").split(".")[0])
    return found & MAY_IMPORT.keys()


def test_no_arrow_points_back() -> None:
    wrong = []
    for folder, allowed in MAY_IMPORT.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if name not in WIRES_EVERYTHING:
                wrong += [f"{name} imports {other}" for other in imported(path) - allowed - {folder}]
    assert wrong == []


def test_the_check_sees_an_arrow_that_points_back(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("def f():\n    from searchers.base import BaseSearcher\n")
    assert imported(path) == {"searchers"}
