"""An int8 network as C: layers, their schedule over one arena, scratch included, and the text."""

from dataclasses import dataclass, replace
from math import prod

from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.deploy.step_network import step_shape
from automcu_ray.deploy.tracing import INPUT, OUTPUT
from automcu_ray.problem.target import Core
from automcu_ray.sizing.peak_memory import ANYWHERE, APART, Lag
from backends.c_qemu.form import Form
from backends.c_qemu.kernels import printing
from backends.c_qemu.kernels.layer import Layer, Variant, variant_of
from backends.c_qemu.kernels.reading import read
from backends.c_qemu.patches import PatchedGraph
from backends.c_qemu.planner import live_bytes
from backends.c_qemu.schedule import Call, Schedule, schedule
from backends.c_qemu.stream.printing import STATES

# Four pixels at a time need more registers than these cores have: measured slower than window by window.
WINDOW_BY_WINDOW: tuple[Core, ...] = ("cortex-m0", "cortex-m0plus")


@dataclass(frozen=True)
class Printed:
    """The C of a network, and what was planned for it: see `cgen.NetworkCode`."""

    source: str
    signature: str
    schedule: Schedule
    made_by: dict[str, str]
    weights: dict[str, int]


_BY_STEPS = """
void net_step(uint32_t state, int begins, const int8_t *values, int8_t *logits) {{
    net_state = state;
    net_begins = begins;
    one_step((const int8_t (*)[{values}])values, (void *)logits);
}}
/* A whole window, with a state of its own. */
void net({signature}) {{
    int8_t values[{values}];
    for (int t = 0; t < {steps}; t++) {{
        for (int i = 0; i < {values}; i++) values[i] = ((const int8_t *)image)[t * {by_step} + i * {by_value}];
        net_step(NET_STATES - 1, t == 0, values, (int8_t *)logits);
    }}
}}
"""


def _places(input_shape: tuple[int, int, int]) -> dict[str, int]:
    """Return how far apart neighbours are in an image: from step to step, from value to value."""
    _, height, width = input_shape
    return {"by_step": 1, "by_value": width} if height == 1 else {"by_step": width, "by_value": 1}


def lags(layer: Layer) -> dict[str, Lag]:
    """Return the lags, in bytes, at which a layer's output may be written over an input.

    One that is read twice stays apart: two rules would have to hold.
    """
    return {name: lag for name, lag in layer.lags.items() if layer.reads.count(name) == 1}


def generate_int8(deployed: DeployedNetwork, core: Core | None, form: Form) -> Printed:
    """Return the C of an int8 network for a core; None stands for any.

    Forms of less code have fewer kinds of kernels; the small one is plain C, compiled for size.

    Raises:
        ToolchainError: an operator, or a form of one, that no kernel computes.
    """
    small = form.code == "small"
    variant: Variant = "scalar" if small else variant_of(core)
    model = deployed.one_step() if form.steps else deployed.with_batch_one()
    layers, shapes, constants = read(model if form.stage is None else PatchedGraph(model).graph(form.stage), variant)
    if core in WINDOW_BY_WINDOW:
        layers = [replace(layer, roomy=None) if layer.kernel == "convolve_narrow" else layer for layer in layers]
    if form.code in ("narrow", "small"):
        layers = [layer.small or layer for layer in layers]
    if form.code != "fast":
        layers = [replace(layer, roomy=None) for layer in layers]
    layers, made = _planned(layers, {name: prod(shape) for name, shape in shapes.items()}, form.arena_bytes)
    channels, height, width = deployed.input_shape
    signature = (
        f"const int8_t {printing.INPUT}[1][{channels}][{height}][{width}], "
        f"int8_t {printing.OUTPUT}[1][{deployed.num_classes}]"
    )
    if form.steps:
        steps, values = step_shape(deployed.input_shape)
        own = f"const int8_t {printing.INPUT}[1][{values}], int8_t {printing.OUTPUT}[1][{deployed.num_classes}]"
        text = printing.print_c(layers, made, constants, (INPUT, OUTPUT), own, variant, small, STATES + 1)
        text += _BY_STEPS.format(signature=signature, steps=steps, values=values, **_places(deployed.input_shape))
    else:
        text = printing.print_c(layers, made, constants, (INPUT, OUTPUT), signature, variant, small)
    weights: dict[str, int] = {}
    for layer in layers:
        if layer.weights_bytes:
            weights[layer.node] = max(weights.get(layer.node, 0), layer.weights_bytes)  # patches share them
    made_by = {name: layers[call.op].node for call in made.calls for name in (*call.writes, call.scratch)}
    return Printed(text, signature, made, made_by, weights)


def _planned(layers: list[Layer], sizes: dict[str, int], arena_bytes: int) -> tuple[list[Layer], Schedule]:
    """Return the layers, roomy where the arena need not grow beyond `arena_bytes` for it, and their schedule."""
    given = _schedule(layers, sizes)
    room = max(arena_bytes, given.arena_bytes)
    needs = {call.op: live_bytes(given.buffers, at) for at, call in enumerate(given.calls)}
    tight = {
        layer.node  # in whichever patch: all share its weights, as they are packed for one kernel
        for number, layer in enumerate(layers)
        if layer.roomy and needs[number] - layer.scratch_bytes + layer.roomy.scratch_bytes > room
    }
    chosen = [layer.roomy if layer.roomy and layer.node not in tight else layer for layer in layers]
    made = _schedule(chosen, sizes)
    return (chosen, made) if made.arena_bytes <= room else (layers, given)


def _schedule(layers: list[Layer], sizes: dict[str, int]) -> Schedule:
    calls = [call for number, layer in enumerate(layers) for call in _calls(number, layer)]
    return schedule(calls, {name: sizes[name] for call in calls for name in call.writes if name != OUTPUT})


def _calls(number: int, layer: Layer) -> list[Call]:
    if layer.copies:
        return [Call(number, (copy.target,), {copy.source: ANYWHERE}, copy) for copy in layer.copies]
    allowed = lags(layer)
    reads = {name: allowed.get(name, APART) for name in layer.reads}
    scratch = printing.scratch_name(number) if layer.scratch_bytes else ""
    return [Call(number, (layer.write,), reads, None, scratch, layer.scratch_bytes)]
