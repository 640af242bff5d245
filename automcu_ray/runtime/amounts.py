"""Amounts in a sentence: what each is of, by its unit and the words beside it, and which way it is compared."""

import re

from automcu_ray.runtime import vocabulary as words
from automcu_ray.runtime.units import BYTES, NUMBER, SECONDS, number

_UNITS = sorted({*BYTES, *SECONDS, "percent", "prozent", "usd", "dollars", "dollar", "cents", "m", "million"}, key=len)
_UNIT = "|".join(re.escape(unit) for unit in reversed(_UNITS))  # the longest first
_AMOUNT = re.compile(rf"(?<![\w.])(\$?)\s?({NUMBER})\s?(%|(?:{_UNIT})(?![\w]))?")


class Reader:
    """Collects what a sentence says; a second word on the same thing that differs is a question."""

    def __init__(self) -> None:
        self.found: dict[str, object] = {}
        self.questions: dict[str, str] = {}
        self.unplaced: dict[int, str] = {}  # bytes of which memory nobody has said yet
        self._shown: dict[str, str] = {}

    def take(self, what: str, value: object, shown: str) -> None:
        """Take a value, said as `shown`."""
        if self.found.setdefault(what, value) != value:
            both = f"{self._shown[what]} and {shown}"
            self.questions[what] = f"{what} is said twice, and differently ({both}): which?"
        self._shown.setdefault(what, shown)


def take_amounts(low: str, reader: Reader) -> str:
    """Take all amounts, and return the text without them."""
    found = [match for match in _AMOUNT.finditer(low) if match[1] or match[3] or _is_share(match, low)]
    for index, match in enumerate(found):
        before = low[found[index - 1].end() if index else 0 : match.start()]
        after = low[match.end() : found[index + 1].start() if index + 1 < len(found) else len(low)]
        _amount(match, before, after, reader)
    for match in reversed(found):
        low = low[: match.start()] + " " + low[match.end() :]
    return low


def _is_share(match: re.Match[str], low: str) -> bool:
    """Return whether a bare number is an accuracy, as in "accuracy 0.97"."""
    return match[2].startswith("0.") and any(word in low for word in ("accura", "genauigkeit"))


def _amount(match: re.Match[str], before: str, after: str, reader: Reader) -> None:
    unit, shown = match[3] or "", match[0].strip()
    value = number(match[2])
    least = _compared(before, after)
    if match[1] or unit in ("usd", "dollar", "dollars", "cents"):
        reader.take("money", value / 100 if unit == "cents" else value, shown)
    elif unit in ("%", "percent", "prozent", ""):
        wrong = "error" in _near(before, after)
        share = value / 100 if unit else value
        if least == "most" and not wrong:
            reader.questions["accuracy"] = f"accuracy of at most {shown}: should it be at least that?"
        elif not 0 < share < 1:
            reader.questions["accuracy"] = f"accuracy of {shown}: wanted more than 0 and less than 100 %"
        else:
            reader.take("accuracy", round(1 - share if wrong else share, 6), shown)
    elif unit in ("m", "million"):
        if "instruction" in after[:25]:
            reader.take("instructions", value * 1e6, shown)
    elif unit in SECONDS:
        short = unit in ("ms", "msec", "us", "µs") or unit.startswith(("milli", "micro"))
        each = short or any(word in _near(before, after) for word in words.INFERENCE)
        reader.take("latency" if each else "time", value * SECONDS[unit], shown)
    else:
        _memory(round(value * BYTES[unit]), least, before, after, shown, reader)


def _memory(size: int, least: str, before: str, after: str, shown: str, reader: Reader) -> None:
    behind = re.match(r"\s*(?:of\s|de\s|an\s)?\s*(\w+)", after)
    named = [behind[1]] if behind else []
    named += re.findall(r"\w+", before)[::-1][:6]  # "RAM below 32 KB": the nearest word counts
    for word in named:
        what = "ram" if word in words.RAM else "flash" if word in words.FLASH else ""
        if what and least == "least":
            reader.questions[what] = f"{what} of at least {shown}: a limit is the most that may be used; how much?"
            return
        if what:
            return reader.take(what, size, shown)
    reader.unplaced[size] = shown


def _compared(before: str, after: str) -> str:
    """Return "most" or "least" where a comparison stands before an amount, or behind it."""
    near = {"most": words.AT_MOST, "least": words.AT_LEAST}
    ends = re.sub(r"[^\w<>=≤≥]+", " ", before).rstrip()
    starts = re.sub(r"[^\w<>=≤≥]+", " ", after).lstrip()[:40]
    places = [
        (len(phrase), side)
        for side, phrases in near.items()
        for phrase in phrases
        if re.search(rf"(?:^|\s|\b){re.escape(phrase)}$", ends) or re.match(rf"(?:or )?{re.escape(phrase)}\b$", starts)
    ]
    return max(places)[1] if places else ""


def _near(before: str, after: str) -> str:
    return re.split(r"[,;]|\band\b", before)[-1][-30:] + " " + re.split(r"[,;.]|\band\b", after)[0][:30]
