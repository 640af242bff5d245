"""What a reader asks first of a finished run, in a line each: why this network, what limits it, how sure it is."""

import math
from collections import Counter
from collections.abc import Sequence

from automcu_ray.records.events import Decided
from automcu_ray.records.journal import Repository
from automcu_ray.records.manifest import NetworkManifest
from automcu_ray.records.record import Record
from automcu_ray.sizing.near_misses import TITLES

_NORMAL_95 = 1.959964  # standard deviations on either side of the middle 95 % of a normal distribution
_FULL = 0.9  # of a limit: from here on it is said where the RAM goes


def in_short(manifest: NetworkManifest, repository: Repository) -> list[tuple[str, str]]:
    """Return questions and answers about a winner; what nobody knows is left out."""
    chosen = [one.reason for one in repository.all(Decided) if one.decision == "ship"]
    found = {
        "Why this one": chosen[-1] if chosen else "",
        "What limits it": _limit(manifest),
        "How sure its accuracy is": _sureness(manifest),
        "What was refused most": refused_most(repository.records),
    }
    return [(question, answer) for question, answer in found.items() if answer]


def refused_most(records: Sequence[Record]) -> str:
    """Return for what candidates were refused, and at which rung, the most frequent first."""
    refused = [record for record in records if record.status == "infeasible"]
    counted = Counter(
        (TITLES.get(violation.resource, violation.resource), str(violation.rung))
        for record in refused
        for violation in (record.candidate.violations or (record.feasibility.violations if record.feasibility else ()))
    )
    if not refused:
        return "nothing was refused"
    named = ", ".join(f"{resource} at {rung} ({times})" for (resource, rung), times in counted.most_common(4))
    return f"{len(refused)} of {len(records)} candidates were refused, for {named}"


def interval(right: int, of: int) -> tuple[float, float]:
    """Return between which shares the true one lies with 95 % confidence, `right` of `of` having been counted.

    Wilson's score interval (Wilson 1927, doi:10.1080/01621459.1927.10502953), which holds near 0 and 1 too.
    """
    share, spread = right / of, _NORMAL_95**2 / of
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread**2 / 4) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def _limit(manifest: NetworkManifest) -> str:
    """Return which limit is nearest, and where RAM is fullest if it is that."""
    sizes = {
        "RAM": (manifest.ram_bytes, manifest.ram_limit_bytes),
        "Flash": (manifest.flash_bytes, manifest.flash_limit_bytes),
        "instructions": (manifest.instructions, manifest.instructions_limit),
    }
    shares = {name: used / limit for name, (used, limit) in sizes.items() if used is not None and limit}
    if not shares:
        return ""
    nearest = max(shares, key=shares.__getitem__)
    said = ", ".join(f"{math.floor(100 * share)} % of the {name}" for name, share in shares.items())
    answer = f"{nearest}{'' if shares[nearest] >= _FULL else ', if anything'}: of what is allowed it uses {said}"
    arena = manifest.memory_map
    if nearest == "RAM" and shares["RAM"] >= _FULL and arena is not None and arena.fullest is not None:
        answer += f"; RAM is fullest while {arena.steps[arena.fullest]} runs"
    return answer


def _sureness(manifest: NetworkManifest) -> str:
    """Return the interval of the test accuracy, where answers were counted."""
    of = sum(map(sum, manifest.confusion))
    if not of:
        return ""
    right = sum(row[at] for at, row in enumerate(manifest.confusion))
    low, high = interval(right, of)
    return (
        f"{right:,} of {of:,} test images are right, so of all images like them between {low * 100:.1f} and "
        f"{high * 100:.1f} % (95 % confidence); another training would give other weights"
    )
