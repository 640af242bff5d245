"""A deployed network as plain C over one planned static arena: our own kernels at int8, emx-onnx-cgen's at float32."""

import itertools
import re
from dataclasses import dataclass, field

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.memory_map import MemoryMap, PlacedBuffer
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.target import Core
from backends.c_qemu.emx import Emitted, generate_float
from backends.c_qemu.form import USUAL, Form
from backends.c_qemu.kernels.network import Printed, generate_int8
from backends.c_qemu.patches import PatchedGraph, Stage
from backends.c_qemu.planner import Buffer, live_bytes
from backends.c_qemu.schedule import Schedule

STAGES_TRIED = 6  # a second each for a network of sixty operators
_FORBIDDEN = re.compile(r"\b(malloc|calloc|realloc|free|alloca|fopen|printf|fprintf)\s*\(")


@dataclass(frozen=True)
class NetworkCode:
    """`net.c` and `net.h`, and what was planned for them.

    `buffers` share the arena; `weights` are the constants' bytes by the name of the node that reads them, which
    `deployed.labels` knows the layer of; `made_by` names the node that writes a buffer. `memory` tells where each
    buffer lies, in the names of nodes.
    """

    source: str
    header: str
    arena_bytes: int
    buffers: tuple[Buffer, ...]
    made_by: dict[str, str]
    weights: dict[str, int]
    memory: MemoryMap
    nodes: dict[int, str] = field(default_factory=dict)  # by the number of a layer in the C; none at float32
    output_bytes: int = 0

    @property
    def with_marks(self) -> tuple[str, tuple[str, ...]]:
        """Return C whose `net` answers SysTick's ticks after each layer, and the nodes of these in order.

        The first two marks follow each other: their difference is what a mark takes.
        """
        head, _, body = self.source.partition("void net(")
        lines, nodes = [], []
        for line in body.splitlines():
            lines.append(line)
            if found := _LAYER.match(line):
                nodes.append(self.nodes[int(found[1])])
                lines.append("    mark();")
        marked = "\n".join(lines).replace("{\n", "{\n    mark();\n    mark();\n", 1)
        return _MARKS + head + "static void network(" + marked + _NET.format(bytes=self.output_bytes), tuple(nodes)


_LAYER = re.compile(r"\s+\w+\(&layer_(\d+)")
_MARKS = """#include <stdint.h>
uint64_t ticks(void);
static uint32_t *marks;
__attribute__((noinline)) static void mark(void) { *marks++ = (uint32_t)ticks(); }
"""
_NET = """
void net(const void *input, void *output) {{
    static uint8_t classes[{bytes}] __attribute__((aligned(8)));
    marks = output;
    network(input, (void *)classes);
}}
"""


def generate(deployed: DeployedNetwork, core: Core | None = None, *, form: Form = USUAL) -> NetworkCode:
    """Return the C of a network, for a core or for any; it can be compiled for every one, and gives the same outputs.

    The int8 kernels of a layer are the fastest for which the arena has room: as much as the network needs anyway, or
    the form's `arena_bytes` where that is more. float32 has one form alone.

    Raises:
        ToolchainError: an operator that the kernels do not know, or C that is not what is expected.
    """
    made: Printed | Emitted
    if deployed.precision == "int8":
        made = generate_int8(deployed, core, form)
    else:
        made = generate_float(deployed)
    if found := _FORBIDDEN.search(made.source):
        raise ToolchainError(f"the generated C should not allocate or print, found {found[1]}().")
    planned = made.schedule
    header = _header(deployed, planned.arena_bytes, made.signature, form.steps and deployed.precision == "int8")
    nodes = {call.op: made.made_by[call.writes[0]] for call in planned.calls} if deployed.precision == "int8" else {}
    memory = _memory(planned, made.made_by)
    about = (
        planned.buffers,
        made.made_by,
        made.weights,
        memory,
        nodes,
        deployed.num_classes * deployed.output_dtype.itemsize,
    )
    return NetworkCode(made.source, header, planned.arena_bytes, *about)


def fitting_stage(deployed: DeployedNetwork, core: Core, arena_bytes: int) -> Stage | None:
    """Return the stage that computes least twice of those with which an int8 network fits into an arena; None if none.

    The first few that could fit are tried.
    """
    whole = generate(deployed, core)
    needs = ((whole.made_by[buffer.name], live_bytes(whole.buffers, buffer.first)) for buffer in whole.buffers)
    too_large = {node for node, need in needs if need > arena_bytes}
    stages = PatchedGraph(deployed.with_batch_one()).stages(arena_bytes, too_large)
    for stage in itertools.islice(stages, STAGES_TRIED):
        if generate(deployed, core, form=Form(stage=stage)).arena_bytes <= arena_bytes:
            return stage
    return None


def _memory(planned: Schedule, made_by: dict[str, str]) -> MemoryMap:
    return MemoryMap(
        arena_bytes=planned.arena_bytes,
        steps=tuple(made_by[call.writes[0]] for call in planned.calls),
        buffers=tuple(
            PlacedBuffer(
                layer=made_by[buffer.name],
                start_bytes=planned.offsets[buffer.name],
                size_bytes=buffer.size_bytes,
                first=buffer.first,
                last=buffer.last,
                is_scratch=buffer.is_scratch,
            )
            for buffer in planned.buffers
        ),
    )


_STEP = """
/* One step of a window: its state (0 or 1), whether the window begins, the step's values. Logits are those of a window
 * that would end here. net() is as many steps, with a state of its own. */
void net_step(uint32_t state, int begins, const int8_t *values, int8_t *logits);
"""


def _header(deployed: DeployedNetwork, arena_bytes: int, signature: str, steps: bool) -> str:
    channels, height, width = deployed.input_shape
    size = deployed.output_dtype.itemsize
    macros: dict[str, object] = {
        "NET_INPUT_CHANNELS": channels,
        "NET_INPUT_HEIGHT": height,
        "NET_INPUT_WIDTH": width,
        "NET_INPUT_BYTES": channels * height * width * size,
        "NET_CLASSES": deployed.num_classes,
        "NET_OUTPUT_BYTES": deployed.num_classes * size,
        "NET_ARENA_BYTES": arena_bytes,
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

void net({signature.replace("restrict ", "")});
{_STEP if steps else ""}
#ifdef __cplusplus
}}
#endif

#endif
"""
