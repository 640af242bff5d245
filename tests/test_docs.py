"""README is short, every page has its place, links lead somewhere, and every module says what it is."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
_SPEC = importlib.util.spec_from_file_location("gen_files", ROOT / "docs" / "gen_files.py")
assert _SPEC is not None and _SPEC.loader is not None
gen_files = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(gen_files)

PAGES = {path.name: path.read_text() for path in (ROOT / "docs").glob("*.md")}
SITE = PAGES | gen_files.generated()
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
SOURCE = re.compile(r"`((?:automcu_ray|searchers|trainables|backends|scripts|configs|docs|tests)/[\w./-]*)`")


def with_snippets(text: str) -> str:
    """Return a page with the files that it includes."""
    return re.sub(r'--8<-- "(.+)"', lambda found: (ROOT / found[1]).read_text(), text)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as Python-Markdown makes them."""
    headings = re.findall(r"^#+ (.+)$", with_snippets(text), flags=re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def broken(text: str, pages: dict[str, str], prefix: str = "") -> Iterator[str]:
    """Return the relative links of a text that lead nowhere; `pages` are the Markdown files below `prefix`."""
    for link in LINK.findall(text):
        name, _, anchor = link.partition("#")
        if link.startswith(("http://", "https://")) or (not anchor and prefix and (ROOT / name).exists()):
            continue
        if (ROOT / "docs" / name).is_file() and not name.endswith(".md"):
            continue
        page = pages.get(name.removeprefix(prefix)) if name else text
        if page is None or (anchor and anchor not in anchors(page)):
            yield link


def test_readme_is_one_screen_or_two() -> None:
    assert (ROOT / "README.md").stat().st_size <= 6 * 1024


def test_every_page_is_in_the_navigation() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = [page for section in nav for pages in section.values() for page in pages]
    assert sorted(listed) == sorted({*PAGES, "files.md"})


@pytest.mark.parametrize("name", sorted(PAGES))
def test_links_between_pages_lead_somewhere(name: str) -> None:
    assert list(broken(PAGES[name], SITE)) == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "BENCHMARKS.md", "CHANGELOG.md"])
def test_links_of_the_repository_lead_somewhere(name: str) -> None:
    assert list(broken((ROOT / name).read_text(), PAGES, prefix="docs/")) == []


def test_a_link_that_leads_nowhere_is_seen() -> None:
    pages = {"b.md": "# One\n"}
    assert list(broken("# Here\n[a](b.md#one) [b](b.md#two) [c](c.md) [d](#here)", pages)) == ["b.md#two", "c.md"]


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/architecture.md"])
def test_sources_that_are_named_are_there(name: str) -> None:
    named = SOURCE.findall((ROOT / name).read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_module_and_package_says_what_it_is() -> None:
    """The site's table of files and the headings of its API pages come from these lines."""
    files = [path for top in gen_files.FOLDERS for paths in gen_files.modules(top).values() for path in paths]
    packages = [path for top in gen_files.PACKAGES for path in (ROOT / top).rglob("__init__.py")]
    assert [str(path.relative_to(ROOT)) for path in (*files, *packages) if not gen_files.summary(path)] == []
