"""Fills the prompt templates; vocabulary and JSON schemas come from the models that validate the replies."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import BaseModel, ConfigDict, Field, field_validator

from automcu_ray.feasibility import FeasibilityReport
from automcu_ray.footprint import BIAS_BYTES, BYTES, footprint
from automcu_ray.record import Diagnosis, Record
from automcu_ray.spec import ArchitectureSpec, Layer
from automcu_ray.target import BYTES_PER_KB
from automcu_ray.task import Task
from searchers.engines.base import Message
from searchers.memory import OUTCOME_CHARS, Memory

DERIVED = ("in_channels", "padding", "num_classes")  # worked out from the rest: one thing less to get wrong
ADVICE_CHARS = 1200
_REPAIR_CHARS = 4000


class Advice(BaseModel):
    """What the improver answers."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    problem: str = Field(min_length=1)
    suggestion: str = Field(min_length=1)

    @field_validator("problem", "suggestion", mode="before")
    @classmethod
    def _one_text(cls, value: Any) -> Any:
        """Accept a list of sentences, as small models write it, and cut what is too long to pass on."""
        text = " ".join(str(part) for part in value) if isinstance(value, list) else value
        return text.strip()[:ADVICE_CHARS] if isinstance(text, str) else text


def first_messages(task: Task) -> tuple[Message, ...]:
    """Return the generator's prompt for a run that knows nothing yet."""
    return _messages("generator", task, Memory(), None)


def generator_messages(task: Task, memory: Memory, advice: Advice) -> tuple[Message, ...]:
    """Return the generator's prompt: the reference architecture and what the improver said about it."""
    return _messages("generator", task, memory, advice)


def improver_messages(task: Task, memory: Memory) -> tuple[Message, ...]:
    """Return the improver's prompt: reference, current architecture, history of diagnostic triples."""
    return _messages("improver", task, memory, None)


def repair_messages(messages: tuple[Message, ...], reply: str, problem: str) -> tuple[Message, ...]:
    """Return a conversation continued by the unusable reply and the validator's message about it."""
    said = Message(role="assistant", content=reply[:_REPAIR_CHARS] or "(empty)")
    return (*messages, said, Message(role="user", content=_render("repair", problem=problem)))


def reference(task: Task, memory: Memory) -> tuple[ArchitectureSpec, Record | None]:
    """Return the architecture to work from: the best, else the current one, else a small one."""
    for record in (memory.best, memory.current):
        if record is not None and record.candidate.spec is not None:
            return record.candidate.spec, record
    return starting_spec(task), None


def starting_spec(task: Task) -> ArchitectureSpec:
    """Return a small chain that halves the image until it is at most 4 pixels wide."""
    channels, size = 8, max(task.input_shape[1:])
    backbone: list[dict[str, Any]] = [{"type": "conv", "out_channels": channels}]
    while size > 4:
        channels, size = min(2 * channels, 48), (size + 1) // 2
        backbone.append({"type": "downsample", "out_channels": channels})
    return ArchitectureSpec.model_validate({"backbone": backbone})


@lru_cache
def spec_schema() -> dict[str, Any]:
    """Return the JSON schema of a spec, narrowed to what strict modes accept.

    Lists of layers only, every field required, no field that is derived, anyOf in place of oneOf.
    """
    schema: dict[str, Any] = _narrow(ArchitectureSpec.model_json_schema())
    return schema


@lru_cache
def advice_schema() -> dict[str, Any]:
    """Return the JSON schema of the improver's answer."""
    schema: dict[str, Any] = _narrow(Advice.model_json_schema())
    return schema


def _narrow(node: Any) -> Any:
    if isinstance(node, list):
        return [_narrow(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "anyOf" in node and {"type": "null"} in node["anyOf"]:
        return _narrow(next(branch for branch in node["anyOf"] if branch != {"type": "null"}))
    if "const" in node:
        return {"type": "string", "enum": [node["const"]]}
    if "$ref" in node:
        return {"$ref": node["$ref"]}
    dropped = ("title", "description", "default", "discriminator", "minLength")
    kept = {("anyOf" if key == "oneOf" else key): value for key, value in node.items() if key not in dropped}
    if node.get("type") != "object":
        return {key: _narrow(value) for key, value in kept.items()}
    fields = {name: _narrow(value) for name, value in node["properties"].items() if name not in DERIVED}
    definitions = {"$defs": {k: _narrow(v) for k, v in node["$defs"].items()}} if "$defs" in node else {}
    closed = {"properties": fields, "required": list(fields), "additionalProperties": False}
    return {"type": "object", **closed, **definitions}


def vocabulary() -> Iterator[str]:
    """Yield one line a block type: what it is, and its fields with their values and defaults."""
    for model in get_args(get_args(Layer)[0]):
        properties = model.model_json_schema()["properties"]
        fields = [_field(name, rule) for name, rule in properties.items() if name not in ("type", *DERIVED)]
        what = (model.__doc__ or "").splitlines()[0]
        yield f"{properties['type']['const']}: {what} Fields: {'; '.join(fields)}"


def _field(name: str, rule: dict[str, Any]) -> str:
    rule = {**next(iter(rule.get("anyOf", [{}]))), **rule}
    if "enum" in rule:
        values = "one of " + ", ".join(json.dumps(value) for value in rule["enum"])
    elif rule["type"] == "boolean":
        values = "true or false"
    else:
        low = f"above {rule['exclusiveMinimum']}" if "exclusiveMinimum" in rule else f"from {rule['minimum']}"
        values = f"{rule['type']} {low} to {rule['maximum']}"
    default = rule.get("default")
    return f"{name} ({values})" if default is None else f"{name} ({values}, default {json.dumps(default)})"


def _messages(role: str, task: Task, memory: Memory, advice: Advice | None) -> tuple[Message, ...]:
    """Render a prompt: the system message is the same in all of a run, so that a prefix cache can keep it."""
    spec, record = reference(task, memory)
    view = {"task": task, "memory": memory, "advice": advice, "current": memory.current}
    said = _render(role, **view, spec=spec, record=record)
    system = _render(f"{role}_system", task=task, vocabulary=list(vocabulary()))
    return Message(role="system", content=system), Message(role="user", content=said)


def _limits(task: Task) -> dict[str, Any]:
    ram, flash = task.ram_limit_bytes, task.flash_limit_bytes
    kb = {"ram_kb": round(ram / BYTES_PER_KB, 2), "flash_kb": round(flash / BYTES_PER_KB, 2)}
    return {"ram_bytes": ram, "flash_bytes": flash, **kb}


def _result(record: Record | None) -> dict[str, Any]:
    """Return a record's outcome as JSON: accuracy, sizes with parts, which rung said no and by how much."""
    if record is None:
        return {"status": "never tried"}
    report = record.feasibility
    row: dict[str, Any] = {"status": record.status, "reason": record.reason[:OUTCOME_CHARS] or None}
    if record.training is not None:
        row["accuracy"] = round(record.training.val_accuracy, 4)
    return {key: value for key, value in {**row, **_sizes(report)}.items() if value is not None}


def _sizes(report: FeasibilityReport | None) -> dict[str, Any]:
    if report is None:
        return {}
    violations = [
        {
            "rung": str(violation.rung),
            "resource": violation.resource,
            "where": violation.where[:60],
            "found_bytes": violation.found_bytes,
            "over_bytes": violation.over_bytes,
        }
        for violation in report.violations[:3]
    ]
    return {
        "ram_bytes": report.ram_bytes,
        "flash_bytes": report.flash_bytes,
        "ram_parts": report.ram and report.ram.model_dump(exclude={"total_bytes"}),
        "flash_parts": report.flash and report.flash.model_dump(exclude={"total_bytes"}),
        "violations": violations or None,
    }


def _costs(spec: ArchitectureSpec, task: Task) -> list[str]:
    """Return one line a layer, output shape and weights, then where RAM and Flash go; lower bounds."""
    graph, size = task.space.graph(spec), BYTES[task.precision]
    lines = []
    for number, layer in enumerate(spec.backbone, start=1):
        mine = [op for op in graph.ops if op.name.startswith(f"layer_{number}.")]
        weights = sum(op.weights * size + op.biases * BIAS_BYTES for op in mine)
        shape = "x".join(str(extent) for extent in mine[-1].shape)
        lines.append(f"layer_{number} {layer.type}: output {shape}, weights {weights} bytes")
    found = footprint(graph, task.precision)
    lines.append(f"RAM at least {found.ram_lower_bound_bytes} bytes; the peak is at {found.widest_moment}")
    flash = f"Flash at least {found.flash_lower_bound_bytes} bytes without code"
    return [*lines, f"{flash}; most of it at {found.largest_weights}"]


def _about(task: Task) -> dict[str, Any]:
    shape = {"dataset": task.dataset, "input_shape": task.input_shape, "num_classes": task.num_classes}
    return {**shape, "precision": task.precision}


def _history(triples: tuple[Diagnosis, ...]) -> list[dict[str, str]]:
    return [item.model_dump() for item in triples]


@lru_cache
def _templates() -> Environment:
    folder = Path(__file__).with_name("prompts")
    environment = Environment(
        loader=FileSystemLoader(folder), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["json"] = json.dumps  # on one line: no text inside can end the fence it stands in
    environment.globals.update(about=_about, limits=_limits, result=_result, costs=_costs, history=_history)
    return environment


def _render(name: str, **view: Any) -> str:
    text = _templates().get_template(f"{name}.j2").render(**view)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
