"""Study how well short trainings, and scores without any, rank networks: against full training, and what they cost."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Annotated

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs from a checkout that is not installed, too

import typer
from rich.console import Console

from automcu_ray.command import run_command
from automcu_ray.config import RunConfig, compose, names
from automcu_ray.errors import ConfigError
from automcu_ray.fidelity import draw, load_probes

RUNS = Path(__file__).resolve().parents[1] / "runs" / "fidelity"

EPILOG = """
Examples:

  python scripts/fidelity.py --task cifar10 --specs 16

  python scripts/fidelity.py --set dataset.max_train=4500 --set dataset.val_share=0.33 --set trainer.full.epochs=12

A study started again goes on where it stopped: no training is repeated. Validation alone is read, never the test set.
Exit status: 0 all is done, 2 the input or the machine needs fixing, 130 interrupted.
"""


def fidelity(
    task: Annotated[
        str, typer.Option(metavar="NAME", help=f"{', '.join(names('task'))}, or the path of a YAML file.")
    ] = "cifar10",
    probes: Annotated[
        str, typer.Option(metavar="NAME", help="Proxies: a file of configs/fidelity, or the path of a YAML file.")
    ] = "default",
    specs: Annotated[int, typer.Option(min=5, help="How many random networks to rank.")] = 16,
    twice: Annotated[int, typer.Option(min=1, help="How many of them to train fully a second time.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Of networks, weights and batches.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Of the configuration; can be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the results.", show_default="runs/fidelity/TASK")] = None,
) -> None:
    """Train random networks fully and by every proxy; write table.md, index.html, results.parquet, scores.parquet."""
    nobody = {"searcher": "random", "engine": "offline", "backend": "analytic"}  # no search, and no toolchain
    config = compose({"task": task, **nobody}, [*(settings or ()), "board.mode=none", f"seed={seed}"])
    found = load_probes(probes, config.trainer.full)
    from automcu_ray import cluster  # only now that the configuration is sound: Ray takes seconds
    from automcu_ray.plan import prepare
    from trainables.datasets.nasbench201 import Table
    from trainables.fidelity import Ground
    from trainables.fidelity_run import run_study, trainings

    plan = prepare(config)
    if isinstance(plan.dataset, Table):
        raise ConfigError(f"task {config.task}: its accuracies are a table's, so there is nothing to train.")
    subjects = draw(plan.task, plan.foresee, specs, seed)
    cluster.start(config.resources)
    cpus, gpus = cluster.per_trial(config.resources)
    ground = Ground(
        task=plan.task,
        train=plan.dataset.train,
        val=plan.dataset.val,
        data=_digest(config),
        seed=seed,
        threads=max(1, int(cpus)),
        gpus=gpus,
    )
    title = (
        f"{config.task}, {specs} networks: {config.trainer.full.epochs} epochs of {len(ground.train)} images, "
        f"{len(ground.val)} for validation, seed {seed}"
    )
    todo = trainings(subjects, found, min(twice, specs))
    raise typer.Exit(run_study(title, subjects, todo, ground, out or RUNS / config.task, Console(), cpus=cpus))


def _digest(config: RunConfig) -> str:
    """Return what tells this data set, with its options, from any other."""
    return hashlib.sha256(json.dumps(config.dataset.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def main() -> None:
    """Run the command; errors of the user's input or machine are one line on stderr and exit status 2."""
    run_command(fidelity, EPILOG)


if __name__ == "__main__":
    main()
