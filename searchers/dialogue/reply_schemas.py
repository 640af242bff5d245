"""What a reply must look like: JSON schemas and vocabulary, derived from the models that validate the replies."""

import json
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.json_schema import SkipJsonSchema

from automcu_ray.networks.cell import CellSpec
from automcu_ray.networks.operator_limits import Operator
from automcu_ray.networks.spec import LAYERS, ArchitectureSpec

# Worked out from the rest, or for signals or autoencoders alone: one thing less to get wrong.
DERIVED = ("in_channels", "padding", "num_classes", "dilation", "code", "decoder")
ADVICE_CHARS = 1200
PLAN_CHARS = 300


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


@lru_cache
def spec_schema(operators: tuple[Operator, ...] = ()) -> dict[str, Any]:
    """Return the JSON schema of a spec, narrowed to what strict modes accept.

    Lists of layers only, every field required, no field that is derived, anyOf in place of oneOf. `operators` are the
    layer types of an accelerator, which allow no others; () allows all.
    """
    schema: dict[str, Any] = _narrow(ArchitectureSpec.model_json_schema())
    return _only(schema, operators) if operators else schema


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
def batch_schema(count: int, operators: tuple[Operator, ...] = ()) -> dict[str, Any]:
    """Return the JSON schema of `count` specs in one answer: {"candidates": [spec, ...]}."""
    spec = dict(spec_schema(operators))
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
def cell_schema() -> dict[str, Any]:
    """Return the JSON schema of a NAS-Bench-201 cell."""
    schema: dict[str, Any] = _narrow(CellSpec.model_json_schema())
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


@lru_cache
def vocabulary(operators: tuple[Operator, ...] = ()) -> tuple[str, ...]:
    """Return one line a block type: what it is, and its fields with their values and defaults.

    `operators` are the layer types of an accelerator, which allow no others; () allows all.
    """
    limits = {operator.type: operator.limited for operator in operators}
    lines = []
    for model in LAYERS.values():
        properties = model.model_json_schema()["properties"]
        kind = properties["type"]["const"]
        if operators and kind not in limits:
            continue
        rules = {name: rule for name, rule in properties.items() if name not in ("type", *DERIVED)}
        only = {name: {"enum": values} for name, values in limits.get(kind, {}).items()}
        fields = [_field(name, {**rule, **only.get(name, {})}) for name, rule in rules.items()]
        what = (model.__doc__ or "").splitlines()[0]
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
