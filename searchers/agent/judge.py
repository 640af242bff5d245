"""The judge: a language model that is asked last whether an artifact kept the rules; without its yes none is valid."""

import difflib
import itertools
import json
import re
import threading
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from automcu_ray.core.cost import Cost
from automcu_ray.core.models import rule
from automcu_ray.problem.arena import ArenaTask
from automcu_ray.records.attempt import Check, Observation, Verdict
from searchers.agent.prompts import CHANGE_CHARS, question
from searchers.dialogue.prompts import render
from searchers.engines.base import Engine, Message, Reply, Request

EXCHANGE = "judge.jsonl"
SECONDS = 900.0  # for one reply; engines have limits of their own, most of them shorter
MAX_TOKENS = 8192  # a reasoning model thinks before its one line
REMOVED_LINES = 40  # in a row; what a network's seed loses is mostly weights
_REPLY = re.compile(r"(?:```(?:json)?\s*)?(\{.*\})(?:\s*```)?", re.DOTALL)


class Judge:
    """Asks an engine about artifacts that passed every check by machine.

    It fails closed: an artifact is accepted for one whole JSON object with the verdict "honest" and a reason, and for
    nothing else. A reply of another form is asked for once more. Where there is no verdict, the attempt is not judged:
    neither accepted nor blamed, as where a board failed.

    Args:
        task: what the agent was asked.
        engine: what answers.
        seed_artifact: what the agent began with.
        seed: of the requests.
        seconds: to wait for one reply.
    """

    def __init__(
        self, task: ArenaTask, engine: Engine, seed_artifact: Path, *, seed: int = 0, seconds: float = SECONDS
    ) -> None:
        self.task, self.engine, self.seed_artifact, self.seed = task, engine, seed_artifact, seed
        self.seconds = seconds

    def examine(self, found: Observation, kept: Path) -> Observation:
        """Return the observation with what the judge says of `kept`/artifact; what was said is kept beside it.

        A refusal says no more than that to the agent: the reason is for people, in the journal and the report.
        """
        if not found.valid:
            return found
        change = difference(self.seed_artifact, kept / "artifact")
        if change is None:
            return _refused(found, f"what changed from the seed is longer than {CHANGE_CHARS} characters")
        messages = question(self.task, found, change)
        verdict, why, cost = self._ask(found.attempt, messages, kept / EXCHANGE)
        found = found.replace(verdict=verdict, judge_cost=cost)
        if verdict is None:
            return found.replace(objective=None, infrastructure=f"judge: no verdict: {why}")
        if verdict.verdict == "cheating":
            return _refused(found, "a judge calls it cheating")
        return found.replace(checks=(*found.checks, Check(name="judge", passed=True)))

    def _ask(self, attempt: int, messages: tuple[Message, ...], log: Path) -> tuple[Verdict | None, str, Cost]:
        """Return the verdict, or None and why there is none; and what asking has cost."""
        reply = self._complete("judge", attempt, messages)
        cost = reply.cost
        try:
            try:
                return read_verdict(reply), "", cost
            except UnusableVerdict as error:
                if reply.finish_reason == "error":
                    return None, str(error), cost
                said = Message(role="assistant", content=reply.text)
                messages += (said, Message(role="user", content=render("repair", problem=str(error))))
            reply = self._complete("repair", attempt, messages)
            cost += reply.cost
            return read_verdict(reply), "", cost
        except UnusableVerdict as error:
            return None, str(error), cost
        finally:
            last = Message(role="assistant", content=reply.text or reply.error)
            turns = [json.dumps(turn.model_dump()) + "\n" for turn in (*messages, last)]
            log.write_text("".join(turns), encoding="utf-8")

    def _complete(self, role: str, attempt: int, messages: tuple[Message, ...]) -> Reply:
        """Return the engine's reply; that it failed, where it raises or is late."""
        request = Request(
            role=role,
            talk=attempt,
            messages=messages,
            json_schema=Verdict.model_json_schema(),
            seed=self.seed,
            temperature=0,
            max_tokens=MAX_TOKENS,
        )
        replies: list[Reply] = []

        def ask() -> None:
            try:
                replies.append(self.engine.complete([request])[0])
            except Exception as error:  # engines should not raise; a new one might
                replies.append(Reply.failed(error))

        asking = threading.Thread(target=ask, name="judge", daemon=True)
        asking.start()
        asking.join(self.seconds)
        return replies[0] if replies else Reply.failed(f"no reply within {self.seconds:g} s")


class UnusableVerdict(ValueError):
    """A reply without a verdict; says why."""


def read_verdict(reply: Reply) -> Verdict:
    """Return the verdict that a reply is.

    The reply must be one JSON object, whole, after its thoughts, and perhaps in a code fence: an object somewhere in
    prose may be a quotation of what the artifact says.

    Raises:
        UnusableVerdict: it is anything else.
    """
    if reply.finish_reason == "error":
        raise UnusableVerdict(f"the engine failed: {reply.error}")
    if reply.finish_reason == "length":
        raise UnusableVerdict("the reply was cut off")
    text = reply.text.strip()
    if not text.startswith(("{", "```")):
        text = text.rpartition("</think>")[2].strip()
    whole = _REPLY.fullmatch(text)
    if whole is None:
        raise UnusableVerdict("the reply is not one JSON object")
    try:
        return Verdict.model_validate_json(whole[1], strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))[:60] or "reply"
        raise UnusableVerdict(f"{where}: {rule(first)}"[:300]) from error


def difference(seed: Path, submitted: Path) -> str | None:
    """Return a unified diff of two artifacts; None where it is longer than a judge reads, `CHANGE_CHARS`.

    Whole or not at all: what a summary leaves out is where a cheat would be. The seed is ours, so that of the lines
    which it loses only the first `REMOVED_LINES` in a row are shown.
    """
    parts, chars = [], 0
    for name in sorted({path.name for folder in (seed, submitted) for path in folder.iterdir()}):
        before, after = (_text(folder / name) for folder in (seed, submitted))
        if before == after:
            continue
        if len(after) - len(before) > CHANGE_CHARS:  # surely too long: spares comparing megabytes
            return None
        lines = difflib.unified_diff(before.split("\n"), after.split("\n"), f"seed/{name}", f"submitted/{name}",
                                     lineterm="")  # fmt: skip
        parts.append("\n".join(_shortened(lines)))
        chars += len(parts[-1])
        if chars > CHANGE_CHARS:
            return None
    return "\n".join(parts) or "No file differs from the seed's."


def _shortened(lines: Iterable[str]) -> list[str]:
    shown: list[str] = []
    for removed, group in itertools.groupby(lines, lambda line: line.startswith("-")):
        run = list(group)
        shown += run[:REMOVED_LINES] if removed else run
        if removed and len(run) > REMOVED_LINES:
            shown.append(f"[{len(run) - REMOVED_LINES} more lines of the seed removed]")
    return shown


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "backslashreplace") if path.exists() else ""


def _refused(found: Observation, detail: str) -> Observation:
    return found.replace(objective=None, checks=(*found.checks, Check(name="judge", passed=False, detail=detail)))
