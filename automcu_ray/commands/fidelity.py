"""Study how well short trainings, and scores without any, rank networks: against full training, and what they cost."""

import hashlib
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from automcu_ray.core.errors import ConfigError
from automcu_ray.runtime import interruption
from automcu_ray.runtime.command import run_command
from automcu_ray.runtime.config import compose
from automcu_ray.runtime.config_files import names

EPILOG = """
Examples:

  automcu fidelity --task cifar10 --specs 16

  automcu fidelity --set dataset.max_train=4500 --set dataset.val_share=0.33 --set trainer.full.epochs=12

A study started again goes on where it stopped: no training is repeated. Validation alone is read, never the test set.
Exit status: 0 all is done, 2 the input or the machine needs fixing, 130 or 143 interrupted.
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
    interruption.postpone()
    nobody = {"searcher": "random", "engine": "offline", "backend": "analytic"}  # no search, and no toolchain
    config = compose({"task": task, **nobody}, [*(settings or ()), "board.mode=none", f"seed={seed}"])
    from automcu_ray.run.plan import prepare  # only now that the configuration is sound: torch and Ray take seconds
    from automcu_ray.run.run_fidelity import run_study, trainings
    from automcu_ray.runtime import cluster
    from automcu_ray.studies.fidelity import draw, load_probes
    from trainables.datasets.nasbench201 import Table
    from trainables.fidelity.measure import Ground

    found = load_probes(probes, config.trainer.full)
    plan = prepare(config)
    if isinstance(plan.dataset, Table):
        raise ConfigError(f"task {config.task}: its accuracies are a table's, so there is nothing to train.")
    if (kind := plan.task.learning.kind) != "classification":
        raise ConfigError(f"task {config.task}: proxies are compared for classification, and this is {kind}.")
    subjects = draw(plan.task, plan.check_bounds, specs, seed)
    cluster.start(config.resources)
    cpus, gpus = cluster.per_trial(config.resources)
    told = json.dumps(config.dataset.model_dump(mode="json"), sort_keys=True)
    ground = Ground(
        task=plan.task,
        train=plan.dataset.train,
        val=plan.dataset.val,
        data=hashlib.sha256(told.encode()).hexdigest(),  # tells this data set, with its options, from any other
        seed=seed,
        threads=max(1, int(cpus)),
        gpus=gpus,
    )
    title = (
        f"{config.task}, {specs} networks: {config.trainer.full.epochs} epochs of {len(ground.train)} images, "
        f"{len(ground.val)} for validation, seed {seed}"
    )
    todo = trainings(subjects, found, min(twice, specs))
    out = out or Path("runs", "fidelity", config.task)
    raise typer.Exit(run_study(title, subjects, todo, ground, out, Console(), cpus=cpus))


def main() -> None:
    """Run the command; errors of the user's input or machine are one line on stderr and exit status 2."""
    run_command(fidelity, EPILOG)
