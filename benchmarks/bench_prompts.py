"""Print how many tokens a searcher's prompts take at iterations 10, 100 and 500, beside ablations that keep everything.

An iteration is one conversation: of `llm` it proposes four candidates, of `llm_memory` one, in two prompts. The prompts
are the searchers' own. The records are simulated: random specs, sizes as lower bounds plus what code and stack take,
accuracies that grow with parameters, diagnoses of usual length. A file name as argument draws a figure.
"""

import math
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation
from automcu_ray.networks.candidate import Candidate, Diagnosis
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record, TrainingSummary
from automcu_ray.runtime.config import compose
from automcu_ray.sizing.footprint import footprint
from searchers.dialogue import prompts
from searchers.dialogue.llm_proposer import LLMProposer
from searchers.dialogue.record_selection import CHARS_PER_TOKEN
from searchers.llm import LLM
from searchers.llm_memory import LLMMemory

SEARCHERS: dict[str, Callable[[], LLMProposer]] = {
    "llm": lambda: LLM(TASK),
    "llm_memory": lambda: LLMMemory(TASK),
    "llm, context all": lambda: LLM(TASK, context="all"),
    "llm, context shared": lambda: LLM(TASK, context="shared"),
    "llm_memory, memory all": lambda: LLMMemory(TASK, memory="all"),
    "llm_memory, shared context": lambda: LLMMemory(TASK, shared_context=True),
}
ITERATIONS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500)
SHOWN, SEEDS, AROUND = (10, 100, 500), 3, 1
CODE_BYTES, BYTES_PER_OPERATOR, OTHER_RAM_BYTES, REPEATS = 5_000, 350, 1_200, 0.08
Count = Callable[[str], int]
LIMITS = compose({"task": "digits"}).model_dump(include={"target", "constraints"})
TASK: Task = Task(dataset="digits", input_shape=(1, 8, 8), num_classes=10, **LIMITS)


def records(seed: int) -> Iterator[Record]:
    """Yield what a search might have seen, without end."""
    rng, earlier = Random(seed), list[Candidate]()
    while True:
        again = earlier and rng.random() < REPEATS
        found = rng.choice(earlier) if again else TASK.space.sample(rng)
        text = "Set layer_3.out_channels to 24. Insert a residual of 24 channels after it. " * 4
        diagnosis = Diagnosis(problem=text[: rng.randint(60, 220)], suggestion=text[: rng.randint(60, 300)])
        earlier.append(found.replace(number=len(earlier) + 1, diagnosis=diagnosis))
        if again:
            yield Record(candidate=earlier[-1], status="duplicate", reason=f"equals candidate {found.number}")
        else:
            yield _outcome(earlier[-1], rng)


def _outcome(candidate: Candidate, rng: Random) -> Record:
    """Return a record as the linker and a short training might have made it."""
    assert candidate.spec is not None
    graph = TASK.space.graph(candidate.spec)
    bounds = footprint(graph, TASK.precision)
    ram = bounds.ram_lower_bound_bytes + OTHER_RAM_BYTES
    flash = bounds.flash_lower_bound_bytes + CODE_BYTES + BYTES_PER_OPERATOR * len(graph.ops)
    limits = {"ram": (ram, TASK.ram_limit_bytes), "flash": (flash, TASK.flash_limit_bytes)}
    over = tuple(
        Violation(
            rung=Rung.LINK,
            resource=name,
            found_bytes=found,
            limit_bytes=limit,
            message=f"{name} needs {found} bytes, {found - limit} more than the limit of {limit}",
        )
        for name, (found, limit) in limits.items()
        if found > limit
    )
    about: dict[str, Any] = {"backend": "simulated", "rung": Rung.LINK, "ram_bytes": ram, "flash_bytes": flash}
    report = FeasibilityReport(feasible=not over, violations=over, parameters=bounds.parameters, **about)
    reason = "; ".join(violation.message for violation in over)
    if over:
        return Record(candidate=candidate, status="infeasible", reason=reason, feasibility=report)
    accuracy = 1 - math.exp(-bounds.parameters / 10_000) - 0.05 * rng.random()
    training = TrainingSummary(val_accuracy=accuracy)
    return Record(candidate=candidate, status="ok", feasibility=report, training=training)


@lru_cache
def history(seed: int) -> tuple[Record, ...]:
    """Return the records of a simulated search, as many as are needed."""
    return tuple(islice(records(seed), 4 * (max(ITERATIONS) + AROUND)))


def prompt_tokens(name: str, iteration: int, count: Count, seed: int = 0) -> int:
    """Return the tokens of all prompts of one iteration, both roles together."""
    searcher = SEARCHERS[name]()
    for record in history(seed)[: (iteration - 1) * searcher.batch]:
        searcher.observe(record)
    return sum(count(message.content) for request in searcher.preview() for message in request.messages)


def mean_tokens(name: str, iteration: int, count: Count, seeds: int = SEEDS) -> float:
    """Return the mean over seeds and over iterations close by: how long one spec is, is chance."""
    close = range(iteration - AROUND, iteration + AROUND + 1) if iteration > AROUND else [iteration]
    return statistics.mean(prompt_tokens(name, at, count, seed) for at in close for seed in range(seeds))


def counter() -> tuple[str, Count]:
    """Return how tokens are counted: by a tokenizer trained on the spot where `tokenizers` is installed."""
    try:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    except ImportError:
        return f"estimated as characters / {CHARS_PER_TOKEN}", lambda text: len(text) // CHARS_PER_TOKEN
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=4096, initial_alphabet=letters, show_progress=False)
    texts = [path.read_text() for path in Path(prompts.__file__).parents[1].rglob("*.j2")]
    texts += [record.model_dump_json() for record in history(seed=1000)[:300]]
    tokenizer.train_from_iterator(texts, trainer)
    return "counted by a byte-pair tokenizer trained on such prompts", lambda text: len(tokenizer.encode(text).ids)


def draw(path: Path, table: dict[str, list[float]]) -> None:
    """Draw tokens against iterations, as SVG or PNG by the name of the file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for name, tokens in table.items():
        axes.plot(ITERATIONS, tokens, marker=".", linestyle="--" if "," in name else "-", label=name)
    axes.set(xscale="log", yscale="log", xlabel="iteration", ylabel="tokens in the prompts of one iteration")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path)


def main() -> None:
    how, count = counter()
    print(f"tokens in the prompts of one iteration, {how}; means over {SEEDS} seeds and {2 * AROUND + 1} iterations")
    print(f"{'searcher':<28}" + "".join(f"{f'at {at}':>9}" for at in SHOWN) + f"{'500 : 10':>10}")
    table: dict[str, list[float]] = {}
    for name in SEARCHERS:
        table[name] = [mean_tokens(name, at, count) for at in ITERATIONS]
        tokens = dict(zip(ITERATIONS, table[name], strict=True))
        print(f"{name:<28}" + "".join(f"{tokens[at]:9.0f}" for at in SHOWN) + f"{tokens[500] / tokens[10]:10.2f}")
    if len(sys.argv) > 1:
        draw(Path(sys.argv[1]), table)


if __name__ == "__main__":
    main()
