"""A search that begins with a network of the user's: as code, or as the nearest spec, made to fit."""

import json
from pathlib import Path

from automcu_ray.core.errors import ConfigError, ToolchainError
from automcu_ray.deploy import foreign
from automcu_ray.deploy.nearest_spec import Reading
from automcu_ray.networks.candidate import START_FROM, Candidate, GeneratedCode
from automcu_ray.networks.code_screening import CodeError, code_hash, screen
from automcu_ray.networks.graph import ConstructibilityError, Graph
from automcu_ray.networks.spec import ArchitectureSpec, explain
from automcu_ray.problem.task import Task
from automcu_ray.run.warm_start import made_to_fit
from automcu_ray.runtime.config import RunConfig
from automcu_ray.sizing.repair import BoundCheck
from trainables.jail.client import Jail
from trainables.jail.conversation import CandidateError

_NO_WEIGHTS = "its weights are not taken over: every candidate is trained anew, alike"
_MOST_NAMED = 8


def start_point(path: Path, config: RunConfig, task: Task, check_bounds: BoundCheck) -> tuple[Candidate, list[str]]:
    """Return the first point of a search, and what a user should know of it, a line each.

    Where candidates are code, a Python file is taken as it is: the reference of paper 002, and the first candidate.
    Else an ONNX file, or a Python file that is built and exported in the jail, is read as the nearest spec.

    Raises:
        ConfigError: no such file, not one that can be begun with, or nothing of it fits here at any width.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"start_from: {path} cannot be read: {error.strerror}.") from error
    if path.suffix not in (".onnx", ".py"):
        raise ConfigError(f"start_from takes a .onnx file, or a .py file with a class Net, found {path.name!r}.")
    if task.form == "cell":
        raise ConfigError("start_from: this task searches cells of NAS-Bench-201, and a network is none: leave it out.")
    code = content.decode(errors="replace") if path.suffix == ".py" else ""
    if config.writes_code and not code:
        raise ConfigError("start_from: candidates are code here, which an ONNX file holds none of: give a .py file.")
    try:
        if code:
            screen(code)
        if config.writes_code:
            network = GeneratedCode(code=code)
            told = [f"started from {path.name}: its code comes first, and is what is improved; {_NO_WEIGHTS}"]
            return Candidate(hash=code_hash(code), network=network, proposer=START_FROM), told
        model = Jail(task, config.jail).check(code).inference if code else content
        return _as_spec(path.name, foreign.nearest_spec(model, task.input_shape), task, check_bounds)
    except (CandidateError, CodeError, ToolchainError) as error:
        raise ConfigError(f"start_from: {path.name}: {error}") from error


def _as_spec(name: str, found: Reading, task: Task, check_bounds: BoundCheck) -> tuple[Candidate, list[str]]:
    try:
        spec = ArchitectureSpec.model_validate({"backbone": found.layers, "head": {"positions": found.positions}})
        whole = task.space.candidate(spec)
    except ConstructibilityError as error:
        raise ConfigError(f"start_from: {name}, read as a spec, cannot be built for this task: {error}.") from error
    except ValueError as error:
        raise ConfigError(f"start_from: {name} is no spec: {explain(error)}.") from error
    assert whole.structure is not None, "a spec is one"
    point, share = made_to_fit(spec, task, check_bounds, None, START_FROM)
    if point is None or point.spec is None:
        raise ConfigError(f"start_from: {name} is too large for this target at any width: leave it out.")
    graph = task.graph(point.spec)
    lost = sum(found.lost.values())
    named = [f"{what} ({count})" if count > 1 else what for what, count in found.lost.most_common(_MOST_NAMED)]
    more = f", and {len(found.lost) - _MOST_NAMED} more" if len(found.lost) > _MOST_NAMED else ""
    told = [
        f"started from {name}, read as: {json.dumps(spec.compact())}",
        f"without a counterpart, of {found.operators} operators, {lost}{': ' if named else ''}{', '.join(named)}{more}",
        f"distance: {_compared(task.graph(whole.structure), found)}",
    ]
    if share < 1:
        told.append(f"made to fit: {share:.0%} of its channels, {_compared(graph, found)}")
    return point, [*told, _NO_WEIGHTS]


def _compared(graph: Graph, found: Reading) -> str:
    weights = sum(op.weights + op.biases for op in graph.ops)
    macs = sum(op.macs for op in graph.ops)
    return (
        f"{weights:,} weights against {found.weights:,} of the network, {macs:,} multiply-accumulates against "
        f"{found.macs:,}"
    )
