"""Pages as a browser lays them out: no error, nothing asked beyond this machine, every plot drawn, by day and night.

With AUTOMCU_SCREENSHOTS=FOLDER pictures of them are kept, to be looked at; with AUTOMCU_PAGES=FILE,FILE other pages are
opened in place of those made here.
"""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automcu_ray.records.events import Finished
from automcu_ray.records.metrics import Metrics
from automcu_ray.reports.run_report import write_report
from automcu_ray.reports.server import ReportServer
from automcu_ray.studies.sweep import load_sweep
from automcu_ray.studies.sweep_report import write_page
from automcu_ray.studies.sweep_statistics import RunResult
from tests.automcu_ray.records.test_events import network_manifest
from tests.automcu_ray.reports.test_memory_figure import ARENA
from tests.automcu_ray.reports.test_run_report import CONFIG, TASK, finish, over, refused, repository, trained

playwright = pytest.importorskip("playwright.sync_api", reason="wants Playwright: pip install 'automcu-ray[browser]'")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="wants Chromium")]
LOOK = """() => {
  const plots = [...document.querySelectorAll("figure svg")].map(svg => svg.getBoundingClientRect());
  return {needed: document.documentElement.scrollWidth, plots: plots.length,
          empty: plots.filter(box => box.width < 100 || box.height < 50).length,
          page: getComputedStyle(document.body).backgroundColor};
}"""
GROUND = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"}


def report(folder: Path) -> Path:
    winner, other = trained(1, 0.95, hash="ab"), trained(2, 0.91)
    found = repository(winner, other, refused(3, over("flash", 60000, 49152)))
    finish(found, winner)
    found.append(Finished(manifest=network_manifest(memory_map=ARENA), seconds=9.0))
    write_report(folder / "report.html", CONFIG, TASK, found)
    return folder / "report.html"


def sweep(folder: Path) -> Path:
    asked = load_sweep("mcu_digits")
    found = []
    for case in asked.cases:
        for at, arm in enumerate(asked.arms):
            for seed in range(asked.seeds):
                rising = tuple(0.5 + 0.04 * step + 0.01 * at + 0.003 * seed for step in range(5))
                spent: dict[str, Any] = {"anytime_seconds": (1.0, 2.0, 4.0, 6.0, 9.0), "train_seconds": 9.0}
                metrics = Metrics(
                    proposals=5, trained=5, distinct=5, anytime=rising, hypervolume=0.1 + 0.01 * at, **spent
                )
                about: dict[str, Any] = {"name": f"{at}-{seed}", "seconds": 9.0, "versions": {}}
                found.append(RunResult(arm=arm.label, case=case.label, seed=seed, metrics=metrics, **about))
    write_page(folder / "sweep.html", asked, found)
    return folder / "sweep.html"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[str, int]]]:
    """Addresses of pages, by name, with the fewest plots on each."""
    if own := os.environ.get("AUTOMCU_PAGES"):
        files = [Path(name).resolve() for name in own.split(",")]
        found = {path.parent.name: (path.as_uri(), 1) for path in files}
    else:
        folder = tmp_path_factory.mktemp("run")
        files = [report(folder), sweep(folder)]
        found = {"report": (files[0].as_uri(), 6), "sweep": (files[1].as_uri(), 2)}
    with ReportServer(files[0], 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {**found, "watch": (server.url, found[next(iter(found))][1])}
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_laid_out(browser: Any, pages: dict[str, tuple[str, int]], width: int, scheme: str) -> None:
    for name, (address, plots) in pages.items():
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        complaints: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message, to=complaints: to.append(message.text))
        page.on("pageerror", lambda error, to=complaints: to.append(str(error)))
        page.on("request", lambda request, to=asked: to.append(request.url))
        page.goto(address, wait_until="load")
        shown = page.main_frame
        if name == "watch":  # the report is in a frame of it
            shown = page.wait_for_selector("iframe").content_frame()
            shown.wait_for_selector("figure svg")
        found = shown.evaluate(LOOK)
        if keep := os.environ.get("AUTOMCU_SCREENSHOTS"):
            page.screenshot(path=Path(keep) / f"{name}-{width}-{scheme}.png", full_page=True)
        page.close()
        assert complaints == [], name
        assert all(url.startswith(("file:", "data:", "http://127.0.0.1:")) for url in asked), (name, asked)
        assert found["needed"] <= width and found["plots"] >= plots and not found["empty"], (name, found)
        assert found["page"] == GROUND[scheme], name
