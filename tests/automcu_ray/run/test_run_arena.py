"""The arena's loop, whole: an agent from a script refines real firmware on the emulated board."""

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from automcu_ray.core.errors import ConfigError
from automcu_ray.records.events import AttemptMade
from automcu_ray.run.run_arena import ArenaConfig, compose, existing, run
from automcu_ray.runtime.run_folder import RunFolder
from backends.c_qemu.cgen import generate
from searchers.engines.base import Reply
from tests.searchers.agent.scripted import ScriptedEngine, write
from trainables.arena.workload import Workload, prepare

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("ray_cluster", "qemu", "sandbox")]

O3 = """sed -i '1i #pragma GCC optimize("O3")' artifact/net.c"""
TRAINER = """
import numpy as np
data = np.load('data/train.npz')
x, labels = (data['images'].reshape(-1, 64).astype(float) - 128) / 128, data['labels']
rng = np.random.default_rng(0)
a, b = rng.normal(0, .15, (64, 32)), rng.normal(0, .2, (32, 10))
c, d = np.zeros(32), np.zeros(10)
for step in range(4000):
    pick = rng.integers(0, len(x), 64)
    seen = x[pick] + rng.normal(0, .02, (64, 64))
    h = np.maximum(seen @ a + c, 0)
    z = h @ b + d
    p = np.exp(z - z.max(1, keepdims=True)); p /= p.sum(1, keepdims=True)
    p[np.arange(64), labels[pick]] -= 1
    g = p @ b.T * (h > 0)
    rate = .003 * (1 - step / 4000)
    b -= rate * h.T @ p; d -= rate * p.sum(0); a -= rate * seen.T @ g; c -= rate * g.sum(0)
def table(name, values):
    return 'static const float %s[] = {%s};' % (name, ','.join('%.5gf' % v if '.' in '%.5g' % v or 'e' in '%.5g' % v
                                                               else '%.5g.0f' % v for v in values.ravel()))
open('artifact/net.c', 'w').write('#include <stdint.h>\\n' + '\\n'.join(
    table(n, v) for n, v in (('a', a), ('b', b), ('c', c), ('d', d))) + '''
void net(const int8_t *in, int8_t *out) {
    float h[32];
    for (int j = 0; j < 32; j++) {
        float s = c[j];
        for (int i = 0; i < 64; i++) s += a[32 * i + j] * in[i] / 128.0f;
        h[j] = s > 0 ? s : 0;
    }
    for (int k = 0; k < 10; k++) {
        float s = d[k];
        for (int j = 0; j < 32; j++) s += b[10 * j + k] * h[j];
        s *= 4;
        out[k] = s > 127 ? 127 : s < -128 ? -128 : (int8_t)s;
    }
}
''')
"""


def configured(task: str, *changes: str, settings: tuple[Any, ...] = ("hil",)) -> ArenaConfig:
    return compose(task, settings, "agent", "openai", 0, list(changes), None)


def play(config: ArenaConfig, engine: ScriptedEngine, folder: Path) -> tuple[int, str]:
    said = io.StringIO()
    status = run(config, engine, RunFolder(folder), Console(file=said, width=200))
    return status, said.getvalue()


def objectives(folder: Path, setting: str = "hil") -> list[float]:
    lines = [json.loads(line) for line in (folder / setting / "journal.jsonl").read_text().splitlines()]
    found = [line["observation"]["objective"] for line in lines if line["event"] == "attempt_observed"]
    return [math.inf if one is None else one for one in found]


def trained(config: ArenaConfig, folder: Path) -> Workload:
    return prepare(config.task, folder / "workload")


def test_qemu_speed_ends_with_half_as_many_instructions_again_and_the_same_outputs(tmp_path: Path) -> None:
    config = configured("qemu_speed", "attempts=4")
    folder = tmp_path / "speed"
    faster = generate(trained(config, folder).deployed, "cortex-m4f").source
    engine = ScriptedEngine(
        {
            1: [write("artifact/main.c", "int main(void) {}"), write("../../journal.jsonl", "{}")],
            2: [write("artifact/net.c", "void net(const signed char *in, signed char *out) { out[0] = in[0]; }")],
            3: [write("artifact/net.c", faster)],
            4: [{"tool": "run", "command": O3}],
        }
    )
    status, said = play(config, engine, folder)
    seed, wrong, simd, unrolled = objectives(folder)
    assert status == 0 and wrong == math.inf
    assert seed / min(simd, unrolled) >= 1.5, said
    refused = [event["attempt"]["refused"] for event in map(json.loads, (folder / "hil" / "journal.jsonl").open())
               if event["event"] == "attempt_made"]  # fmt: skip
    assert [len(one) for one in refused] == [2, 0, 0, 0]
    page = (folder / "report.html").read_text()
    assert "belongs to the harness" in page and "The conversation of the best attempt" in page and "<svg" in page


@pytest.mark.slow
def test_qemu_ram_learns_from_the_fault_how_much_stack_is_needed(tmp_path: Path) -> None:
    stacks = {n: [write("artifact/artifact.yaml", f"stack_bytes: {size}\n")] for n, size in ((2, 128), (3, 384))}
    engine = ScriptedEngine(stacks)
    play(configured("qemu_ram", "attempts=3"), engine, tmp_path / "ram")
    seed, too_small, small = objectives(tmp_path / "ram")
    assert too_small == math.inf and small < seed - 1000
    assert "FAULT" in engine.heard[3][1].content


@pytest.mark.slow
def test_qemu_compress_trains_in_the_sandbox_what_fits(tmp_path: Path) -> None:
    script = {2: [write("scratch/train.py", TRAINER), {"tool": "run", "command": "python3 scratch/train.py"}]}
    play(configured("qemu_compress", "attempts=2"), ScriptedEngine(script), tmp_path / "compress")
    too_large, fits = objectives(tmp_path / "compress")
    assert too_large == math.inf and fits < 0.1


def tiny(*changes: str, settings: tuple[Any, ...] = ("hil",)) -> ArenaConfig:
    """qemu_speed on a network of four channels, with two images."""
    layers = "[{type: conv, out_channels: 4, stride: 2}, {type: max_pool}]"
    small = [f"workload.network.backbone={layers}", "workload.training.epochs=1"]
    few = ["feasibility.images=1", "feasibility.random_inputs=1"]
    return configured("qemu_speed", *small, *few, *changes, settings=settings)


@pytest.mark.slow
def test_all_three_settings_run_and_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    settings = ("score", "doc", "hil")
    folder = tmp_path / "run"
    first = ScriptedEngine({2: 9 * [Reply.failed("no connection")]})
    status, said = play(tiny("attempts=2", settings=settings), first, folder)
    assert status == 0 and all(f"{one} attempt 1: objective" in said for one in settings)
    again, config = existing(folder)
    assert config.settings == settings
    second = ScriptedEngine({})
    run(config, second, again, Console(file=io.StringIO()))
    assert second.requests == []  # a failed attempt has used its number, and nothing is asked twice


def test_an_artifact_that_was_submitted_before_a_kill_is_judged_and_not_paid_again(tmp_path: Path) -> None:
    config, folder = tiny("attempts=1"), tmp_path / "run"
    play(config, ScriptedEngine({}), folder)
    journal = folder / "hil" / "journal.jsonl"
    made, _ = journal.read_text().splitlines(keepends=True)
    assert AttemptMade.model_validate(json.loads(made)).attempt.number == 1
    journal.write_text(made + '{"event": "attempt_obs')  # killed while it wrote
    engine = ScriptedEngine({})
    assert play(config, engine, folder)[0] == 0
    assert engine.requests == [] and objectives(folder)[0] < math.inf


def test_an_unknown_searcher_or_key_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="known: agent"):
        compose("qemu_speed", ("hil",), "llm", "openai", 0, [], None)
    with pytest.raises(ConfigError, match="atempts"):
        configured("qemu_speed", "atempts=3")
