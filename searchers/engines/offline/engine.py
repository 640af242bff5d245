"""Rules that answer in place of a language model: they see the same data, and write the same JSON."""

import json
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from automcu_ray.networks.cell import EDGES, OPERATIONS
from searchers.engines.base import Engine, Reply, Request, Subject
from searchers.engines.offline.rules import Situation, advise, begin

_TRIES = 20
_LAST = 5  # records that tell a proposer whether networks are being refused


class OfflineEngine(Engine):
    """A rule-based stand-in, not a language model: it reads no prompt, but the data that the prompt was written from.

    As improver it suggests growth up to the limits and less after a refusal (`rules`), and adds the network that its
    suggestion leads to; as generator it answers with that network. Equal requests get equal replies.
    """

    name = "offline"
    model = "offline-rules"
    is_language_model = False
    calls_tools = False
    free = True
    instant = True

    def __init__(self) -> None:
        """Take no options: there is nothing to configure."""

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Reply:
        start = time.perf_counter()
        if request.subject is None:
            reason = "offline reads no prompts: it wants a request with a subject, found none"
            return Reply.failed(reason, model=self.model)
        rng = Random(f"{request.role}:{request.seed}")
        answer = _ROLES.get(request.role, _generate)(request.subject, rng)
        return Reply(text=json.dumps(answer), model=self.model, seconds=time.perf_counter() - start)


def _improve(subject: Subject, rng: Random) -> dict[str, Any]:
    problem, draft = advise(Situation(subject, subject.records), rng)
    return {"problem": problem, "suggestion": draft.sentences(), "network": {"backbone": draft.layers()}}


def _propose(subject: Subject, rng: Random) -> dict[str, Any]:
    """Return several networks: each an edit of the first one shown, which is the best, or of the example."""
    situation = Situation(subject, subject.records[-_LAST:])
    drafts = (advise(situation, rng)[1] for _ in range(subject.size))
    return {"candidates": [_sound(situation, {"backbone": draft.layers()}, rng) for draft in drafts]}


def _generate(subject: Subject, rng: Random) -> dict[str, Any]:
    """Return the suggested network; one of its own, where there is no improver, and a first network."""
    situation = Situation(subject, subject.records)
    if subject.suggested is None and subject.current is None:
        return begin(situation, rng).spec().compact()
    return _sound(situation, subject.suggested or _improve(subject, rng)["network"], rng)


def _cell(subject: Subject, rng: Random) -> dict[str, Any]:
    """Return the best cell so far, by whole hundredths of a percent, with one operation changed, or a first one."""
    tried = [record for record in subject.records if record.status == "ok" and record.candidate.cell is not None]
    if not tried:
        return {"operations": rng.choices(OPERATIONS, k=len(EDGES))}
    best = max(tried, key=lambda record: round(100 * record.accuracy, 2)).candidate.cell
    assert best is not None
    operations = list(best.operations)
    operations[rng.randrange(len(EDGES))] = rng.choice(OPERATIONS)
    return {"operations": operations}


_ROLES: dict[str, Callable[[Subject, Random], dict[str, Any]]] = {
    "improver": _improve,
    "proposer": _propose,
    "cell": _cell,
}


def _sound(situation: Situation, network: Any, rng: Random) -> dict[str, Any]:
    """Return the network, or a mutant of the reference where it cannot be built or is the reference itself."""
    space, reference = situation.space, situation.reference
    parent = space.candidate(reference)
    for _ in range(_TRIES):
        found = space.candidate_or_none(network)
        if found is not None and found.hash != parent.hash and found.spec is not None:
            return found.spec.compact()
        network = space.mutate(parent, rng).spec or reference
    return reference.compact()
