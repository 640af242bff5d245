"""A deployed network as plain C: emx-onnx-cgen's operators over one planned static arena, no malloc.

emx-onnx-cgen gives every intermediate its own malloc and returns silently when that fails. Its emitter is
subclassed at a few hooks instead of rewriting its text: constants, buffers, operators and calls. They are private, so
`generate` checks that they were called and that no allocation is left, and fails loudly where they were not.
"""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from emx_onnx_cgen.codegen.c_emitter import CEmitter
from emx_onnx_cgen.compiler import Compiler, CompilerOptions

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import DeployedNetwork
from backends.c_qemu.cgen_patches import PatchedTemplates
from backends.c_qemu.overlaps import descending
from backends.c_qemu.planner import Buffer
from backends.c_qemu.schedule import Call, Schedule, schedule

ARENA = "net_arena"
_ESCAPES = [f"\\{byte:03o}" for byte in range(256)]
_ROW = 30  # bytes a source line
_FORBIDDEN = re.compile(r"\b(malloc|calloc|realloc|free|alloca|fopen|printf|fprintf)\s*\(")
# A fused multiply-add rounds once where onnxruntime rounds twice: outputs would differ in the last bit. Where
# onnxruntime itself fuses, the templates say fmaf (backends/c_qemu/cgen_patches.py).
# Outputs lie over inputs, also as arrays of the same type that are shifted by less than a row: GCC would take these
# for apart, going by their types.
_PRELUDE = """#include <string.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off", "no-strict-aliasing")
#endif
"""


@dataclass(frozen=True)
class NetworkCode:
    """`net.c` and `net.h`, and what was planned for them.

    `buffers` share the arena; `weights` are the constants' bytes by the name of the node that reads them, which
    `deployed.labels` knows the layer of; `made_by` names the node that writes a buffer.
    """

    source: str
    header: str
    arena_bytes: int
    buffers: tuple[Buffer, ...]
    made_by: dict[str, str]
    weights: dict[str, int]


def generate(deployed: DeployedNetwork) -> NetworkCode:
    """Return the C of a network.

    Raises:
        ToolchainError: an operator that emx-onnx-cgen does not know, buffers of several types, or C that is not
            what this module expects.
    """
    compiler, emitter = _compiler()
    emitter.layout = None
    try:
        text: str = compiler.compile(deployed.with_batch_one())
    except Exception as error:  # emx-onnx-cgen raises its own errors, KeyError and AssertionError alike
        cause = error.__cause__ or error  # it wraps what a template's loader says
        if isinstance(cause, ToolchainError):
            raise cause from None
        raise ToolchainError(f"emx-onnx-cgen refused the network: {type(cause).__name__}: {cause}") from error
    layout = emitter.layout
    if layout is None:
        raise ToolchainError("emx-onnx-cgen did not ask for the arena: this version's emitter is not supported.")
    source = _PRELUDE + text
    if found := _FORBIDDEN.search(source):
        raise ToolchainError(f"the generated C should not allocate or print, found {found[1]}().")
    return NetworkCode(
        source,
        _header(deployed, layout),
        layout.schedule.arena_bytes,
        layout.schedule.buffers,
        layout.made_by,
        layout.weights,
    )


@dataclass
class _Layout:
    schedule: Schedule
    made_by: dict[str, str]
    weights: dict[str, int]
    turned: set[int] = field(default_factory=set)
    signature: str = ""


class _ArenaEmitter(CEmitter):  # type: ignore[misc]
    """Emits constants compactly and buffers into one static arena; `layout` holds the last model's."""

    layout: _Layout | None = None
    temps: tuple[Any, ...] = ()

    def _temp_buffers(self, model: Any, **options: Any) -> dict[str, Any]:
        made: dict[str, Any] = super()._temp_buffers(model, **options)
        self.temps = tuple(made.values())
        return made

    def _temp_buffer_uses_heap(self, temp: Any, dim_names: Any = None) -> bool:
        return False

    def _emit_constant_declarations(self, constants: Sequence[Any]) -> str:
        return ""  # static definitions need none

    def _emit_weight_loader(self, model: Any, large_constants: Sequence[Any]) -> str:
        return ""  # no weights in files

    def _emit_constant_definitions(self, constants: Sequence[Any], *, storage_prefix: str = "") -> str:
        return "\n".join(self._constant(constant) for constant in constants)

    def _constant(self, constant: Any) -> str:
        shape = self._codegen_shape(constant.shape)
        c_type, name = constant.dtype.c_type, constant.name
        if c_type in ("int8_t", "uint8_t"):  # gcc reads a string ten times faster than numbers
            escaped = [_ESCAPES[value & 0xFF] for value in constant.data]
            rows = ("".join(escaped[i : i + _ROW]) for i in range(0, len(escaped), _ROW))
            values = "\n    ".join(f'"{row}"' for row in rows)
        else:
            numbers = (self._format_weight_value(value, constant.dtype) for value in constant.data)
            values = f"{{{', '.join(numbers)}}}"
        if len(shape) == 1:
            return f"static const EMX_UNUSED {c_type} {name}[{shape[0]}] = {values};"
        inner = "".join(f"[{size}]" for size in shape[1:])
        return (
            f"static const EMX_UNUSED {c_type} {name}_data[{prod(shape)}] = {values};\n"
            f"static const EMX_UNUSED {c_type} (*const {name}){inner} = (const void *){name}_data;"
        )

    def _emit_operator_functions(self, model: Any, resolved_ops: Sequence[Any]) -> str:
        if any(temp.is_sequence for temp in self.temps):
            raise ToolchainError("the network has tensors of variable size; a microcontroller needs fixed ones.")
        shapes = {tensor.name: tensor.shape for tensor in (*self.temps, *model.constants)}
        shapes |= dict(zip(model.input_names, model.input_shapes, strict=True))
        shapes |= dict(zip(model.output_names, model.output_shapes, strict=True))
        if unknown := sorted({name for op in resolved_ops for name in op.call_args()} - shapes.keys()):
            raise ToolchainError(f"the generated C passes {', '.join(unknown)}, which is no tensor of the network.")
        made = schedule(resolved_ops, self.temps, shapes)
        nodes = [info.name or info.op_type for info in model.node_infos]
        self.layout = _Layout(made, {name: nodes[call.op] for call in made.calls for name in call.writes}, {})
        named = reversed(list(zip(nodes, resolved_ops, strict=True)))  # the first reader counts
        readers = {name: node for node, op in named for name in op.call_args()}
        for constant in model.constants:
            if reader := readers.get(constant.name):
                size = len(constant.data) * constant.dtype.np_dtype.itemsize
                self.layout.weights[reader] = self.layout.weights.get(reader, 0) + size
        text: str = super()._emit_operator_functions(model, resolved_ops)
        if self.layout.turned != made.descending:
            raise ToolchainError("emx-onnx-cgen did not hand over every operator: this version is not supported.")
        return text

    def with_node_comment(self, model: Any, index: int, rendered: str) -> str:
        if self.layout is not None and index in self.layout.schedule.descending:
            self.layout.turned.add(index)
            rendered = descending(rendered)
        text: str = super().with_node_comment(model, index, rendered)
        return text

    def _emit_model_wrapper(
        self, model: Any, ops: Sequence[Any], temps: Sequence[Any], *, dim_order: Sequence[str], **names: Any
    ) -> str:
        if dim_order or self.layout is None:
            raise ToolchainError("the network has tensors of variable size; a microcontroller needs fixed ones.")
        self.layout.signature = self._entrypoint_signature(model, dim_order=dim_order, **names)
        made = self.layout.schedule
        body = []
        for temp in temps:
            rows = "".join(f"[{size}]" for size in self._codegen_shape(temp.shape)[1:])
            declared = f"(*{temp.name}){rows}" if rows else f"*{temp.name}"
            start = made.offsets[temp.name] // temp.dtype.np_dtype.itemsize
            body.append(f"{temp.dtype.c_type} {declared} = (void *)({ARENA} + {start});")
        body += [line for call in made.calls if (line := self._call(call, model, ops[call.op], made.offsets))]
        lines = [f"void {model.name}({self.layout.signature}) {{", *(f"    {line}" for line in body), "}"]
        if made.arena_bytes:
            c_type, size = temps[0].dtype.c_type, temps[0].dtype.np_dtype.itemsize
            lines.insert(0, f"static {c_type} {ARENA}[{made.arena_bytes // size}];\n")
        return "\n".join(lines)

    def _call(self, call: Call, model: Any, op: Any, offsets: dict[str, int]) -> str:
        """Return the C of a call, "" for a copy of what lies there already."""
        if call.copy is None:
            return f"{self._op_function_name(model, call.op)}({', '.join(op.call_args())});"
        source, target, start, size = call.copy
        dtype = self._op_output_dtype(op)
        value_bytes = dtype.np_dtype.itemsize
        if source in offsets and offsets[source] + start * value_bytes == offsets.get(target):
            return ""
        return f"memmove({target}, (const {dtype.c_type} *){source} + {start}, {size * value_bytes});"


@functools.cache
def _compiler() -> tuple[Any, _ArenaEmitter]:
    # One a process: each new one compiles 169 templates again, 3 CPU seconds.
    compiler = Compiler(CompilerOptions(model_name="net", large_weight_threshold=0))
    if not isinstance(getattr(compiler, "_emitter", None), CEmitter):
        raise ToolchainError("emx-onnx-cgen's compiler has no emitter to replace: this version is not supported.")
    emitter = _ArenaEmitter(None, large_temp_threshold_bytes=0, large_weight_threshold=0)
    emitter._env.loader = PatchedTemplates()
    compiler._emitter = emitter
    return compiler, emitter


def _header(deployed: DeployedNetwork, layout: _Layout) -> str:
    channels, height, width = deployed.input_shape
    size = deployed.output_dtype.itemsize
    macros: dict[str, object] = {
        "NET_INPUT_CHANNELS": channels,
        "NET_INPUT_HEIGHT": height,
        "NET_INPUT_WIDTH": width,
        "NET_INPUT_BYTES": channels * height * width * size,
        "NET_CLASSES": deployed.num_classes,
        "NET_OUTPUT_BYTES": deployed.num_classes * size,
        "NET_ARENA_BYTES": layout.schedule.arena_bytes,
    }
    if deployed.precision == "int8":
        macros |= {
            "NET_INPUT_SCALE": f"{deployed.input_scale!r}f",
            "NET_INPUT_ZERO_POINT": deployed.input_zero_point,
            "NET_OUTPUT_SCALE": f"{deployed.output_scale!r}f",
            "NET_OUTPUT_ZERO_POINT": deployed.output_zero_point,
        }
    defines = "\n".join(f"#define {name} {value}" for name, value in macros.items())
    c_type = "int8_t" if deployed.precision == "int8" else "float"
    meaning = "pixel - 128" if deployed.precision == "int8" else "(pixel - 128) / 128"
    return f"""/* A neural network in plain C: needs only the C library's math. Generated; do not edit.
 *
 * Input: {c_type}, channels first, {meaning} for pixels 0..255. Output: {c_type}, one value a class, the
 * largest wins. For int8 a real value is (q - ZERO_POINT) * SCALE. Intermediates lie in a static arena of
 * NET_ARENA_BYTES: the function never allocates, and is not re-entrant.
 */
#ifndef NET_H
#define NET_H

#include <stdint.h>

{defines}

#ifdef __cplusplus
extern "C" {{
#endif

void net({layout.signature.replace("restrict ", "")});

#ifdef __cplusplus
}}
#endif

#endif
"""
