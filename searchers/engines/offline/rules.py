"""The rules of the offline engine: grow networks up to the limits, and shrink them after a refusal."""

import copy
import math
from collections.abc import Sequence
from random import Random

from pydantic import ValidationError

from automcu_ray.core.feasibility import Violation
from automcu_ray.networks.graph import ConstructibilityError, Graph
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.records.record import Record
from automcu_ray.sizing.footprint import Footprint, footprint
from automcu_ray.sizing.instruction_model import model_for
from searchers.engines.base import Subject
from searchers.engines.offline.draft import Draft

_FIRST = (0.4, 1.0)  # share of Flash that a first network aims at by weights alone: code and runtime are not known
_FIRST_CHEAP = (0.15, 0.3)  # where the cheapest network is sought
_ROOM = 0.85  # below this share of both limits there is room to climb
_LEAN = (0.9, 1.1)  # near the limits: now and then beyond them, for the toolchain knows better than a bound
_CAREFUL = (0.85, 0.96)  # after a refusal
_PLATEAU = 2  # so many networks without a gain, and small steps will not do
_MAX_LAYERS = 12
_MAX_CHANNELS = 128
_STEPS = 60
_STRIDED = ("conv", "residual", "bottleneck", "mbconv", "depthwise")  # what can halve an image as it goes
_RESOURCES = ("ram", "flash", "instructions")
_DEEPEN = ("conv", "residual", "residual", "bottleneck", "mbconv")
_FIRST_LAYER = ArchitectureSpec.model_validate({"backbone": [{"type": "conv", "out_channels": 8}]})
_SWAP = ("conv", "residual", "bottleneck", "mbconv", "ghost", "depthwise")


class Situation:
    """What the rules decide by: a subject, and what follows from it.

    Args:
        subject: what is asked about.
        recent: the records that say whether networks are being refused.
    """

    def __init__(self, subject: Subject, recent: Sequence[Record]) -> None:
        self.subject, self.task, self.space = subject, subject.task, subject.task.space
        self.reference = subject.reference or _FIRST_LAYER
        self.status = subject.result.status if subject.result else "never tried"
        self.current = subject.current.status if subject.current else "never tried"
        self.refused = any(record.status == "infeasible" for record in recent)
        is_current = subject.result is not None and subject.result == subject.current
        self.violations = _violations(subject.current) if is_current else ()  # what the reference was refused for
        bounds, report = self.bounds(self.space.graph(self.reference)), subject.result and subject.result.feasibility
        measured = {violation.resource: violation.found_bytes for violation in self.violations if violation.found_bytes}
        ram = measured.get("ram") or (report and report.least_ram_bytes) or 0
        flash = measured.get("flash") or (report and report.flash_bytes) or 0
        # Code, stack, runtime: what the reference needed beyond its lower bounds.
        self.ram_beyond_bytes = max(0, ram - bounds.ram_lower_bound_bytes)
        self.flash_beyond_bytes = max(0, flash - bounds.flash_lower_bound_bytes)
        self.model = model_for(self.task)
        if report and report.instructions:
            self.model = self.model.scaled_to(self.space.graph(self.reference), report.instructions)

    def bounds(self, graph: Graph) -> Footprint:
        """Return the lower bounds of a network."""
        return footprint(graph, self.task.precision)

    @property
    def good_enough(self) -> bool:
        """Whether a cheap network is sought and the reference is accurate enough, so that it may become cheaper."""
        result = self.subject.result
        return result is not None and result.aim is not None and result.scored and result.score >= 0

    def shares(self, draft: Draft) -> tuple[float, ...] | None:
        """Return the expected shares of the RAM and Flash limits, None where the draft cannot be built.

        A lower bound plus what the reference needed beyond its own. Where instructions are limited their share follows.
        """
        try:
            graph = self.space.graph(draft.spec())
        except (ValidationError, ConstructibilityError):
            return None
        bounds, limit = self.bounds(graph), self.task.instructions_limit
        speed = () if limit is None else (self.model.estimate(graph) / limit,)
        flash = bounds.flash_lower_bound_bytes + self.flash_beyond_bytes
        accelerator = self.task.target.accelerator
        if accelerator is not None:  # it has memory of its own for feature maps: they take no RAM
            return 0.0, flash / min(self.task.flash_limit_bytes, accelerator.weight_memory.total_bytes)
        ram = bounds.ram_lower_bound_bytes + self.ram_beyond_bytes
        return ram / self.task.ram_limit_bytes, flash / self.task.flash_limit_bytes, *speed

    def dearest(self, graph: Graph) -> str:
        """Return the operator that takes the most instructions."""
        costs = self.model.by_operator(graph)
        return graph.ops[costs.index(max(costs))].name


def begin(situation: Situation, rng: Random) -> Draft:
    """Return a first network: the reference with a residual block, grown to a part of the limits."""
    draft = Draft(situation.reference)
    _deepen(draft, situation, rng, "residual" if "residual" in situation.space.types else "conv")
    first = _FIRST if situation.task.aim is None else _FIRST_CHEAP
    return _fit(draft, situation, rng.uniform(*first), rng)


def advise(situation: Situation, rng: Random) -> tuple[str, Draft]:
    """Return the problem in words, and the reference with the changes that are suggested."""
    draft = Draft(situation.reference)
    shares = situation.shares(draft) or (1.0, 1.0)
    if situation.good_enough:
        return _cheaper(draft, situation, rng)
    if situation.status in ("ok", "never tried") and max(shares) < _ROOM:
        problem, aim = _room(situation, shares, rng)
    elif situation.status in ("ok", "never tried"):
        problem, aim = _at_the_limit(situation, shares, rng)
        _vary(draft, situation, rng)
    elif situation.status == "infeasible":  # nothing has trained yet: the refused network itself is the reference
        problem, aim = _refusal(situation.violations), rng.uniform(0.5, 0.8)
        if fixes := [violation.fix for violation in situation.violations if violation.fix is not None]:
            for fix in sorted(fixes, key=str):
                draft.set(fix)
            return problem, draft
    else:
        problem, aim = f"The current network was {situation.status}.", rng.uniform(0.4, 0.9)
        _vary(draft, situation, rng)
    draft = _fit(draft, situation, aim, rng)
    if not draft.sentences():
        _vary(draft, situation, rng)
    return problem, draft


def _cheaper(draft: Draft, situation: Situation, rng: Random) -> tuple[str, Draft]:
    """Return the draft with less of what it costs most: a layer less, smaller images, or narrower at its dearest layer.

    Half of the time the last layer grows for it: there, images are small and channels cost little.
    """
    objective, layers = situation.task.objective, draft.layers()
    inner = [at for at, layer in enumerate(layers) if at and layer.get("stride", 1) == 1]
    full = [layer for layer in layers if layer["type"] in _STRIDED and layer.get("stride", 1) == 1]
    way = rng.random()
    if way < 0.25 and inner and len(layers) > 2:
        draft.remove(rng.choice(inner))
    elif way < 0.5 and full:
        trial = copy.deepcopy(draft)
        trial.layers()[layers.index(full[0])]["stride"] = 2
        draft = draft if situation.shares(trial) is None else trial
    else:
        for _ in range(rng.choice((1, 2, 3))):
            if situation.shares(draft) is not None:
                _shrink(draft, situation, objective)
    last = draft.layers()[-1]
    if rng.random() < 0.5 and "out_channels" in last:
        last["out_channels"] = min(_MAX_CHANNELS, 4 * math.ceil(last["out_channels"] * 1.3 / 4))
    return f"The network is accurate enough: it can do with less {objective}.", draft


def _room(situation: Situation, shares: tuple[float, ...], rng: Random) -> tuple[str, float]:
    least = 0.3 if situation.task.aim is None else 0.05
    aim = min(rng.uniform(*_LEAN), max(least, max(shares)) * rng.uniform(1.5, 2.2))
    if situation.subject.since_best >= _PLATEAU and situation.task.aim is None:
        aim = rng.uniform(*_LEAN)
    if situation.current == "infeasible":
        problem = f"{_refusal(_violations(situation.subject.current))} The reference leaves room."
        return problem, min(aim, rng.uniform(*_CAREFUL))
    return f"{_used(shares)}: the network is too small.", aim


def _used(shares: tuple[float, ...]) -> str:
    speed = f", {shares[2]:.0%} of the instructions" if len(shares) > 2 else ""
    return f"{shares[0]:.0%} of RAM and {shares[1]:.0%} of Flash{speed} are used"


def _at_the_limit(situation: Situation, shares: tuple[float, ...], rng: Random) -> tuple[str, float]:
    since_best = situation.subject.since_best
    if situation.current == "infeasible":
        return _refusal(_violations(situation.subject.current)), rng.uniform(*_CAREFUL)
    if situation.current in ("duplicate", "invalid", "failed"):
        return f"The current network was {situation.current}: another change is needed.", rng.uniform(*_CAREFUL)
    used = _used(shares)
    gain = f"no gain for {since_best} networks" if since_best else "still gaining"
    aim = rng.uniform(*(_CAREFUL if situation.refused else _LEAN))
    return f"{used}, {gain}: the shape has to change, not the size.", aim


def _violations(record: Record | None) -> tuple[Violation, ...]:
    report = record.feasibility if record else None
    return report.violations if report else ()


def _refusal(violations: Sequence[Violation]) -> str:
    if not violations:
        return "The current network exceeds the network limit."
    first = violations[0]
    unit = "instructions" if first.resource == "instructions" else "bytes"
    over = f" by {first.over} {unit}" if first.over else ""
    where = f", most of it at {first.where}" if first.where else ""
    return f"The current network exceeds the {first.resource} limit{over}{where}."


def _fit(draft: Draft, situation: Situation, aim: float, rng: Random) -> Draft:
    """Return the draft shrunk until it keeps within `aim` of both limits, then grown as far as that goes."""
    for _ in range(_STEPS):
        shares = situation.shares(draft)
        if shares is None or max(shares) <= aim:
            break
        _shrink(draft, situation, next(name for name, share in zip(_RESOURCES, shares, strict=False) if share > aim))
    for _ in range(_STEPS):
        shares = situation.shares(draft)
        if shares is None or max(shares) >= aim * 0.95:
            break
        trial = copy.deepcopy(draft)
        _grow(trial, situation, rng)
        grown = situation.shares(trial)
        if grown is not None and max(grown) <= aim:
            draft = trial
    return draft


def _shrink(draft: Draft, situation: Situation, resource: str) -> None:
    """Take a quarter of the channels off where most of the resource goes, and off a layer before it."""
    graph = situation.space.graph(draft.spec())
    if resource == "instructions":
        where = situation.dearest(graph)
    else:
        bounds = situation.bounds(graph)
        where = bounds.widest_moment if resource == "ram" else bounds.largest_weights
    layers = draft.layers()
    worst = int(where.split(".")[0].removeprefix("layer_")) - 1 if where.startswith("layer_") else len(layers) - 1
    around = [i for i in (worst, worst - 1, worst - 2) if i >= 0 and layers[i].get("out_channels", 0) > 4]
    others = [i for i, layer in enumerate(layers) if layer.get("out_channels", 0) > 4]
    for at in (around or others)[:2]:
        layers[at]["out_channels"] = max(4, layers[at]["out_channels"] * 3 // 16 * 4)
        _follow(draft, at)


def _grow(draft: Draft, situation: Situation, rng: Random) -> None:
    layers = draft.layers()
    if len(layers) < _MAX_LAYERS and rng.random() < 0.3:
        _deepen(draft, situation, rng, rng.choice(_known(_DEEPEN, situation)))
        return
    widths = [i for i, layer in enumerate(layers) if layer.get("out_channels", _MAX_CHANNELS) < _MAX_CHANNELS]
    if widths:
        at = rng.choice(widths)
        layers[at]["out_channels"] = min(_MAX_CHANNELS, 4 * math.ceil(layers[at]["out_channels"] * 1.3 / 4))
        _follow(draft, at)


def _follow(draft: Draft, at: int) -> None:
    """Give the blocks right behind a changed layer its width, so that their skips stay skips."""
    layers = draft.layers()
    width = layers[at]["out_channels"]
    for layer in layers[at + 1 :]:
        if layer["type"] not in ("residual", "bottleneck", "mbconv") or layer.get("stride", 1) != 1:
            return
        layer["out_channels"] = width


def _deepen(draft: Draft, situation: Situation, rng: Random, kind: str) -> None:
    """Insert a block that keeps the shape it gets, rather where the image is small: it runs faster there."""
    last = {op.name.split(".")[0]: op.shape for op in situation.space.graph(draft.spec()).ops}
    shapes = [last[f"layer_{number}"] for number in range(1, len(draft.layers()) + 1)]  # outputs of the layers
    at = rng.choices(range(len(shapes)), weights=[1 / max(shape[1:]) for shape in shapes])[0]
    draft.insert({"type": kind, "out_channels": shapes[at][0]}, at + 1)


def _vary(draft: Draft, situation: Situation, rng: Random) -> None:
    """Replace a layer that keeps the size of the image by another type, or take one out, or add one."""
    layers = draft.layers()
    blocks = [i for i, layer in enumerate(layers) if layer["type"] in _SWAP and "out_channels" in layer]
    inner = [i for i in blocks if i and layers[i].get("stride", 1) == 1]
    if not inner or (len(layers) < _MAX_LAYERS and rng.random() < 0.4):
        _deepen(draft, situation, rng, rng.choice(_known(_DEEPEN, situation)))
        return
    at = rng.choice(inner)
    width, old = layers[at]["out_channels"], layers[at]["type"]
    draft.remove(at)
    if rng.random() < 0.75:
        kind = rng.choice([kind for kind in _known(_SWAP, situation) if kind != old])
        draft.insert({"type": kind, "out_channels": width + width % 2}, at)  # ghost wants an even width


def _known(kinds: tuple[str, ...], situation: Situation) -> list[str]:
    """Return the layer types among some that the target runs."""
    return [kind for kind in kinds if kind in situation.space.types]
