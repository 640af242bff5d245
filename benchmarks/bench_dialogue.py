"""Print what searchers that ask an engine spend and gain: ten trained candidates on digits, a simulated engine.

Tokens are counted by the engine in pieces of words. Sizes are the lower bounds plus what code and stack take,
accuracies come from a formula with noise as 270 validation images have it: nothing is trained, so loops are compared,
not models. `--no-fill` leaves slots idle where the engine is awaited.
`--slots` measures how busy two slots are where an answer takes 4 s and a training 2 s, in real time.
"""

import math
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any

from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.graph import Graph
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config import compose
from automcu_ray.sizing.footprint import footprint
from searchers.engines.base import Reply, Request
from searchers.engines.simulated import SimulatedEngine
from searchers.gate.gate import Gate
from searchers.tune_searcher import TuneSearcher
from searchers.tune_searchers import CapacitySearch, LLMMemorySearch, LLMSearch, RandomSearch

TRAINED, SEEDS, SLOTS = 10, 5, 2
FILLS = "--no-fill" not in sys.argv
TRAINING_S, ANSWER_S = 2.0, 4.0
CODE_BYTES, BYTES_PER_OPERATOR, OTHER_RAM_BYTES = 5_000, 350, 1_200
NOISE = 0.005
LIMITS = compose({"task": "digits"}).model_dump(include={"target", "constraints"})
TASK: Task = Task(dataset="digits", input_shape=(1, 8, 8), num_classes=10, **LIMITS)
Make = Callable[..., TuneSearcher]
ARMS: dict[str, tuple[Make, dict[str, Any]]] = {
    "llm": (LLMSearch, {"ask_after": 3}),
    "llm_memory, one role": (LLMMemorySearch, {"roles": "one", "seeds": 4, "ask_after": 3}),
    "llm_memory, two roles": (LLMMemorySearch, {"seeds": 4}),
}
FREE: dict[str, tuple[Make, dict[str, Any]]] = {"capacity": (CapacitySearch, {}), "random": (RandomSearch, {})}


class Listening(SimulatedEngine):
    """Keeps the requests that it answers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.asked: list[Request] = []

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        self.asked += requests
        return super().complete(requests)


class Linker(Gate):
    """Adds to the lower bounds what code, runtime and stack take: about what a linker says."""

    def submit(self, candidate: Candidate) -> FeasibilityReport | None:
        report = super().submit(candidate)
        if report is None or not report.feasible or candidate.spec is None:
            return report
        graph = self.task.space.graph(candidate.spec)
        bounds = footprint(graph, "int8")
        ram = bounds.ram_lower_bound_bytes + OTHER_RAM_BYTES
        flash = bounds.flash_lower_bound_bytes + CODE_BYTES + BYTES_PER_OPERATOR * len(graph.ops)
        limits = {"ram": (ram, self.task.ram_limit_bytes), "flash": (flash, self.task.flash_limit_bytes)}
        over = tuple(
            Violation(rung=Rung.LINK, resource=name, found_bytes=need, limit_bytes=limit, message=f"{name} overflowed")
            for name, (need, limit) in limits.items()
            if need > limit
        )
        sizes = {"ram_bytes": ram, "flash_bytes": flash, "violations": over, "feasible": not over}
        return report.model_copy(update={"rung": Rung.LINK, **sizes})


def worth(graph: Graph) -> float:
    """Return a made-up accuracy without noise: parameters, depth and skips help, each ever less."""
    depth = sum(op.kind == "conv" for op in graph.ops)
    skips = sum(op.kind == "add" for op in graph.ops)
    parameters = footprint(graph, "int8").parameters
    return 0.994 - 0.4 * math.exp(-parameters / 3_000) - 0.03 * math.exp(-depth / 3) - 0.006 * math.exp(-skips)


def outcome(candidate: Candidate, seed: int) -> dict[str, Any]:
    assert candidate.spec is not None
    noise = Random(f"{candidate.hash}:{seed}").gauss(0, NOISE)
    accuracy = min(1.0, max(0.0, worth(TASK.space.graph(candidate.spec)) + noise))
    return {"val_accuracy": accuracy, "training/val_accuracy": accuracy, "training/seconds": TRAINING_S}


@cache
def optimum() -> float:
    """Return the best worth among many networks that fit: what regret is counted from."""
    search = CapacitySearch(TASK, seed=0)
    search.gate, search.budget.trained = Linker(TASK), 300
    number = 0
    while isinstance(config := search.suggest(f"t{number}"), dict):
        search.on_trial_complete(f"t{number}", outcome(Candidate.of_trial(config), 0))
        number += 1
    return max(worth(TASK.space.graph(r.candidate.spec)) for r in search.repository.records if r.candidate.spec)


def run(make: Make, options: dict[str, Any], seed: int, answer_s: float = 0.0) -> tuple[TuneSearcher, Listening, float]:
    """Return a finished search, its engine, and how busy the slots were; in real time where answers take time."""
    engine = Listening(seconds=answer_s)
    asks = make not in (CapacitySearch, RandomSearch)
    search = make(_task(), seed=seed, **options, **({"engine": engine} if asks else {}))
    search.gate, search.budget.trained, search.lookahead = Linker(_task()), TRAINED, SLOTS + 2
    ends: dict[str, float] = {}
    began_s, busy_s, number = time.monotonic(), 0.0, 0
    training_s = TRAINING_S if answer_s else 0.0
    while True:
        now = time.monotonic()
        for trial in [trial for trial, end_s in ends.items() if end_s <= now]:
            del ends[trial]
            search.on_trial_complete(trial, outcome(search.live[trial][0], seed))
        search.pump()
        config = search.suggest(f"t{number}") if len(ends) < SLOTS else None
        if isinstance(config, dict):
            ends[f"t{number}"] = now + training_s
            busy_s, number = busy_s + training_s, number + 1
        elif config == "FINISHED" and not ends:
            break
        elif answer_s:
            time.sleep(0.005)
    total_s = time.monotonic() - began_s
    return search, engine, busy_s / (SLOTS * total_s) if answer_s else 0.0


def _task() -> Task:
    try:
        from automcu_ray.problem.task import Evidence
    except ImportError:  # so that an earlier version can be measured by the same file
        return TASK
    return TASK.replace(evidence=Evidence(train_images=1257, val_images=270, epochs=10))


def regret(search: TuneSearcher) -> float:
    """Return by how many points the network that validates best is worse than the best one known."""
    trained = [record for record in search.repository.records if record.scored]
    best = max(trained, key=lambda record: record.accuracy)
    assert best.candidate.spec is not None
    return 100 * (optimum() - worth(TASK.space.graph(best.candidate.spec)))


def without_news(search: TuneSearcher, engine: Listening) -> int:
    """Return how many conversations but the first knew no outcome that none before them had known."""
    talks = {request.talk: request.messages for request in engine.asked if request.role != "repair"}
    known: set[str] = set()
    empty = 0
    for talk, messages in sorted(talks.items()):
        lines = {line for message in messages for line in message.content.splitlines() if re.match(r"#\d", line)}
        numbers = {line.split()[0] for line in lines if "under way" not in line}
        empty += talk > 1 and not numbers - known
        known |= numbers
    return empty


def main() -> None:
    answer_s = ANSWER_S if "--slots" in sys.argv else 0.0
    head = f"{'searcher':<24}{'tokens':>26}{'requests':>10}{'equal':>7}{'no news':>9}{'regret, points':>18}{'busy':>7}"
    print(f"{head}  records")
    for name, (make, options) in ARMS.items() if answer_s else [*ARMS.items(), *FREE.items()]:
        tokens, asks, equal, empty, regrets, busy, statuses = [], [], 0, 0, [], [], Counter[str]()
        for seed in range(SEEDS):
            about = {**options, **({"fill": _plugin("capacity")} if FILLS and name in ARMS else {})}
            search, engine, share = run(make, about, seed, answer_s)
            tokens.append(search.spent.tokens)
            asks.append(len(engine.asked))
            equal += len(engine.asked) - len({request.messages for request in engine.asked})
            empty += without_news(search, engine)
            regrets.append(regret(search))
            busy.append(share)
            statuses.update(f"{r.candidate.proposer or r.status}:{r.status}" for r in search.repository.records)
        told = "/".join(map(str, tokens))
        print(
            f"{name:<24}{told:>26}{statistics.mean(asks):10.1f}{equal:7}{empty:9}{statistics.mean(regrets):10.2f} "
            f"± {statistics.stdev(regrets):.2f}{statistics.mean(busy):9.0%}  {dict(statuses)}",
            flush=True,
        )


def _plugin(name: str) -> Any:
    from automcu_ray.runtime.config import Plugin

    return Plugin(name=name)


if __name__ == "__main__":
    main()
