"""Edits of a spec as plain sentences: written by the offline improver, read back by the offline generator."""

import json
import re
from collections.abc import Iterator
from typing import Any

from automcu_ray.space import without_derived
from automcu_ray.spec import ArchitectureSpec

_SET = re.compile(r"Set layer_(\d{1,3})\.([a-z_]{1,20}) to (\"?[\w.]{1,10}\"?)\.(?=\s|$)")
_INSERT = re.compile(r"Insert (\{[^{}]{1,300}\}) after layer_(\d{1,3})\.")
_REPLACE = re.compile(r"Replace layer_(\d{1,3}) with (\{[^{}]{1,300}\})\.")
_REMOVE = re.compile(r"Remove layer_(\d{1,3})\.")


class Draft:
    """A spec that is being changed.

    Slot i holds what has become of layer_i and what now follows it; slot 0 is the front.
    """

    def __init__(self, spec: ArchitectureSpec) -> None:
        layers = without_derived(spec).compact()["backbone"]
        self.original = [dict(layer) for layer in layers]
        self.slots: list[list[dict[str, Any]]] = [[], *([layer] for layer in layers)]

    def layers(self) -> list[dict[str, Any]]:
        """Return the layers in order; changing one changes the draft."""
        return [layer for slot in self.slots for layer in slot]

    def insert(self, layer: dict[str, Any], at: int) -> None:
        """Put a layer behind the first `at` layers."""
        for slot in self.slots:
            if at <= len(slot):
                slot.insert(at, layer)
                return
            at -= len(slot)

    def remove(self, at: int) -> None:
        """Take out the layer behind the first `at` layers."""
        for slot in self.slots:
            if at < len(slot):
                del slot[at]
                return
            at -= len(slot)

    def spec(self) -> ArchitectureSpec:
        """Return the spec as it is now.

        Raises:
            ValueError: a field or value that no layer has.
        """
        return ArchitectureSpec.model_validate({"backbone": self.layers()})

    def sentences(self) -> str:
        """Return the changes as sentences about the original layer numbers; `apply` makes them again."""
        return " ".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        for layer in reversed(self.slots[0]):  # each goes to the front
            yield f"Insert {json.dumps(layer)} after layer_0."
        for number, (before, slot) in enumerate(zip(self.original, self.slots[1:], strict=True), start=1):
            if not slot:
                yield f"Remove layer_{number}."
                continue
            yield from _changes(number, before, slot[0])
            for layer in reversed(slot[1:]):
                yield f"Insert {json.dumps(layer)} after layer_{number}."


def sentence(fix: str) -> str:
    """Return the sentence that makes a refusal's fix, which reads "layer_4.out_channels 64 -> 41"."""
    where, _, _, after = fix.split()
    return f"Set {where} to {after}."


def apply(spec: ArchitectureSpec, text: str) -> Draft:
    """Return the spec with every edit that the text names; sentences of any other form are passed over."""
    draft = Draft(spec)
    own = draft.slots

    def known(number: str, lowest: int = 1) -> bool:
        return lowest <= int(number) < len(own)

    for number, layer in _REPLACE.findall(text):
        if known(number) and own[int(number)]:
            own[int(number)][0] = _object(layer)
    for number, field, value in _SET.findall(text):
        if known(number) and own[int(number)]:
            own[int(number)][0][field] = _value(value)
    for number in _REMOVE.findall(text):
        if known(number):
            del own[int(number)][:1]
    for layer, number in _INSERT.findall(text):
        if known(number, lowest=0):
            original = min(1, int(number)) if own[int(number)] else 0
            own[int(number)].insert(original, _object(layer))
    return draft


def _changes(number: int, before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    if after["type"] != before["type"] or before.keys() - after.keys():
        yield f"Replace layer_{number} with {json.dumps(after)}."
        return
    for field in after:
        if after[field] != before.get(field):
            yield f"Set layer_{number}.{field} to {json.dumps(after[field])}."


def _object(text: str) -> dict[str, Any]:
    found = _value(text)
    return found if isinstance(found, dict) else {}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
