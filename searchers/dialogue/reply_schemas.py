"""What a reply must look like: JSON schemas and vocabulary, derived from the models that validate the replies."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.json_schema import SkipJsonSchema

from automcu_ray.networks.operator_limits import Operator
from automcu_ray.networks.search_space import BOTTLENECK, Space
from automcu_ray.networks.spec import LAYERS, ArchitectureSpec

DERIVED = ("in_channels", "padding", "num_classes")  # worked out from the rest: one thing less to get wrong
ADVICE_CHARS = 1200
PLAN_CHARS = 300
SHORT_ADVICE_CHARS = 150, 250  # problem and suggestion of the compact form, as adviser_system.j2 asks for them


class Advice(BaseModel):
    """What the improver answers; rules add the JSON of the `network` that the suggestion comes to, for themselves."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    problem: str = Field(min_length=1)
    suggestion: str = Field(min_length=1)
    network: SkipJsonSchema[Any] = Field(default=None, exclude=True)

    @field_validator("problem", "suggestion", mode="before")
    @classmethod
    def _one_text(cls, value: Any) -> Any:
        """Accept a list of sentences, as small models write it, and cut what is too long to pass on."""
        text = " ".join(str(part) for part in value) if isinstance(value, list) else value
        return text.strip()[:ADVICE_CHARS] if isinstance(text, str) else text


def left_out(space: Space) -> tuple[str, ...]:
    """Return the fields that nobody is asked for: those derived, dilation but of signals, codes but of autoencoders."""
    return (
        *DERIVED,
        *(() if space.is_signal else ("dilation",)),
        *(() if space.reconstructs else BOTTLENECK),
    )


@lru_cache
def spec_schema(space: Space) -> dict[str, Any]:
    """Return the JSON schema of a spec, narrowed to what strict modes accept and to what the space has.

    Lists of layers only, every field required, no field that is left out, anyOf in place of oneOf, an accelerator's
    layer types and values alone.
    """
    schema: dict[str, Any] = _narrow(ArchitectureSpec.model_json_schema(), left_out(space))
    return _only(schema, space.operators) if space.operators else schema


def _only(schema: dict[str, Any], operators: tuple[Operator, ...]) -> dict[str, Any]:
    """Return the schema of a spec without the layer types and values that an accelerator does not run."""
    limits = {operator.type: operator.limited for operator in operators}
    layers, head = schema["properties"]["backbone"], schema["properties"]["head"]
    definitions = {head["$ref"].rpartition("/")[2]: schema["$defs"][head["$ref"].rpartition("/")[2]]}
    for name, layer in schema["$defs"].items():
        fields = layer["properties"]
        kind = fields["type"]["enum"][0]
        if kind in limits:
            narrowed = {k: {"type": fields[k]["type"], "enum": list(v)} for k, v in limits[kind].items() if k in fields}
            definitions[name] = {**layer, "properties": {**fields, **narrowed}}
    kept = [branch for branch in layers["items"]["anyOf"] if branch["$ref"].rpartition("/")[2] in definitions]
    backbone = {**layers, "items": {**layers["items"], "anyOf": kept}}
    return {**schema, "properties": {**schema["properties"], "backbone": backbone}, "$defs": definitions}


@lru_cache
def batch_schema(count: int, space: Space) -> dict[str, Any]:
    """Return the JSON schema of `count` specs in one answer: {"candidates": [spec, ...]}."""
    spec = dict(spec_schema(space))
    definitions = spec.pop("$defs")
    several = {"type": "array", "items": spec, "minItems": count, "maxItems": count}
    closed = {"properties": {"candidates": several}, "required": ["candidates"], "additionalProperties": False}
    return {"type": "object", **closed, "$defs": definitions}


@lru_cache
def networks_schema(pattern: str, count: int) -> dict[str, Any]:
    """Return the JSON schema of a plan and of `count` lines that keep to a pattern: the compact form."""
    line = {"type": "string", "pattern": f"^(?:{pattern})$"}
    fields = {
        "plan": {"type": "string", "maxLength": PLAN_CHARS},
        "networks": {"type": "array", "items": line, "minItems": count, "maxItems": count},
    }
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


@lru_cache
def cell_schema(pattern: str) -> dict[str, Any]:
    """Return the JSON schema of one NAS-Bench-201 cell, a line that keeps to a pattern."""
    fields = {"cell": {"type": "string", "pattern": f"^(?:{pattern})$"}}
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


@lru_cache
def advice_schema(problem_chars: int = ADVICE_CHARS, suggestion_chars: int = ADVICE_CHARS) -> dict[str, Any]:
    """Return the JSON schema of the improver's answer; a weak model fills a text without an end to the last token."""
    schema: dict[str, Any] = _narrow(Advice.model_json_schema())
    schema["properties"]["problem"]["maxLength"] = problem_chars
    schema["properties"]["suggestion"]["maxLength"] = suggestion_chars
    return schema


def _narrow(node: Any, out: Sequence[str] = ()) -> Any:
    if isinstance(node, list):
        return [_narrow(item, out) for item in node]
    if not isinstance(node, dict):
        return node
    if "anyOf" in node and {"type": "null"} in node["anyOf"]:
        return _narrow(next(branch for branch in node["anyOf"] if branch != {"type": "null"}), out)
    if "const" in node:
        return {"type": "string", "enum": [node["const"]]}
    if "$ref" in node:
        return {"$ref": node["$ref"]}
    dropped = ("title", "description", "default", "discriminator", "minLength")
    kept = {("anyOf" if key == "oneOf" else key): value for key, value in node.items() if key not in dropped}
    if node.get("type") != "object":
        return {key: _narrow(value, out) for key, value in kept.items()}
    fields = {name: _narrow(value, out) for name, value in node["properties"].items() if name not in out}
    definitions = {"$defs": {k: _narrow(v, out) for k, v in node["$defs"].items()}} if "$defs" in node else {}
    closed = {"properties": fields, "required": list(fields), "additionalProperties": False}
    return {"type": "object", **closed, **definitions}


@lru_cache
def vocabulary(space: Space) -> tuple[str, ...]:
    """Return one line a block type of a space: what it is, and its fields with their values and defaults."""
    limits = {operator.type: operator.limited for operator in space.operators}
    lines = []
    for model in LAYERS.values():
        properties = model.model_json_schema()["properties"]
        kind = properties["type"]["const"]
        if kind not in space.types:
            continue
        rules = {name: rule for name, rule in properties.items() if name not in ("type", *left_out(space))}
        only = {name: {"enum": values} for name, values in limits.get(kind, {}).items()}
        fields = [_field(name, {**rule, **only.get(name, {})}) for name, rule in rules.items()]
        what = (model.__doc__ or "").splitlines()[0]
        if space.is_signal:
            what = what.replace("height and width", "length")
        lines.append(f"{kind}: {what} Fields: {'; '.join(fields)}")
    return tuple(lines)


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
