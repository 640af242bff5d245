"""The second stage of a run: finalists are trained fully, and what ships reads the test set once."""

from pathlib import Path

from rich.console import Console

from automcu_ray.networks.candidate import Candidate
from automcu_ray.records.events import FinalistEvaluated, TeacherChosen
from automcu_ray.records.journal import Repository
from automcu_ray.records.manifest import Manifest, NetworkManifest
from automcu_ray.records.record import Finalist, Record
from automcu_ray.reports.console import say
from automcu_ray.reports.live import LiveReport
from automcu_ray.run.decisions import Decisions, why_finalists, why_no_winner, why_shipped
from automcu_ray.run.finalists import next_finalists, shipped
from automcu_ray.run.plan import Plan
from automcu_ray.runtime import cluster
from automcu_ray.runtime.run_folder import RunFolder, versions
from backends.toolchain import Toolchain
from trainables.datasets.base import Dataset
from trainables.finalists.distillation import Teacher
from trainables.finalists.finalist import FinalistPipeline
from trainables.finalists.schedule import run_finalists
from trainables.finalists.test_evaluation import evaluate_on_test


def ship(
    plan: Plan, dataset: Dataset, folder: RunFolder, repository: Repository, console: Console, report: LiveReport
) -> dict[str, Manifest]:
    """Return the manifests of what ships, by name, after training finalists and writing bundles; {} where none is."""
    decisions = Decisions(repository)
    pipeline, finalists = _train_finalists(plan, dataset, folder, repository, console, report)
    ships = shipped(finalists, plan.task, bundles=plan.config.budget.bundles)
    if not ships:
        decisions.make("end", why_no_winner(finalists))
        return {}
    why = why_shipped(finalists, ships, plan.task.aim)
    decisions.make("ship", why, agent="evaluation", numbers=[finalist.number for finalist in ships.values()])
    manifests: dict[str, Manifest] = {}
    seen: dict[str, Manifest] = {}  # by hash: no network reads the test set twice
    for name, finalist in ships.items():
        if finalist.hash not in seen:
            bundle = folder.bundle if name == "winner" else folder.path / f"bundle_{name}"
            with console.status(f"the test set, and the board, for {name} #{finalist.number}"):
                seen[finalist.hash] = _evaluate(name, finalist, plan, dataset, pipeline, repository, bundle)
        manifests[name] = seen[finalist.hash]
    return manifests


def _evaluate(
    name: str,
    finalist: Finalist,
    plan: Plan,
    dataset: Dataset,
    pipeline: FinalistPipeline,
    repository: Repository,
    bundle: Path,
) -> NetworkManifest:
    """Return the manifest of a finalist, after reading the test set for it and writing its bundle."""
    network = repository.proposed[finalist.number].trial_config()
    about = {
        "seeds": {"run": plan.config.seed, name: finalist.training and finalist.training.seed},
        "data": dataset.about,
        "classes": dataset.classes,
        "teacher": pipeline.teacher and pipeline.teacher.name,
        "versions": versions(),
        "architecture": next(network[form] for form in ("spec", "cell", "code") if form in network),
    }
    test = dataset.test.open(f"{name} {finalist.hash}", repository)
    images = plan.config.board.images
    return evaluate_on_test(finalist, pipeline, test, board_images=images, bundle=bundle, about=about)


def _train_finalists(
    plan: Plan, dataset: Dataset, folder: RunFolder, repository: Repository, console: Console, report: LiveReport
) -> tuple[FinalistPipeline, list[Finalist]]:
    """Train the best candidates fully, in parallel; return all finalists."""
    config = plan.config
    done: list[Finalist] = [*repository.all(FinalistEvaluated)]
    trained = sum(record.scored for record in repository.records)
    cpus, gpus = cluster.per_finalist(config.resources, min(trained, config.budget.finalists))
    toolchain, teacher = None, plan.teacher
    if before := repository.last(TeacherChosen):  # of this run, before an interruption
        teacher = Teacher.finalist(repository.proposed[before.number], folder.finalists)
    if plan.backend is not None:
        toolchain = Toolchain(plan.task, config.backend.name, config.backend.options, folder.toolchain, plan.board)
    pipeline = FinalistPipeline(
        task=plan.task,
        protocol=config.trainer.full,
        train_split=dataset.train,
        val_split=dataset.val,
        toolchain=toolchain,
        board=plan.board,
        folder=folder.finalists,
        seed=config.seed,
        threads=max(1, int(cpus)),
        gpus=gpus,
        jail=config.finalist_jail,
        second_opinions=plan.second_opinions,
        teacher=teacher,
        recording=dataset.recording,
    )

    def keep(finalist: Finalist) -> None:
        done.append(finalist)
        repository.append(FinalistEvaluated(**dict(finalist)))
        report.refresh()
        outcome = finalist.reason or f"validation {finalist.training and finalist.training.told}"
        say(console, "; ".join(filter(None, [f"finalist #{finalist.number}: {outcome}", finalist.note])))

    def keep_teacher(teacher: Candidate) -> None:
        repository.append(TeacherChosen(number=teacher.number, hash=teacher.hash))
        say(console, f"finalist #{teacher.number} is best in float and teaches")

    where = cluster.placement(config.resources, folder.path)  # for their checkpoints, and what ships
    with console.status("finalists") as status:
        while chosen := _next_wave(plan, repository, done):
            run_finalists(
                [record.candidate for record in chosen],
                pipeline,
                cpus=cpus,
                gpus=gpus,
                where=where,
                on_result=keep,
                on_teacher=keep_teacher,
                on_wait=lambda text: status.update(f"finalists: {text}"),
            )
    return pipeline, done


def _next_wave(plan: Plan, repository: Repository, done: list[Finalist]) -> list[Record]:
    """Return who is trained fully next, after writing that down; what was decided before an interruption stands."""
    decisions, known = Decisions(repository), {finalist.number for finalist in done}
    decided = [number for wave in decisions.of("train_fully") for number in wave.numbers if number not in known]
    if decided:
        by_number = {record.candidate.number: record for record in repository.records}
        return [by_number[number] for number in decided]
    if plan.config.supervisor.agents == "shared":
        return []  # the agents have chosen
    budget = plan.config.budget
    chosen = next_finalists(repository.records, done, plan.task, count=budget.finalists, bundles=budget.bundles)
    if chosen:
        numbers = [record.candidate.number for record in chosen]
        decisions.make("train_fully", why_finalists(chosen, done, plan.task.aim), agent="training", numbers=numbers)
    return chosen
