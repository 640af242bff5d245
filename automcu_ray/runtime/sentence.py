"""A sentence as the task: names, amounts and comparisons by a grammar, and a question for whatever it leaves open.

Nothing but the fields of `Wish` can come out of a sentence, whatever it says.
"""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from automcu_ray.core.cost import Cost
from automcu_ray.core.models import FrozenModel
from automcu_ray.problem.target import BYTES_PER_KB, McuTarget
from automcu_ray.runtime import vocabulary as words
from automcu_ray.runtime.amounts import Reader, take_amounts
from automcu_ray.runtime.config_files import load, names

MOST_CHARS = 1000
_SIMILAR = 0.84  # of two phrases, by difflib: "handwriten digts" is 0.94 like "handwritten digits"
_KNOWN = {*words.PASSED_OVER, *words.RAM, *words.FLASH}
_KNOWN |= {word for phrase in (*words.AT_MOST, *words.AT_LEAST, *words.INFERENCE) for word in phrase.split()}
_CHIP = re.compile(
    r"\b(?:stm32|nrf|rp|esp|max7|sam[de]?|lpc|gd32|atmega|imxrt|apollo|ensemble|esp)[a-z]?\d[\w-]*|\besp\b"
)
_FOLDER = re.compile(r"(?:in|from|under|aus|dans)\s+((?:~|\.{1,2})?/?[\w.-]+/[\w./-]*|/[\w./-]+)")


class Wish(FrozenModel):
    """What a sentence asks for; None where it says nothing. Sizes in bytes, times in seconds, `accuracy` of 1."""

    task: str | None = None
    target: str | None = None
    folder: str | None = None
    ram: int | None = None
    flash: int | None = None
    accuracy: float | None = None
    latency: float | None = None
    instructions: float | None = None
    time: float | None = None
    money: float | None = None
    objective: str | None = None
    precision: str | None = None

    @property
    def choices(self) -> dict[str, str]:
        """The files of `configs/` that it names."""
        return {key: value for key, value in (("task", self.task), ("target", self.target)) if value is not None}

    @property
    def settings(self) -> list[str]:
        """What it sets, as `--set` would; a limit that it does not name is the board's own."""
        plain = {
            "constraints.ram_kb": "null" if self.ram is None else f"{self.ram / BYTES_PER_KB:.12g}",
            "constraints.flash_kb": "null" if self.flash is None else f"{self.flash / BYTES_PER_KB:.12g}",
            "constraints.accuracy": self.accuracy,
            "constraints.latency_ms": self.latency and f"{self.latency * 1000:.12g}",
            "constraints.instructions_m": self.instructions and f"{self.instructions / 1e6:.12g}",
            "budget.seconds": self.time,
            "budget.max_usd": self.money,
            "objective": self.objective,
            "precision": self.precision,
            "dataset.folder": self.folder and json.dumps(self.folder),
        }
        return [f"{key}={value}" for key, value in plain.items() if value is not None]


class Understood(NamedTuple):
    """A wish, the questions that it leaves open by what they are about, and words that say nothing to the grammar."""

    wish: Wish
    questions: dict[str, str]
    passed_over: list[str]


class Reading(NamedTuple):
    """What a sentence comes to; where an engine was asked about it, what is said of its part, and what that cost."""

    understood: Understood
    said: str = ""
    cost: Cost = Cost()


class Heard(NamedTuple):
    """What a second reader takes a field of a wish for, and its words for it."""

    value: object
    shown: str


def plain(sentence: str) -> str:
    """Return a sentence in one line, with an end: what is read of it."""
    return " ".join(sentence.split())[:MOST_CHARS]


def understand(
    sentence: str, given: Mapping[str, str | None] | None = None, heard: Mapping[str, Heard] | None = None
) -> Understood:
    """Return what a sentence asks for; `given` are task and target that flags name already.

    `heard` is what a second reader has understood, by field: it is held against what the grammar reads, and where
    both differ that is a question.
    """
    text = plain(sentence)
    low = text.lower()
    reader = Reader()
    rest = take_amounts(low, reader)
    rest = _task(rest, text, reader)
    rest = _board(rest, reader)
    for what, table in (("objective", words.OBJECTIVES), ("precision", words.PRECISIONS)):
        for value, phrases in table.items():
            for phrase in _said(phrases, rest):
                reader.take(what, value, value)
                rest = rest.replace(phrase, " ")
    for what, other in (heard or {}).items():
        reader.take(what, other.value, other.shown)
    sizes = (reader.found.get("ram"), reader.found.get("flash"))
    for size, shown in reader.unplaced.items():
        if size not in sizes:
            reader.questions["memory"] = f"{shown} of what: RAM or flash?"
    known = {**{key: value for key, value in (given or {}).items() if value is not None}, **reader.found}
    _ask(reader, known)
    left = [word for word in re.findall(r"[^\W\d_][\w-]+", rest) if word not in _KNOWN]
    wish = Wish.model_validate({key: value for key, value in reader.found.items() if key not in reader.questions})
    return Understood(wish, reader.questions, list(dict.fromkeys(left)))


def describe(wish: Wish) -> list[str]:
    """Return the wish line by line, for people."""
    sizes = {
        "RAM": "the board's own" if wish.ram is None else f"at most {wish.ram / BYTES_PER_KB:g} KB",
        "Flash": "the board's own" if wish.flash is None else f"at most {wish.flash / BYTES_PER_KB:g} KB",
    }
    lines = [f"task: {wish.task or 'as the flag says'}", f"board: {wish.target or 'as the flag says'}"]
    lines += [f"{name}: {size}" for name, size in sizes.items()]
    more = {
        "folder": wish.folder,
        "accuracy": wish.accuracy and f"at least {wish.accuracy * 100:g} %",
        "latency": wish.latency and f"at most {wish.latency * 1000:g} ms an inference (an estimate)",
        "instructions": wish.instructions and f"at most {wish.instructions:g} an inference",
        "search": wish.time and f"at most {wish.time:g} s",
        "language model": wish.money and f"at most ${wish.money:g}",
        "sought": wish.objective and f"the least {wish.objective} at that accuracy",
        "precision": wish.precision,
    }
    return [*lines, *(f"{name}: {value}" for name, value in more.items() if value is not None)]


# Names ------------------------------------------------------------------------------------------------------


def _said(phrases: Iterable[str], low: str) -> Iterator[str]:
    """Yield the phrases that a text holds as whole words, the longest first."""
    for phrase in sorted(phrases, key=len, reverse=True):
        pattern = re.escape(phrase).replace(r"\ ", r"[\s_:-]*")
        if found := re.search(rf"(?<!\w){pattern}(?!\w)", low):
            yield found[0]
            low = low.replace(found[0], " ")


def _task(rest: str, text: str, reader: Reader) -> str:
    if folder := _FOLDER.search(text):
        reader.take("folder", folder[1], folder[1])
        reader.take("task", "images", "images")
        rest = rest.replace(folder[0].lower(), " ")
    own = {name: (name, name.replace("_", " ")) for name in names("task")}
    phrases = {name: (*own.get(name, ()), *words.TASKS.get(name, ())) for name in {**words.TASKS, **own}}
    for name, listed in phrases.items():  # spoken digits before digits
        for found in _said(listed, rest):
            if not (name == "images" and "task" in reader.found):
                reader.take("task", name, name)
            rest = rest.replace(found, " ")
    if "task" not in reader.found:
        rest = _similar_task(rest, phrases, reader)
    return rest


def _similar_task(rest: str, phrases: Mapping[str, Iterable[str]], reader: Reader) -> str:
    """Take the task whose phrase is most like some words beside each other, a letter or two apart."""
    heard = re.findall(r"[^\W_][\w-]*", rest)
    best = (_SIMILAR, "", "")
    for name, listed in phrases.items():
        for phrase in (one for one in listed if len(one) >= 6):
            size = len(phrase.split())
            for start in range(len(heard) - size + 1):
                said = " ".join(heard[start : start + size])
                best = max(best, (difflib.SequenceMatcher(None, said, phrase).ratio(), name, said))
    if best[1]:
        reader.take("task", best[1], best[1])
        rest = rest.replace(best[2], " ")
    return rest


def _board(rest: str, reader: Reader) -> str:
    known = names("target")
    for name, listed in words.BOARDS.items():
        for found in _said(listed, rest):
            reader.take("target", name, name)
            rest = rest.replace(found, " ")
    for heard in re.findall(r"[a-z][a-z0-9_-]*\d[\w-]*|\besp\b", rest):
        plain = re.sub(r"[_-]", "", heard)
        fits = [name for name in known if plain.startswith(name) or name.removeprefix("stm32") == plain]
        if fits:
            reader.take("target", max(fits, key=len), heard)
        elif _CHIP.fullmatch(heard) or plain.startswith("cortex"):
            near = difflib.get_close_matches(plain, known, n=3, cutoff=0.6)
            hint = f"the nearest are {', '.join(near)}" if near else "automcu doctor lists them"
            reader.questions["target"] = f"board {heard!r} is none that is known here ({hint}): which board?"
        else:
            continue
        rest = rest.replace(heard, " ")
    return rest


def _ask(reader: Reader, known: Mapping[str, object]) -> None:
    """Ask for what is missing, and for what the board cannot give."""
    if "task" not in known:
        reader.questions.setdefault("task", f"what should be told apart (task): {', '.join(names('task'))}?")
    if "target" not in known:
        reader.questions.setdefault("target", "which board (target): for instance stm32f407, nrf52840, rp2040?")
    if "objective" in known and "accuracy" not in known:
        reader.questions["accuracy"] = "the least is sought, of networks of which accuracy (for instance 95 %)?"
    chip = known.get("target")
    if not isinstance(chip, str) or "target" in reader.questions:
        return
    target = McuTarget.model_validate(load("target", chip))
    if "accuracy" in known and "objective" not in known:  # among what is accurate enough, something has to choose
        reader.found["objective"] = "instructions" if target.emulator is not None else "flash"
    for what, region in (("ram", target.main_ram), ("flash", target.flash)):
        size = known.get(what)
        if isinstance(size, int) and size > region.size_bytes:
            asked = f"{size / BYTES_PER_KB:g} KB of {what}"
            reader.questions[what] = f"{asked} are more than the {region.size_kb:g} KB of {target.name}: how much?"
    if known.get("latency") is not None and target.cycles_per_instruction is None:
        reader.questions["latency"] = (
            f"a time for {target.name} cannot be estimated: nobody measured its cycles an instruction; say how many "
            "million instructions an inference may take?"
        )
