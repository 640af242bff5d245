"""A traced graph with the images of a batch along the first axis of every tensor, wherever its author put them.

Attention moves them: to (tokens, images, channels), to (images x heads, tokens, channels), to a stack of queries, keys
and values. A board computes one image, and accuracy is taken of many; so each tensor is written anew as (images, what
one image has), and every operator with it, by `batch_rules`. Where images would be mixed, that is said.
"""

from collections.abc import Callable
from itertools import islice, product
from typing import NamedTuple

import numpy as np
import onnx
from onnx import NodeProto, helper

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.graph_editor import Array, Editor

Shape = tuple[int, ...]


class Place(NamedTuple):
    """Where the images of a batch are: along `axis`, which has `before` x images x `behind` places."""

    axis: int
    before: int = 1
    behind: int = 1

    @property
    def left(self) -> int:
        """The size that the axis has for one image."""
        return self.before * self.behind

    def stored_axis(self, axis: int) -> int:
        """Return what becomes of an axis that is not the images'."""
        return axis + 1 if axis < self.axis or self.left > 1 else axis

    def without_images(self, values: list[int], own: int) -> list[int]:
        """Return one number for each axis but the images'; `own` for what that axis has for one image, if anything."""
        return [*values[: self.axis], *([own] if self.left > 1 else []), *values[self.axis + 1 :]]

    def stored_shape(self, shape: Shape) -> Shape:
        """Return the sizes of a tensor whose images are put first, 0 for them."""
        return (0, *self.without_images(list(shape), self.left))


FIRST = Place(0)


_READINGS = 256  # of one operator's operands that are tried

Rewrite = Callable[["BatchGraph", NodeProto], list[NodeProto]]


class BatchGraph:
    """A graph traced for so many `images`, while it is rewritten: `places` of computed tensors, `shapes` of before."""

    def __init__(self, model: onnx.ModelProto, images: int) -> None:
        self.editor, self.images = Editor(model), images
        self.places = {model.graph.input[0].name: FIRST}
        self.shapes: dict[str, Shape] = self.editor.shapes

    def refusal(self, node: NodeProto, why: str) -> ToolchainError:
        """Return the error that an operator does not compute each image alone, or not so that it shows."""
        return ToolchainError(f"a board sees one image at a time; {node.op_type} ({node.name}) {why}.")

    def by_any_reading(self, node: NodeProto, rewrite: Rewrite) -> list[NodeProto]:
        """Return an operator written anew, by the first reading of where its operands' images are that allows it.

        There is one reading, but of one image alone: any axis may hold it, since the order of values stays.

        Raises:
            ToolchainError: none does.
        """
        read = [name for name in dict.fromkeys(node.input) if name in self.places]
        refusals = []
        for places in islice(product(*(self._readings(name) for name in read)), _READINGS):
            copy, before = NodeProto.FromString(node.SerializeToString()), list[NodeProto]()
            for name, place in zip(read, places, strict=True):
                shape, had = self.shapes[name], self.places[name]
                sizes = place.stored_shape(shape)
                if sizes == had.stored_shape(shape):
                    self.places[name] = place
                    continue
                other = f"{name}_for_{node.name}_by_axis{place.axis}"
                before.append(self.reshaped(node, name, other, sizes, other))
                self.places[other], self.shapes[other] = place, shape
                copy.input[:] = [other if one == name else one for one in copy.input]
            try:
                return [*before, *rewrite(self, copy)]
            except ToolchainError as error:
                refusals.append(error)
        raise refusals[0]

    def _readings(self, name: str) -> list[Place]:
        """Return where a tensor's images may be: where they are; of one image alone then, without a move, elsewhere."""
        place, shape = self.places[name], self.shapes[name]
        others = [Place(axis, 1, size) for axis, size in enumerate(shape)] if self.images == 1 else []
        others.sort(key=lambda one: one.stored_shape(shape) != place.stored_shape(shape))
        return [place, *(one for one in others if one != place)]

    def axis(self, node: NodeProto, name: str, axis: int) -> int:
        """Return what becomes of an axis of a tensor.

        Raises:
            ToolchainError: it is that of the images.
        """
        place, axis = self.places[name], axis % len(self.shapes[name])
        if axis == place.axis:
            raise self.refusal(node, "works along the images of a batch")
        return place.stored_axis(axis)

    def sizes(self, node: NodeProto, *values: int) -> str:
        """Return the name of a new constant of integers."""
        return self.editor.constant(node.name, np.array(values, np.int64))

    def constant_of(self, node: NodeProto, at: int) -> Array:
        """Return the values of an input.

        Raises:
            ToolchainError: it is computed, or left out.
        """
        name = node.input[at] if at < len(node.input) else ""
        if name not in self.editor.constants:
            raise self.refusal(node, "should have sizes and places that are constants")
        values: Array = self.editor.constants[name]
        return values

    def for_one(self, node: NodeProto, at: int, rank: int, place: Place) -> Array:
        """Return a constant operand for one image, 1 for the images: it must have the same values for each.

        Raises:
            ToolchainError: it has not.
        """
        values = self.constant_of(node, at)
        full = (1,) * (rank - values.ndim) + values.shape
        own = 1
        if full[place.axis] != 1:
            own = place.left
            if full[place.axis] != own * self.images:
                raise self.refusal(node, "repeats the images of a batch")
            sizes = (place.before, self.images, place.behind)
            apart = values.reshape(*full[: place.axis], *sizes, *full[place.axis + 1 :])
            first = np.take(apart, [0], place.axis + 1)
            if not np.array_equal(np.broadcast_to(first, apart.shape), apart):
                raise self.refusal(node, "has a constant of other values for each image of a batch")
            values = first
        made: Array = values.reshape(1, *place.without_images(list(full), own))
        return made

    def reshaped(self, node: NodeProto, source: str, result: str, sizes: Shape, name: str) -> NodeProto:
        """Return a change of shape, 0 for the images."""
        return helper.make_node("Reshape", [source, self.sizes(node, *sizes)], [result], name=name)

    def aligned(self, node: NodeProto, at: int, rank: int) -> list[NodeProto]:
        """Let an operand have as many axes as the others, so that its images lie on theirs; return what does that."""
        name = node.input[at]
        missing, place = rank - len(self.shapes[name]), self.places[name]
        if not missing:
            return []
        node.input[at] = f"{name}_for_{node.name}_{at}"
        sizes = (0, *[1] * missing, *place.stored_shape(self.shapes[name])[1:])
        return [self.reshaped(node, name, node.input[at], sizes, f"{node.name}_aligned{at}")]


def shared_place(graph: BatchGraph, node: NodeProto, rank: int) -> Place:
    """Return where the images of operands are, whose last axes are aligned.

    Raises:
        ToolchainError: images would meet other images.
    """
    places = {
        place._replace(axis=place.axis + rank - len(graph.shapes[name]))
        for name in node.input
        if (place := graph.places.get(name))
    }
    if len(places) > 1:
        raise graph.refusal(node, "mixes the images of a batch with each other")
    return places.pop()
