"""The fidelity study: which networks it trains, by which proxies, and what is kept of each training."""

import math
from collections import Counter
from collections.abc import Sequence
from random import Random

from pydantic import ValidationError

from automcu_ray.config import load
from automcu_ray.errors import ConfigError
from automcu_ray.footprint import footprint
from automcu_ray.frozen import Frozen
from automcu_ray.graph import Graph
from automcu_ray.protocol import Positive, Protocol
from automcu_ray.record import Candidate
from automcu_ray.remedy import Foresee
from automcu_ray.spec import explain
from automcu_ray.task import Task

FULL, UNTRAINED = "full", "untrained"
_DRAWS = 60  # for each network of the study
_SMALLEST = 1 / 32  # of the largest one's parameters: below it, networks are told apart by anything


class Probe(Frozen):
    """One way to score a network: a protocol, on images whose sides are `shrink` times shorter.

    Without a protocol nothing is trained: the scores are those of the untrained network.
    """

    name: str
    protocol: Protocol | None = None
    shrink: Positive = 1


class Score(Frozen):
    """One number that networks can be ranked by, more is better, and the seconds until it was known.

    `proxy` is the probe, or how far it had come; `reading` says what was read there: the validation accuracy of the
    network as `deployed` or in `float`, the `loss` (less the sum of the epochs' mean training losses: Ru et al. 2021,
    arXiv:2006.04492), or a zero-cost score. Seconds are of CPU time; of wall time where a GPU took part.
    """

    proxy: str
    reading: str
    value: float
    seconds: float


class Measured(Frozen):
    """What one training said about network `number`: its scores, and what went wrong, if anything.

    `key` is a digest of all that it depends on. `repeat` 0 is the proxy's; full training has seeds of its own.
    """

    key: str
    number: int
    probe: str
    repeat: int
    scores: tuple[Score, ...] = ()
    failure: str = ""


class Subject(Frozen):
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


def draw(task: Task, foresee: Foresee, count: int, seed: int) -> list[Subject]:
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
        if not foresee(graph, task):
            found[candidate.hash] = _subject(candidate, graph, task)
    stretches = _stretches(list(found.values()), count)
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
        candidate = rarest.candidate.model_copy(update={"number": number})
        chosen.append(rarest.model_copy(update={"candidate": candidate}))
    return chosen


def _subject(candidate: Candidate, graph: Graph, task: Task) -> Subject:
    sizes, depth = footprint(graph, task.precision), sum(op.weights > 0 for op in graph.ops)
    return Subject(candidate=candidate, parameters=sizes.parameters, macs=sizes.macs, depth=depth)


def _stretches(subjects: Sequence[Subject], count: int) -> list[list[Subject]]:
    """Return the networks by size, in `count` stretches of equal ratio, in the order in which they were drawn."""
    made: list[list[Subject]] = [[] for _ in range(count)]
    largest = max((subject.parameters for subject in subjects), default=1)
    for subject in subjects:
        height = 1 - math.log(subject.parameters / largest) / math.log(_SMALLEST)  # 0 at the smallest, 1 at the largest
        if height >= 0:
            made[min(count - 1, int(height * count))].append(subject)
    return made
