"""Amounts as people write them: bytes with KB of 1024, seconds, shares.

A units library (pint 0.25) knows neither KB nor Ko nor Minuten, reads `20 ms` as millisiemens where case is not to
count, and takes a third of a second to load: these words would have to be told to it all the same.
"""

import re

from automcu_ray.core.errors import ConfigError

BYTES: dict[str, float] = {"b": 1, "byte": 1, "bytes": 1, "octets": 1}
BYTES |= {f"k{end}": 1 << 10 for end in ("", "b", "ib", "o", "byte", "bytes", "ilobytes")}
BYTES |= {f"m{end}": 1 << 20 for end in ("b", "ib", "o", "byte", "bytes", "egabytes")}
SECONDS: dict[str, float] = {
    **dict.fromkeys(("us", "µs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds", "millisekunden", "millisecondes"), 1e-3),
    **dict.fromkeys(("s", "sec", "second", "seconds", "sekunden", "secondes", "segundos"), 1.0),
    **dict.fromkeys(("min", "mins", "minute", "minutes", "minuten", "minutos"), 60.0),
    **dict.fromkeys(("h", "hour", "hours", "hr", "hrs", "stunden", "heures", "horas"), 3600.0),
}
JOULES: dict[str, float] = {"uj": 1e-6, "µj": 1e-6, "mj": 1e-3, "j": 1.0}
AMPERES: dict[str, float] = {"ua": 1e-6, "µa": 1e-6, "ma": 1e-3, "a": 1.0}
NUMBER = r"\d{1,12}(?:,\d{3})*(?:[.,]\d{1,9})?"
_AMOUNT = re.compile(rf"\s*({NUMBER})\s*([a-zµ]*)\s*", re.IGNORECASE)
_SETTINGS: dict[
    str, tuple[str, dict[str, float], float]
] = {  # key of a setting that takes units: the key behind it, its units, and how many of them it counts in
    "constraints.ram": ("constraints.ram_kb", BYTES, 1 << 10),
    "constraints.flash": ("constraints.flash_kb", BYTES, 1 << 10),
    "constraints.ram_kb": ("constraints.ram_kb", BYTES, 1 << 10),
    "constraints.flash_kb": ("constraints.flash_kb", BYTES, 1 << 10),
    "constraints.latency": ("constraints.latency_ms", SECONDS, 1e-3),
    "constraints.latency_ms": ("constraints.latency_ms", SECONDS, 1e-3),
    "constraints.energy": ("constraints.energy_mj", JOULES, 1e-3),
    "constraints.energy_mj": ("constraints.energy_mj", JOULES, 1e-3),
    "constraints.current": ("constraints.current_ma", AMPERES, 1e-3),
    "constraints.current_ma": ("constraints.current_ma", AMPERES, 1e-3),
    "budget.time": ("budget.seconds", SECONDS, 1.0),
    "budget.seconds": ("budget.seconds", SECONDS, 1.0),
}


def number(text: str) -> float:
    """Return "1,024" as 1024, "1,5" and "1.5" as 1.5: a comma before three digits groups thousands."""
    grouped = re.sub(r",(?=\d{3}(?!\d))", "", text)
    return float(grouped.replace(",", "."))


def in_plain_numbers(setting: str) -> str:
    """Return `constraints.ram=24KB` as `constraints.ram_kb=24`; a setting without units as it is.

    Raises:
        ConfigError: a unit that is none of this amount.
    """
    key, equals, text = setting.partition("=")
    if not equals or key not in _SETTINGS:
        return setting
    plain, units, base = _SETTINGS[key]
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return f"{plain}={text}"  # null, or something that validation will name
    if not found[2]:
        if plain != key:
            raise ConfigError(f"--set {key} wants a unit, such as {text.strip()}{_example(units)}; {plain} is without.")
        return setting
    if found[2].lower() not in units:
        raise ConfigError(f"--set {key}: wanted an amount such as 24{_example(units)}, found {text[:40]!r}.")
    return f"{plain}={number(found[1]) * units[found[2].lower()] / base:.12g}"


def _example(units: dict[str, float]) -> str:
    examples = [(BYTES, "KB"), (SECONDS, "ms or min"), (JOULES, "mJ"), (AMPERES, "mA")]
    return next(example for known, example in examples if known is units)
