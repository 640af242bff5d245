"""Rules that answer in place of a language model: they read the same prompts and write the same JSON."""

import json
import re
import time
from collections.abc import Sequence
from random import Random
from typing import Any

from automcu_ray.cell import EDGES, OPERATIONS
from automcu_ray.space import Space
from automcu_ray.spec import ArchitectureSpec
from searchers.engines.base import Engine, Reply, Request
from searchers.engines.edits import Draft, apply
from searchers.engines.rules import Situation, advise, begin

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_FENCED = re.compile(r"^```json\n(.*)\n```$", re.MULTILINE)
_TRIES = 20


class OfflineEngine(Engine):
    """A rule-based stand-in, not a language model: it knows nothing but what the prompt says.

    As improver it climbs towards the limits and backs off after a refusal (`rules`); as generator it carries
    out the edits that it finds in the suggestion (`edits`). Equal requests get equal replies.
    """

    name = "offline"
    model = "offline-rules"
    is_language_model = False
    instant = True

    def __init__(self) -> None:
        """Take no options: there is nothing to configure."""

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Reply:
        start = time.perf_counter()
        rng = Random(f"{request.role}:{request.seed}")
        try:
            sections = read_sections("\n".join(message.content for message in request.messages))
            answer = _ROLES.get(request.role, _generate)(sections, rng)
        except (KeyError, TypeError, ValueError) as error:
            reason = f"offline reads only this project's prompts: {type(error).__name__}: {error}"[:300]
            return Reply(finish_reason="error", error=reason, model="offline-rules")
        return Reply(text=json.dumps(answer), model="offline-rules", seconds=time.perf_counter() - start)


def read_sections(prompt: str) -> dict[str, Any]:
    """Return the first fenced JSON of every section of a prompt, by heading; None where there is none."""
    parts = _SECTION.split(prompt)
    sections: dict[str, Any] = {}
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        fenced = _FENCED.search(body)
        sections.setdefault(heading, json.loads(fenced[1]) if fenced else None)
    return sections


def _space(sections: dict[str, Any]) -> Space:
    task = sections["Task"]
    shape = {"input_shape": task["input_shape"], "num_classes": task["num_classes"]}
    return Space.model_validate({**shape, "operators": task.get("operators", ())})


def _improve(sections: dict[str, Any], rng: Random) -> dict[str, str]:
    situation = Situation(
        space=_space(sections),
        precision=sections["Task"]["precision"],
        limits=sections["Limits"],
        reference=_spec(sections.get("Reference architecture")),
        result=sections["Reference result"],
        current=sections.get("Current result") or {},
        since_best=sections["Progress"]["trained_since_best"],
        refused=sum("infeasible" in entry["outcome"] for entry in sections["History"]),
    )
    problem, suggestion = advise(situation, rng)
    return {"problem": problem, "suggestion": suggestion}


def _propose(sections: dict[str, Any], rng: Random) -> dict[str, Any]:
    """Return several networks: each an edit of the first one shown, which is the best, or of the example."""
    shown = [entry for entries in sections.values() if isinstance(entries, list) for entry in entries]
    best = next((entry for entry in shown if "architecture" in entry), None)
    situation = Situation(
        space=_space(sections),
        precision=sections["Task"]["precision"],
        limits=sections["Limits"],
        reference=_spec(best["architecture"] if best else sections.get("Example")),
        result=best or {"status": "never tried"},
        refused=sum(entry["status"] == "infeasible" for entry in shown[-5:]),
    )
    wanted = range(sections["Candidates wanted"])
    return {"candidates": [_edited(situation, advise(situation, rng)[1], rng) for _ in wanted]}


def _generate(sections: dict[str, Any], rng: Random) -> dict[str, Any]:
    """Return the reference with the suggested edits; its own, where there is no improver, and a first network."""
    advice = sections["Suggestion"]
    if advice is None and "History" in sections:
        advice = _improve(sections, rng)
    reference = _spec(sections.get("Reference architecture"))
    situation = Situation(_space(sections), sections["Task"]["precision"], sections["Limits"], reference)
    if advice is None:
        return begin(situation, rng).spec().compact()
    return _edited(situation, advice["suggestion"], rng)


def _cell(sections: dict[str, Any], rng: Random) -> dict[str, Any]:
    """Return the best cell so far with one operation changed, or a first one at random."""
    tried = [entry for entry in sections["Tried so far"] or () if "val_accuracy_percent" in entry]
    if not tried:
        return {"operations": rng.choices(OPERATIONS, k=len(EDGES))}
    operations = list(max(tried, key=lambda entry: float(entry["val_accuracy_percent"]))["operations"])
    operations[rng.randrange(len(EDGES))] = rng.choice(OPERATIONS)
    return {"operations": operations}


_ROLES = {"improver": _improve, "proposer": _propose, "cell": _cell}


def _edited(situation: Situation, suggestion: str, rng: Random) -> dict[str, Any]:
    """Return the reference with the suggested edits, or with others where those cannot be built."""
    space, draft = situation.space, apply(situation.reference, suggestion)
    parent = space.candidate(situation.reference)
    for _ in range(_TRIES):
        found = space.candidate_or_none({"backbone": draft.layers()})
        if found is not None and found.hash != parent.hash and found.spec is not None:
            return found.spec.compact()
        mutant = space.mutate(parent, rng).spec
        draft = Draft(mutant or situation.reference)
    return situation.reference.compact()


def _spec(shown: dict[str, Any] | None) -> ArchitectureSpec:
    """Return the network in a section, or a first layer where none is shown."""
    return ArchitectureSpec.model_validate(shown or {"backbone": [{"type": "conv", "out_channels": 8}]})
