"""The default install stays free of GPL code and of vLLM."""

import re
from importlib import metadata

from packaging.requirements import Requirement

PROJECT = "automcu-ray"


def core_packages() -> dict[str, metadata.Distribution]:
    """Return every distribution that `pip install automcu-ray` brings on this machine, extras left out."""
    found: dict[str, metadata.Distribution] = {}
    seen = set()
    todo = [(PROJECT, frozenset[str]())]
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
    packages = core_packages()
    assert {"torch", "ray", "onnx", "emx-onnx-cgen", "openai", "pyserial"} <= packages.keys()
    assert "vllm" not in packages
    gpl = {name: licence(d) for name, d in packages.items() if re.search(r"(?<!L)GPL|General Public", licence(d))}
    assert {name: text for name, text in gpl.items() if "Lesser" not in text} == {}
