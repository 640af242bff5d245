"""A whole run whose candidates are PyTorch code: written by an endpoint, jailed, trained, compiled, run."""

import json
from pathlib import Path

from tests.automcu_ray.run.conftest import Search
from tests.scripts.test_search import QUICK, TOOLS, journal, records
from tests.searchers.engines.endpoint import endpoint, says
from tests.trainables.jail.jailed import needs_sandbox

CODE = (
    "searcher.form=code",
    "searcher.fill=null",
    "searcher.improver=false",
    "searcher.parallel=1",
    "budget.trained=2",
)


def net(body: str, classes: int = 10, width: int = 8) -> str:
    """A reply as models write them: prose, a fenced block, more prose."""
    code = f"""import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, {width}, 3, padding=1, bias=False), nn.BatchNorm2d({width}), nn.ReLU())
        self.body = nn.Conv2d({width}, {width}, 3, padding=1)
        self.head = nn.Linear({width}, {classes})

    def forward(self, x):
        x = self.stem(x)
        {body}
        return self.head(x.mean((2, 3)))
"""
    return f"Here is a network:\n\n```python\n{code}```\n\nIt should do well."


RESIDUAL = net("x = torch.relu(x + self.body(x))")
HOSTILE = net("__import__('os').system('touch canary')")


@needs_sandbox
@TOOLS
def test_code_goes_the_whole_way_of_a_spec(search: Search, tmp_path: Path) -> None:
    acts = {
        1: [says(RESIDUAL)],
        2: [says(HOSTILE), says(HOSTILE)],
        3: [says(RESIDUAL.replace("        return", "        # the mean of all pixels\n        return"))],
        4: [says(net("x = self.body(x)", classes=7))],
        5: [says(net("x = self.body(x).sort(1).values"))],
        6: [says(net("x = torch.relu(self.body(x))", width=96))],
        7: [says(net("x = nn.functional.max_pool2d(torch.relu(self.body(x)), 2)"))],
    }
    run = tmp_path / "run"
    with endpoint(acts) as served:
        engine = (f"engine.base_url={served.url}", "engine.model=rules")
        assert search(run, {"engine": "openai", "searcher": "llm_memory"}, *CODE, *engine, *QUICK[1::2])
    found = {row["candidate"]["number"]: row for row in records(run)}
    statuses = {number: row["status"] for number, row in found.items()}
    assert statuses == {1: "ok", 2: "invalid", 3: "duplicate", 4: "invalid", 5: "infeasible", 6: "infeasible", 7: "ok"}
    assert "__import__" in found[2]["reason"] and "(2, 7)" in found[4]["reason"]
    assert (found[5]["feasibility"]["rung"], found[6]["feasibility"]["rung"]) == ("convert", "link")
    assert not list(tmp_path.rglob("canary")) and not Path("canary").exists()
    manifest = json.loads((run / "bundle" / "manifest.json").read_text())
    assert manifest["bit_equal_images"] == manifest["board_images"] > 0
    assert manifest["architecture"].startswith("import torch")
    assert sum(row["event"] == "test_read" for row in journal(run)) == 1
