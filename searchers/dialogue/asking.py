"""Asking for several candidates at once: what cannot be used is asked for once more, and the rest is kept."""

from collections.abc import Callable
from typing import Any

from automcu_ray.networks.candidate import Candidate
from searchers.dialogue import prompts
from searchers.dialogue.dialogue import Dialogue
from searchers.dialogue.reply_parsing import UnusableReply
from searchers.engines.base import Prompt, Reply

REPAIR_TURN = 3
Read = Callable[[Reply, int], tuple[list[Candidate], list[Candidate]]]  # at most so many: sound ones, and the others


def ask_for_several(
    dialogue: Dialogue,
    role: str,
    turn: int,
    prompt: Prompt,
    size: int,
    schema: Callable[[int], dict[str, Any] | None],
    read: Read,
    *,
    patch: bool = True,
) -> list[Candidate]:
    """Return the candidates of one question for `size` of them, and of one repair; unusable ones say why they are.

    Without `patch` a repair is asked for only where nothing can be used: the next question comes soon enough.

    Raises:
        UnusableReply: neither reply could be read at all.
    """
    before = dialogue.asked
    good, bad = dialogue.ask(role, turn, prompt, schema(size), lambda reply: read(reply, size))
    if not bad or dialogue.asked > before + 1 or (good and not patch):
        return [*good, *bad]
    problems = [candidate.violations[0].message for candidate in bad]
    again = prompts.replace(prompt, dialogue.last.text, problems, kept=len(good))
    reply = dialogue.complete("repair", REPAIR_TURN, again, schema(len(bad)))
    try:
        replaced, still_bad = read(reply, len(bad))
    except UnusableReply:
        return [*good, *bad]
    return [*good, *replaced, *still_bad]
