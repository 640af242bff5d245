"""Seconds from generated code to its first forward pass: in a warm jail, and in an interpreter of its own.

    python benchmarks/bench_jail.py

Both run the same programs, in turn, in the same run: the ratio holds on a busy machine too.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config import JailConfig
from automcu_ray.runtime.config_files import CONFIGS, read_yaml
from trainables.jail.client import Jail

PROGRAMS = Path(__file__).resolve().parents[1] / "tests" / "trainables" / "open_code" / "good"
NAMES = ("sequential", "functional", "squeeze_excite", "shuffle", "module_list", "main_block")
FRESH = "{code}\nimport torch\nwith torch.no_grad(): assert Net().eval()(torch.zeros(2, 1, 8, 8)).shape == (2, 10)\n"


def in_a_fresh_interpreter(code: str) -> float:
    """Return seconds until a new interpreter has imported torch and run the network forward."""
    started_s = time.perf_counter()
    program = FRESH.format(code=code.replace("__main__", "never"))
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    return time.perf_counter() - started_s


def describe(name: str, seconds: Sequence[float]) -> str:
    return f"{name:34}{statistics.median(seconds):7.3f}{min(seconds):9.3f}{max(seconds):9.3f}"


def main() -> None:
    target = McuTarget.model_validate(read_yaml(CONFIGS / "target" / "stm32f405.yaml"))
    task = Task(dataset="digits", input_shape=(1, 8, 8), num_classes=10, target=target, constraints=Constraints())
    jail, codes = Jail(task, JailConfig()), [(PROGRAMS / f"{name}.py").read_text() for name in NAMES]
    started_s = time.perf_counter()
    jail.start()
    start_s = time.perf_counter() - started_s
    jail.check(codes[0])
    jailed, fresh, whole = [], [], []
    for code in codes:
        started_s = time.perf_counter()
        jailed.append(jail.check(code).forward_seconds)
        whole.append(time.perf_counter() - started_s)
        fresh.append(in_a_fresh_interpreter(code))
    jail.close()
    print(f"{'seconds':35}median  fastest  slowest")
    print(describe("until forward, warm jail", jailed))
    print(describe("until forward, fresh interpreter", fresh))
    print(describe("until both graphs are out, jail", whole))
    ratio = statistics.median(fresh) / statistics.median(jailed)
    print(f"ratio of the medians {ratio:.0f}; start of a jail {start_s:.1f}")


if __name__ == "__main__":
    main()
