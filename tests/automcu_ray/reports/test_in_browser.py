"""A report as a browser lays it out: no error, nothing wider than the screen, every plot drawn, by day and night."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from automcu_ray.records.events import Finished
from automcu_ray.reports.run_report import write_report
from tests.automcu_ray.records.test_events import network_manifest
from tests.automcu_ray.reports.test_memory_figure import ARENA
from tests.automcu_ray.reports.test_run_report import CONFIG, TASK, finish, over, refused, repository, trained

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
FLAGS += "--disable-component-update --disable-sync --hide-scrollbars --enable-logging=stderr"
PROBE = """<script>
const plots = [...document.querySelectorAll("figure svg")].map(svg => svg.getBoundingClientRect());
document.body.dataset.found = JSON.stringify({
  width: innerWidth, needed: document.documentElement.scrollWidth, plots: plots.length,
  empty: plots.filter(box => box.width < 100 || box.height < 50).length,
  page: getComputedStyle(document.body).backgroundColor});
</script>"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    winner, other = trained(1, 0.95, hash="ab"), trained(2, 0.91)
    found = repository(winner, other, refused(3, over("flash", 60000, 49152)))
    finish(found, winner)
    found.append(Finished(manifest=network_manifest(memory_map=ARENA), seconds=9.0))
    write_report(folder / "report.html", CONFIG, TASK, found)
    return folder / "report.html"


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="wants Chromium")
@pytest.mark.parametrize("width", [1280, 500])  # headless Chromium has no narrower window
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_report_is_laid_out(report: Path, width: int, scheme: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(report.read_text().replace("</body>", f"{PROBE}</body>"))
    colours = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
    window = (colours, f"--window-size={width},900", f"--user-data-dir={tmp_path / 'profile'}")
    argv = [str(CHROMIUM), *FLAGS.split(), *window, "--dump-dom", f"file://{tmp_path / 'page.html'}"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr, done.stderr
    seen = re.search(r'data-found="([^"]+)"', done.stdout)
    assert seen is not None, done.stderr[-2000:]
    found = json.loads(seen[1].replace("&quot;", '"'))
    assert found["needed"] <= found["width"] == width
    assert found["plots"] >= 6 and not found["empty"]
    assert found["page"] == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"}[scheme]
