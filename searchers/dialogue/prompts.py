"""Fills the prompt templates: what each role of a conversation is told."""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from automcu_ray.core.feasibility import Violation
from automcu_ray.networks.candidate import Candidate, GeneratedCode
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.target import BYTES_PER_KB
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from automcu_ray.sizing.footprint import BIAS_BYTES, BYTES, footprint
from automcu_ray.sizing.instruction_model import model_for
from searchers.dialogue import rows
from searchers.dialogue.asked import goal, head, kind, thing
from searchers.dialogue.feedback_memory import OUTCOME_CHARS, Memory
from searchers.dialogue.notations import CellNotation
from searchers.dialogue.record_selection import Shown, figures, summary
from searchers.dialogue.reply_schemas import Advice, vocabulary
from searchers.engines.base import Message, Prompt, Subject

_REPAIR_CHARS = 4000
_SAID = {"diagnosis", "network", "reply"}

CandidateFormat = Literal["spec", "code"]


class Told(NamedTuple):
    """What is known of generated code, and its rows: one a network, the best first, those under way last."""

    known: rows.Known
    shown: list[str]


class Prompter(NamedTuple):
    """Writes the prompts of one run; what an ablation leaves out is left out here.

    The system message of a role is the same in all of a run, so that a prefix cache can keep it.

    Attributes:
        task: what is searched for.
        form: whether candidates are specs or PyTorch code.
        reference: False shows no architecture to start from.
        shared: True puts one growing transcript of all records in full before every question.
    """

    task: Task
    form: CandidateFormat = "spec"
    reference: bool = True
    shared: bool = False

    def generator(
        self, memory: Memory, advice: Advice | None, *, extended: bool = False, told: Told | None = None
    ) -> Prompt:
        """Return the generator's prompt: the reference and what the improver said about it.

        Without advice after the first record there is no improver: the history stands in its place. `extended` adds
        the next best networks and the last attempts, for models with a long context (paper 002, section 3.2). `told`
        puts rows of what was tried in place of the history.
        """
        view = {
            "advice": advice,
            "alone": advice is None and memory.current is not None,
            "others": memory.top[1:] if extended else (),
            "tried": memory.recent if extended else (),
            "told": told,
        }
        return self._prompt("generator", memory, advice and advice.network, **view)

    def improver(self, memory: Memory, told: Told | None = None) -> Prompt:
        """Return the improver's prompt: task and limits, reference, current network, progress, last triples.

        `told` puts rows of what was tried beside the triples, which say then what was changed and what that did.
        """
        return self._prompt("improver", memory, None, told=told)

    def proposer(self, shown: Shown, records: Sequence[Record], size: int) -> Prompt:
        """Return the prompt of paper 000's proposal agent: what it is shown of the records, and how many are wanted."""
        told = tuple(record for several in shown.values() for record in several)
        first = next((record for record in told if record.candidate.spec), None)
        example = starting_candidate(self.task, self.form)
        reference = first.candidate.spec if first else None if told else example.spec
        subject = Subject(task=self.task, reference=reference, result=first, records=told, size=size)
        summaries = {title: [summary(record) for record in several] for title, several in shown.items()}
        return Prompt(self._messages("proposer", records, shown=summaries, example=example, size=size), subject)

    def _prompt(self, role: str, memory: Memory, suggested: Any, **view: Any) -> Prompt:
        reference, record = memory.reference
        if not self.reference:
            reference, record = None, None
        elif reference is None:
            reference = starting_candidate(self.task, self.form)
        subject = Subject(
            task=self.task,
            reference=reference.spec if reference else None,
            result=record,
            current=memory.current,
            since_best=memory.since_best,
            records=memory.recent,
            suggested=suggested,
        )
        view |= {"memory": memory, "reference": reference, "record": record}
        return Prompt(self._messages(role, memory.recent, **view), subject)

    def _messages(self, role: str, records: Sequence[Record], **view: Any) -> tuple[Message, ...]:
        about = {"task": self.task, "form": self.form}
        system = Message(role="system", content=render(f"{role}_system", **about))
        said = render(role, **about, **view)
        if self.shared and records:
            *earlier, last = transcript(records)
            return system, *earlier, Message(role="user", content=f"{last.content}\n\n{said}")  # roles must alternate
        return system, Message(role="user", content=said)


def cell(task: Task, records: Sequence[Record], most: int, notation: CellNotation) -> Prompt:
    """Return the prompt of the `genius` baseline: at most so many of the cells so far, and what became of them.

    Half of them are the best, the others the latest, oldest first; repeats are counted, so that no run makes it grow.
    """
    own = [record for record in records if record.status != "duplicate"]
    best = sorted((r for r in own if r.status == "ok"), key=lambda r: -r.score)[: most - most // 2]
    others = [record for record in own if record not in best]
    kept = {record.candidate.number for record in (*best, *others[max(0, len(others) - most + len(best)) :])}
    shown = [record for record in own if record.candidate.number in kept]
    tried = [
        ({"cell": notation.write(record.candidate)} if record.candidate.cell else {})
        | (
            {"val_accuracy_percent": round(100 * record.accuracy, 2)}
            if record.status == "ok"
            else {"refused": record.reason[:OUTCOME_CHARS]}
        )
        for record in shown
    ]
    repeats = len(records) - len(own)
    system = Message(role="system", content=render("cell_system", task=task, letters=notation.letters))
    question = Message(role="user", content=render("cell", tried=tried, repeats=repeats, untold=len(own) - len(shown)))
    return Prompt((system, question), Subject(task=task, records=tuple(records)))


def repair(prompt: Prompt, reply: str, problem: str) -> Prompt:
    """Return a conversation continued by the unusable reply and the validator's message about it."""
    return _continued(prompt, reply, render("repair", problem=problem))


def replace(prompt: Prompt, reply: str, problems: Sequence[str], kept: int) -> Prompt:
    """Return a conversation continued by a reply of which some candidates cannot be used."""
    return _continued(prompt, reply, render("replace", problems=list(problems), kept=kept))


def transcript(records: Sequence[Record]) -> tuple[Message, ...]:
    """Return all records as a conversation: what agents that share one context see (paper 000, section III-E)."""
    messages = [Message(role="user", content="All candidates so far, and what became of them.")]
    for record in records:
        mine = record.candidate.model_dump(mode="json", include=_SAID, exclude_defaults=True)
        loss_decides = record.training is not None and record.training.ranking_loss is not None
        left_out: dict[str, Any] = {"candidate": True, "training": {"train_loss": not loss_decides}}
        outcome = record.model_dump(mode="json", exclude=left_out, exclude_defaults=True)
        messages.append(Message(role="assistant", content=json.dumps(mine)))
        messages.append(Message(role="user", content=json.dumps(outcome)))
    return tuple(messages)


def starting_candidate(task: Task, form: CandidateFormat = "spec") -> Candidate:
    """Return a small chain that halves the image until it is at most 4 pixels wide: it shows the form."""
    channels, size = 8, max(task.input_shape[1:])
    stages = [(task.input_shape[0], channels)]
    while size > 4:
        stages.append((channels, min(2 * channels, 48)))
        channels, size = stages[-1][1], (size + 1) // 2
    if form == "code":
        return Candidate(network=GeneratedCode(code=render("first_net", task=task, stages=stages)))
    layers: list[dict[str, Any]] = []
    for at, (_, after) in enumerate(stages):
        halves = at > 0 and "downsample" in task.space.types
        layers += [{"type": "max_pool"}] if at > 0 and not halves else []
        layers.append({"type": "downsample" if halves else "conv", "out_channels": after})
    return Candidate(network=ArchitectureSpec.model_validate({"backbone": layers}))


def _continued(prompt: Prompt, reply: str, question: str) -> Prompt:
    said = Message(role="assistant", content=reply[:_REPAIR_CHARS] or "(empty)")
    return Prompt((*prompt.messages, said, Message(role="user", content=question)), prompt.subject)


def _limits(task: Task) -> dict[str, Any]:
    """Return the limits of RAM and Flash, and what an accelerator has room for where the target has one."""
    ram, flash = task.ram_limit_bytes, task.flash_limit_bytes
    kb = {"ram_kb": round(ram / BYTES_PER_KB, 2), "flash_kb": round(flash / BYTES_PER_KB, 2)}
    limits: dict[str, Any] = {"ram_bytes": ram, "flash_bytes": flash, **kb}
    if task.instructions_limit is not None:
        limits["instructions_per_inference"] = task.instructions_limit
    found = task.target.accelerator
    if found is None:
        return limits
    return {
        **limits,
        "weight_memory_bytes": found.weight_memory.total_bytes,
        "bias_memory_bytes": found.bias_memory.total_bytes,
        "map_of_four_channels_bytes": found.data_memory.part_bytes,
        "hardware_layers": found.max_layers.value,
    }


def _result(record: Record | None) -> dict[str, Any]:
    """Return a record's outcome as JSON: accuracy, sizes with parts, which rung said no and by how much."""
    if record is None:
        return {"status": "never tried"}
    row: dict[str, Any] = {"status": record.status, "reason": record.reason[:OUTCOME_CHARS] or None}
    if record.training is not None:
        row |= figures(record.training)
    if (report := record.feasibility) is not None:
        violations = [
            {
                "rung": str(violation.rung),
                "resource": violation.resource,
                "where": violation.where[:60],
            }
            | _over(violation)
            | ({"fix": str(violation.fix)} if violation.fix else {})
            for violation in report.violations[:3]
        ]
        row |= {
            "ram_bytes": report.least_ram_bytes,
            "flash_bytes": report.flash_bytes,
            "instructions": report.instructions,
            "estimate": report.estimate and report.estimate.model_dump(exclude_none=True),
            "ram_parts": report.ram and report.ram.least.model_dump(exclude={"total_bytes", "spare_bytes"}),
            "flash_parts": report.flash and report.flash.model_dump(exclude={"total_bytes"}),
            "violations": violations or None,
        }
    return {key: value for key, value in row.items() if value is not None}


def _over(violation: Violation) -> dict[str, int | None]:
    """Return what was found and what is too much, in the unit of the limit."""
    unit = "bytes" if violation.found_instructions is None else "instructions"
    return {f"found_{unit}": violation.found, f"over_{unit}": violation.over}


def _costs(spec: ArchitectureSpec, task: Task) -> list[str]:
    """Return one line a layer, output shape and weights, then where RAM and Flash go; lower bounds."""
    graph, size = task.space.graph(spec), BYTES[task.precision]
    counts = task.precision == "int8" and (task.instructions_limit is not None or task.objective == "instructions")
    spent = model_for(task).by_operator(graph) if counts else [0.0] * len(graph.ops)
    lines = []
    for number, layer in enumerate(spec.backbone, start=1):
        mine = [op for op in graph.ops if op.name.startswith(f"layer_{number}.")]
        weights = sum(op.weights * size + op.biases * BIAS_BYTES for op in mine)
        shape = "x".join(str(extent) for extent in mine[-1].shape)
        here = sum(cost for op, cost in zip(graph.ops, spent, strict=True) if op in mine)
        speed = f", about {round(here, -2):.0f} instructions" if counts else ""
        lines.append(f"layer_{number} {layer.type}: output {shape}, weights {weights} bytes{speed}")
    found = footprint(graph, task.precision)
    if task.target.accelerator is None:  # an accelerator has memory of its own for feature maps
        lines.append(f"RAM at least {found.ram_lower_bound_bytes} bytes; the peak is at {found.widest_moment}")
    flash = f"Flash at least {found.flash_lower_bound_bytes} bytes without code"
    return [*lines, f"{flash}; most of it at {found.largest_weights}"]


def _about(task: Task) -> dict[str, Any]:
    shape: dict[str, Any] = {"dataset": task.dataset, "input_shape": task.input_shape}
    if task.learning.kind == "classification":
        shape["num_classes"] = task.num_classes
    else:
        shape["outputs"] = task.num_classes
    if task.learning.metric != "accuracy":
        shape["metric"] = task.learning.metric
    narrowed = [operator.model_dump(exclude_none=True) for operator in task.space.operators]
    return {**shape, "precision": task.precision} | ({"operators": narrowed} if narrowed else {})


@lru_cache
def _templates() -> Environment:
    folder = Path(__file__).parents[1] / "prompts"
    environment = Environment(
        loader=FileSystemLoader(folder), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["json"] = json.dumps  # on one line: no text inside can end the fence it stands in
    environment.globals.update(about=_about, limits=_limits, result=_result, costs=_costs)
    environment.globals.update(goal=goal, kind=kind, thing=thing, head=head, heading=rows.head, tally=rows.tally)
    environment.globals.update(limiting=rows.limiting, lesson=rows.lesson, plans=rows.plans)
    environment.globals.update(triples=lambda memory: [item.model_dump() for item in memory.history])
    environment.globals.update(vocabulary=lambda task: list(vocabulary(task.space)))
    return environment


def render(name: str, **view: Any) -> str:
    """Return a template of searchers/prompts, filled in."""
    text = _templates().get_template(f"{name}.j2").render(**view)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
