"""The fidelity study: which networks it trains, by which proxies, and what is kept of each training."""

import math
from collections import Counter
from random import Random

from pydantic import ValidationError

from automcu_ray.core.errors import ConfigError
from automcu_ray.core.models import FrozenModel
from automcu_ray.core.training_recipe import Positive, Protocol
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.spec import explain
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config_files import load
from automcu_ray.sizing.footprint import footprint
from automcu_ray.sizing.repair import BoundCheck

FULL, UNTRAINED = "full", "untrained"
_DRAWS = 60  # for each network of the study
_SMALLEST = 1 / 32  # of the largest one's parameters: below it, networks are told apart by anything


class Probe(FrozenModel):
    """One way to score a network: a protocol, on images whose sides are `shrink` times shorter.

    Without a protocol nothing is trained: the scores are those of the untrained network.
    """

    name: str
    protocol: Protocol | None = None
    shrink: Positive = 1


class Subject(FrozenModel):
    """A network of the study; its depth is the number of operators that have weights."""

    candidate: Candidate
    parameters: int
    macs: int
    depth: int

    @property
    def number(self) -> int:
        """What measurements call it."""
        return self.candidate.number


def load_probes(name: str, full: Protocol) -> list[Probe]:
    """Return full training, the untrained network, and the probes of configs/fidelity by name or from a YAML file.

    Raises:
        ConfigError: no such file, or a key or value that no protocol can have.
    """
    probes = [Probe(name=FULL, protocol=full), Probe(name=UNTRAINED)]
    for label, changes in load("fidelity", name).items():
        try:
            rest = dict(changes)
            shrink = rest.pop("shrink", 1)
            probes.append(Probe(name=label, protocol=Protocol(**{**full.model_dump(), **rest}), shrink=shrink))
        except (ValidationError, TypeError, ValueError) as error:
            why = explain(error) if isinstance(error, ValidationError) else "wanted `field: value` of a protocol"
            raise ConfigError(f"fidelity {name}, {label!r}: {why}.") from error
    return probes


def draw(task: Task, check_bounds: BoundCheck, count: int, seed: int) -> list[Subject]:
    """Return `count` networks that may fit, smallest first: spread evenly over the logarithm of their parameters.

    Of the random ones in each stretch of it, from the largest's 32nd part on, one of the rarest depth so far is taken.
    Whether they fit is what the bounds say: no toolchain is asked.

    Raises:
        ConfigError: too few networks fit.
    """
    rng, found = Random(seed), dict[str, Subject]()
    for _ in range(_DRAWS * count):
        candidate = task.choices.sample(rng)
        assert candidate.structure is not None, "a sample can be built"
        graph = task.graph(candidate.structure)
        if not check_bounds(graph, task):
            sizes, depth = footprint(graph, task.precision), sum(op.weights > 0 for op in graph.ops)
            found[candidate.hash] = Subject(
                candidate=candidate, parameters=sizes.parameters, macs=sizes.macs, depth=depth
            )
    stretches: list[list[Subject]] = [[] for _ in range(count)]
    largest = max((subject.parameters for subject in found.values()), default=1)
    for subject in found.values():
        height = 1 - math.log(subject.parameters / largest) / math.log(_SMALLEST)  # 0 at the smallest, 1 at the largest
        if height >= 0:
            stretches[min(count - 1, int(height * count))].append(subject)
    if not all(stretches):
        raise ConfigError(
            f"only {sum(map(bool, stretches))} of {count} sizes have a network within the limits of "
            f"{task.target.name}: ask for fewer (--specs), or raise constraints.ram_kb or constraints.flash_kb."
        )
    depths: Counter[int] = Counter()
    chosen = []
    for number, stretch in enumerate(stretches, start=1):
        rarest = min(stretch, key=lambda subject: depths[subject.depth])
        depths[rarest.depth] += 1
        chosen.append(rarest.replace(candidate=rarest.candidate.replace(number=number)))
    return chosen
