"""One attempt: a conversation in which the engine calls tools until it submits, or has no calls left."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from automcu_ray.core.cost import Cost
from automcu_ray.problem.arena import ArenaTask, Setting
from automcu_ray.records.attempt import Attempt, Observation
from searchers.agent.actions import Action, UnusableAction, read_action, schema
from searchers.agent.prompts import opening
from searchers.agent.workspace import ToolError, Workspace
from searchers.engines.base import Engine, Message, Reply, Request

CONVERSATION = "conversation.jsonl"
MAX_TOKENS = 16_384
_SEEDS_PER_RUN, _SEEDS_PER_ATTEMPT = 1_000_000, 1_000


class Agent:
    """Plays attempts with an engine in a workspace; each begins anew, with what `opening` tells it.

    Args:
        task: what is asked.
        setting: what it is told beside.
        engine: what answers.
        workspace: where it works.
        seed: of the run; each request has a seed of its own.
        judged: a judge will read what changed, which the agent is told.
    """

    def __init__(
        self,
        task: ArenaTask,
        setting: Setting,
        engine: Engine,
        workspace: Workspace,
        *,
        seed: int = 0,
        judged: bool = False,
    ) -> None:
        self.task, self.setting, self.engine, self.workspace, self.seed = task, setting, engine, workspace, seed
        self.judged = judged

    def play(self, number: int, history: Sequence[Observation], kept: Path) -> Attempt:
        """Return what was done in an attempt; the artifact and the conversation are then in `kept`."""
        shutil.rmtree(kept, ignore_errors=True)  # of an attempt that was interrupted
        kept.mkdir(parents=True)
        refused_before = len(self.workspace.refused)
        messages = list(self._opening(number, history))
        calls, unusable, cost, ended = 0, 0, Cost(), "out of calls"
        with (kept / CONVERSATION).open("w", encoding="utf-8") as log:
            for message in messages:
                _log(log, message)
            while calls < self.task.tool_calls:
                reply = self._ask(number, calls, messages)
                cost += reply.cost
                calls += 1
                if reply.finish_reason == "error":
                    ended = "engine failed"
                    _log(log, Message(role="user", content=f"the engine failed: {reply.error}"))
                    break
                try:
                    action = read_action(reply.text)
                    done = action.tool == "submit"
                    said = "submitted" if done else self.use(action)
                except UnusableAction as error:
                    unusable, done, said = unusable + 1, False, f"no tool call: {error}"
                except ToolError as error:
                    done, said = False, f"refused: {error}"
                turns = (
                    Message(role="assistant", content=reply.text),
                    Message(role="user", content=f"{said}\n[{self.task.tool_calls - calls} tool calls left]"),
                )
                for turn in turns:
                    _log(log, turn)
                messages += turns
                if done:
                    ended = "submitted"
                    break
        shutil.copytree(self.workspace.artifact, kept / "artifact")
        refused = tuple(self.workspace.refused[refused_before:])
        return Attempt.model_validate(
            {"number": number, "tool_calls": calls, "refused": refused, "unusable_replies": unusable, "ended": ended,
             "notes": self.workspace.notes, "cost": cost}
        )  # fmt: skip

    def use(self, action: Action) -> str:
        """Return what a tool says.

        Raises:
            ToolError: it refuses.
        """
        try:
            match action.tool:
                case "read":
                    return self.workspace.read(action.path, action.offset)
                case "write":
                    return self.workspace.write(action.path, action.content)
                case "list":
                    return self.workspace.files(action.path)
                case _:
                    return self.workspace.run(action.command)
        except OSError as error:  # a folder in place of a file, a name that no disk takes
            raise ToolError(f"{type(error).__name__}: {error.strerror}") from error

    def _opening(self, number: int, history: Sequence[Observation]) -> tuple[Message, ...]:
        inventory, notes = self.workspace.files(), self.workspace.notes
        return opening(self.task, self.setting, number, history, notes=notes, inventory=inventory, judged=self.judged)

    def _ask(self, number: int, call: int, messages: Sequence[Message]) -> Reply:
        request = Request(
            role="agent",
            talk=number,
            messages=tuple(messages),
            json_schema=schema(),
            seed=self.seed * _SEEDS_PER_RUN + number * _SEEDS_PER_ATTEMPT + call,
            max_tokens=MAX_TOKENS,
        )
        try:
            return self.engine.complete([request])[0]
        except Exception as error:  # engines should not raise; a new one might
            return Reply.failed(error)


def _log(file, message: Message) -> None:  # type: ignore[no-untyped-def]
    file.write(json.dumps(message.model_dump()) + "\n")
    file.flush()
