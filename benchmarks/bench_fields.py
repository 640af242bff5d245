"""Print whether joins, groups and heads that keep positions help a search: evolution with and without them.

    python benchmarks/bench_fields.py [--trained 20] [--seeds 0 1 2 3 4] [--epochs 10]     # on digits
    python benchmarks/bench_fields.py --cifar10 5000 --epochs 2      # on so many training images of CIFAR-10

Both arms train the same number of networks for a short proxy; validation accuracy is of the int8 network. Sizes are the
lower bounds plus what code and stack take (`bench_dialogue.py`). Without the fields the space is what specs could say
before: every type but `skip` and `concat`, no groups, a global average pool. The test set is not read.
"""

import argparse
import statistics
import time

import torch
from bench_dialogue import TASK as DIGITS
from bench_dialogue import Linker

from automcu_ray.core.training_recipe import Protocol
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.morphisms import JOINS
from automcu_ray.networks.operator_limits import Operator
from automcu_ray.networks.search_space import TYPES, Space
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config import compose
from searchers.tune_searchers import EvolutionSearch, RandomSearch
from trainables.datasets.digits import digits
from trainables.datasets.published import cifar10
from trainables.proxy import candidate_seed
from trainables.training.trainer import CANDIDATE_ERRORS, Trainer

PLAIN = tuple(Operator(type=kind, groups=(1,) if kind == "conv" else None) for kind in TYPES if kind not in JOINS)
SEARCHERS = {"evolution": EvolutionSearch, "random": RandomSearch}


class PlainTask(Task):
    """The task without the fields: a space of named types has neither joins nor a head to set."""

    @property
    def space(self) -> Space:
        return super().space.replace(operators=PLAIN)


def uses(spec: ArchitectureSpec) -> set[str]:
    """Return which of the fields a network uses."""
    found = {str(layer.type) for layer in spec.backbone} & set(JOINS)
    found |= {"groups"} if any(getattr(layer, "groups", 1) > 1 for layer in spec.backbone) else set()
    return found | ({"positions"} if spec.head.positions > 1 else set())


def run(searcher: str, task: Task, seed: int, trained: int, trainer: Trainer) -> list[tuple[float, set[str]]]:
    """Return the int8 validation accuracy of every trained network, and the fields that it uses."""
    search = SEARCHERS[searcher](task, seed=seed)
    search.gate, search.budget.trained = Linker(task), trained
    found: list[tuple[float, set[str]]] = []
    number = 0
    while isinstance(config := search.suggest(f"t{number}"), dict):
        spec = Candidate.of_trial(config).spec
        assert spec is not None
        try:
            *_, last = trainer.start(spec, seed=candidate_seed(seed, config["number"]))
            summary, _ = trainer.finish(last)
            result = summary.reported()
            found.append((summary.val_accuracy, uses(spec)))
        except CANDIDATE_ERRORS as error:
            result = {"failure": str(error)[:100], "val_accuracy": float("-inf"), "score": float("-inf")}
        search.on_trial_complete(f"t{number}", result)
        number += 1
    return found


def pictures() -> Task:
    """Return the task of CIFAR-10, with its limits."""
    limits = compose({"task": "cifar10"}).model_dump(include={"target", "constraints"})
    return Task(dataset="cifar10", input_shape=(3, 32, 32), num_classes=10, **limits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trained", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--searcher", choices=SEARCHERS, default="evolution")
    parser.add_argument(
        "--cifar10", type=int, metavar="IMAGES", help="of the training set, a fifth of them to validate"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    full, data = DIGITS, digits()
    protocol = Protocol(epochs=options.epochs, batch_size=64, learning_rate=0.2, crop_padding_px=1)
    if options.cifar10:
        full, data = pictures(), cifar10(max_train=options.cifar10, max_test=100, val_share=0.2)
        protocol = protocol.replace(learning_rate=0.1, crop_padding_px=4, flip=True)
    plain = PlainTask(**{name: getattr(full, name) for name in Task.model_fields})
    best: dict[str, list[float]] = {"with": [], "without": []}
    for seed in options.seeds:
        for name, task in (("with", full), ("without", plain)):
            began_s = time.process_time()
            trainer = Trainer(task, protocol, data.train, data.val, gpus=0)
            found = run(options.searcher, task, seed, options.trained, trainer)
            top = max(found, key=lambda one: one[0])
            best[name].append(top[0])
            mean, used = statistics.mean(accuracy for accuracy, _ in found), sum(bool(fields) for _, fields in found)
            print(
                f"seed {seed} {name:7}: best {top[0]:.2%} ({', '.join(sorted(top[1])) or '-'}), mean {mean:.2%} of"
                f" {len(found)}, {used} use a field, {time.process_time() - began_s:.0f} s of processor",
                flush=True,
            )
    pairs = [one - other for one, other in zip(best["with"], best["without"], strict=True)]
    spread = [f"{name} {statistics.mean(v):.2%} ± {statistics.stdev(v):.2%}" for name, v in best.items() if len(v) > 1]
    print(f"best: {', '.join(spread)}; difference by seed: {', '.join(f'{100 * one:+.2f}' for one in pairs)} points")


if __name__ == "__main__":
    main()
