"""Runs a fidelity study: what the journal holds is not repeated, the rest is trained in parallel, as Ray tasks."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from automcu_ray.core.folder_lock import held
from automcu_ray.records.events import NetworkMeasured
from automcu_ray.records.journal import Repository
from automcu_ray.reports.console import say, say_interrupted
from automcu_ray.studies.fidelity import FULL, Probe, Subject
from automcu_ray.studies.fidelity_report import write
from trainables.fidelity.measure import Ground, Training, measure, measured
from trainables.ray_map import in_parallel


def trainings(subjects: Sequence[Subject], probes: Sequence[Probe], twice: int) -> list[Training]:
    """Return every training of a study: the full ones first, also those of `twice` networks with another seed."""
    full = next(probe for probe in probes if probe.name == FULL)
    dearest_first = sorted(subjects, key=lambda subject: -subject.macs)
    again = [subjects[at * len(subjects) // twice] for at in range(twice)]
    made = [Training(subject.candidate, full, 1) for subject in dearest_first]
    made += [Training(subject.candidate, full, 2) for subject in again]
    return made + [Training(one.candidate, probe, 0) for probe in probes if probe is not full for one in dearest_first]


def run_study(
    title: str,
    subjects: Sequence[Subject],
    todo: Sequence[Training],
    ground: Ground,
    out: Path,
    console: Console,
    *,
    cpus: float,
) -> int:
    """Measure what is left of a study and write its results; return 0 when all is done, 130 after an interrupt.

    `ground.gpus` is a training's share of a GPU. A worker that dies is tried again twice; then that is the
    training's failure. Every result is a line of `<out>/journal.jsonl`, on disk before the next one is looked at.

    Raises:
        ConfigError: another process works on this study.
    """
    with held(out):
        journal = Repository(out / "journal.jsonl")
        known = {event.measured.key: event.measured for event in journal.all(NetworkMeasured)}
        keys = [training.key(ground) for training in todo]
        left = [training for training, key in zip(todo, keys, strict=True) if key not in known]
        say(console, f"{title}: {len(todo) - len(left)} of {len(todo)} trainings are done; results: {out}")
        status = 0
        try:
            with console.status("starting"):
                for training, found in in_parallel(measure, left, ground, cpus=cpus, gpus=ground.gpus):
                    done = measured(training, ground, (), found) if isinstance(found, str) else found
                    journal.append(NetworkMeasured(measured=done))
                    known[done.key] = done
                    scores = ", ".join(f"{score.reading} {score.value:.4g}" for score in done.scores[-3:])
                    seconds = f", {done.scores[-1].seconds:.1f} s" if done.scores else ""
                    about = f"network {done.number}, {done.probe}: {done.failure or scores}{seconds}"
                    say(console, f"{sum(key in known for key in keys)} of {len(todo)}: {about}")
        except KeyboardInterrupt:
            status = say_interrupted(console)
        say(console, write(out, title, subjects, [known[key] for key in keys if key in known]))
        return status
