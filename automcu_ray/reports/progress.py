"""Progress on screen: a line for each record, and one that counts rungs, best so far and seconds left."""

import time
from collections import Counter
from typing import Any

from ray import tune
from rich.console import Console
from rich.status import Status

from automcu_ray.problem.target import BYTES_PER_KB
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record, best
from automcu_ray.reports.console import say
from automcu_ray.reports.live import LiveReport
from automcu_ray.runtime import interruption


class Progress(tune.Callback):  # type: ignore[misc]
    """Follows a searcher's repository; prints what is new at each step of Tune's loop, and puts it into the report."""

    def __init__(self, searcher: Any, task: Task, console: Console, report: LiveReport | None = None) -> None:
        self.searcher, self.task, self.console, self.report = searcher, task, console, report
        self.started_s = time.monotonic()
        self.printed = len(searcher.repository.records)
        self.already_trained = searcher.trained
        self.busy_slot_seconds = 0.0
        self.last_step_s = self.started_s
        self.first_trial_s: float | None = None
        self._status: Status | None = None
        self.counts: Counter[str] = Counter()  # kept: a look through ten thousand records takes longer than a trial
        self.top: Record | None = None
        for record in searcher.repository.records:
            self._count(record)

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        interruption.tell_tune()
        self._look()

    def _look(self) -> None:
        """Count, and print what is new."""
        now, live = time.monotonic(), len(self.searcher.live)
        if live and self.first_trial_s is None:
            self.first_trial_s = now
        elif self.first_trial_s is not None:
            self.busy_slot_seconds += live * (now - self.last_step_s)
        self.last_step_s = now
        records = self.searcher.repository.records
        for record in records[self.printed :]:
            say(self.console, describe(record, self.task))
            self._count(record)
        if self.report is not None and len(records) > self.printed:
            self.report.refresh()
        self.printed = len(records)
        if self.console.is_terminal:
            if self._status is None:
                self._status = self.console.status("")
                self._status.start()
            self._status.update(self.summary())

    def summary(self) -> str:
        """Return one line: candidates by outcome and rung, best so far, seconds left."""
        parts = [f"{count} {stage}" for stage, count in sorted(self.counts.items())]
        budget = self.searcher.budget.trained
        done = f"trained {self.searcher.trained}" + (f"/{budget}" if budget else "")
        top = self.top
        lead = f"best {_value(top)}{_loss(top)} (#{top.candidate.number})" if top else "none trained yet"
        left, trained = "time left unknown", self.searcher.trained - self.already_trained
        if budget and trained:
            seconds = (time.monotonic() - self.started_s) / trained * (budget - self.searcher.trained)
            left = f"about {seconds:.0f} s left"
        return " · ".join([done, *parts, lead, left])

    def busy_share(self, slots: int) -> float | None:
        """Return the share of slot time, from the first trial on, in which slots were training."""
        if self.first_trial_s is None:
            return None
        return self.busy_slot_seconds / max(1e-9, slots * (self.last_step_s - self.first_trial_s))

    def close(self) -> None:
        """Print what is left, and clear the status line."""
        self._look()
        if self._status is not None:
            self._status.stop()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "console": None, "report": None, "_status": None}

    def _count(self, record: Record) -> None:
        self.counts[_stage(record)] += 1
        self.top = best([known for known in (self.top, record) if known is not None])


def describe(record: Record, task: Task) -> str:
    """Return one record as one line for the screen."""
    head = f"#{record.candidate.number:<4} {_stage(record):<20}"
    report = record.feasibility
    if record.training is None:
        return f"{head} {' '.join(record.reason.split())[:140]}"
    line = f"{head} {record.training.told}{_loss(record)}"
    if report is not None and report.ram_bytes is not None and report.flash_bytes is not None:
        line += (
            f"  RAM {report.ram_bytes / BYTES_PER_KB:.1f}/{task.ram_limit_bytes / BYTES_PER_KB:.0f} KB"
            f"  Flash {report.flash_bytes / BYTES_PER_KB:.1f}/{task.flash_limit_bytes / BYTES_PER_KB:.0f} KB"
        )
    if report is not None and report.instructions is not None:
        limit = task.instructions_limit
        line += f"  {report.instructions / 1e6:.3g}{'' if limit is None else f'/{limit / 1e6:g}'} M instr."
    return f"{line}  {record.training.seconds or 0.0:.1f} s"


def _value(record: Record) -> str:
    """Return the metric's value, by name where it is no accuracy."""
    told = record.training.told if record.training else ""
    return told.removeprefix("accuracy ")


def _loss(record: Record) -> str:
    """Return the training loss, where the search ranks by it."""
    loss = record.training and record.training.ranking_loss
    return "" if loss is None else f"  loss {loss:.3f}"


def _stage(record: Record) -> str:
    if record.status == "infeasible" and record.feasibility is not None:
        return f"refused by {record.feasibility.rung}"
    return record.status
