"""A spec that is being changed, and the changes in plain sentences."""

import json
from typing import Any

from automcu_ray.core.feasibility import Change
from automcu_ray.networks.search_space import without_derived
from automcu_ray.networks.spec import ArchitectureSpec


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

    def set(self, change: Change) -> None:
        """Change one field of an original layer, as the fix of a refusal says."""
        layer, _, field = change.where.partition(".")
        self.slots[int(layer.removeprefix("layer_"))][0][field] = change.after

    def spec(self) -> ArchitectureSpec:
        """Return the spec as it is now.

        Raises:
            ValueError: a field or value that no layer has.
        """
        return ArchitectureSpec.model_validate({"backbone": self.layers()})

    def sentences(self) -> str:
        """Return the changes as sentences about the original layer numbers."""
        said = [f"Insert {json.dumps(layer)} after layer_0." for layer in reversed(self.slots[0])]  # each to the front
        for number, (before, slot) in enumerate(zip(self.original, self.slots[1:], strict=True), start=1):
            if not slot:
                said.append(f"Remove layer_{number}.")
                continue
            after = slot[0]
            if after["type"] != before["type"] or before.keys() - after.keys():
                said.append(f"Replace layer_{number} with {json.dumps(after)}.")
            else:
                changed = [field for field in after if after[field] != before.get(field)]
                said += [f"Set layer_{number}.{field} to {json.dumps(after[field])}." for field in changed]
            said += [f"Insert {json.dumps(layer)} after layer_{number}." for layer in reversed(slot[1:])]
        return " ".join(said)
