"""The searcher and the test that docs/extending.md shows work as they stand there, in a package of their own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "extending.md").read_text()


@pytest.mark.thorough
def test_the_searcher_of_the_page_keeps_the_contract_outside_this_project(tmp_path: Path) -> None:
    test, searcher = sorted(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL), key=len)
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "climb.py").write_text(searcher)
    (tmp_path / "test_climb.py").write_text(test)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_climb.py"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert re.search(r"^\d\d passed", done.stdout, flags=re.MULTILINE), done.stdout + done.stderr
