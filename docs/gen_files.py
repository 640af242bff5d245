"""MkDocs hook: the table of files and the API pages, made from the sources at every build."""

import ast
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("automcu_ray", "searchers", "trainables", "backends")
FOLDERS = (*PACKAGES, "scripts", "benchmarks")


def modules(folder: str) -> dict[str, list[Path]]:
    """Return the Python files of a top-level folder and of those below it, by folder, `__init__.py` left out."""
    found: dict[str, list[Path]] = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        if path.name != "__init__.py":
            found.setdefault(str(path.parent.relative_to(ROOT)), []).append(path)
    return dict(sorted(found.items()))


def summary(path: Path) -> str:
    """Return the first line of a file's docstring, "" where it has none."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) if path.is_file() else None
    return (docstring or "").partition("\n")[0]


def file_table() -> str:
    """Return the page that lists every module with the first line of its docstring, folder by folder."""
    lines = ["# Files", "", "Every module, with the first line of its docstring; made from the sources."]
    for top in FOLDERS:
        for folder, paths in modules(top).items():
            lines += [
                "",
                f"## `{folder}/`",
                "",
                summary(ROOT / folder / "__init__.py"),
                "",
                "| file | what |",
                "|---|---|",
            ]
            lines += [f"| `{path.name}` | {summary(path).replace('|', '&#124;')} |" for path in paths]
    return "\n".join(lines) + "\n"


def api_pages() -> dict[str, str]:
    """Return a page for each package, by its name in the site: its public modules, for mkdocstrings to fill in."""
    pages = {}
    for top in PACKAGES:
        for folder, paths in modules(top).items():
            if (ROOT / folder / "__init__.py").is_file():
                package = folder.replace("/", ".")
                parts = [f"# {package}", summary(ROOT / folder / "__init__.py")]
                parts += [f"::: {package}.{path.stem}" for path in paths if not path.stem.startswith("_")]
                pages[f"api/{package}.md"] = "\n\n".join(parts) + "\n"
    return pages


def generated() -> dict[str, str]:
    """Return all pages that are made here, by their names in the site."""
    return {"files.md": file_table(), **api_pages()}


def on_config(config: Any) -> None:
    """Give the API pages their place in the navigation."""
    config.nav = [*config.nav, {"API": list(api_pages())}]


def on_files(files: Any, config: Any) -> None:
    """Add the generated pages to the site."""
    from mkdocs.structure.files import File

    for name, content in generated().items():
        files.append(File.generated(config, name, content=content))
