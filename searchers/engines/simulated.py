"""A simulated proposer of known skill: it reads the rows of a prompt as a model would, and climbs by a simple rule.

No language model: it measures the loop around one. What a prompt does not show it does not know; how often it does
something sensible, and how often it errs, is set. Tokens are counted in pieces of words, roughly as tokenizers do.
"""

import json
import re
import time
from collections.abc import Sequence
from random import Random
from typing import Annotated, Any, NamedTuple

from pydantic import Field, NonNegativeFloat

from automcu_ray.networks import notation
from searchers.engines.base import Engine, Reply, Request

Share = Annotated[float, Field(ge=0, le=1)]
_ROW = re.compile(r"^#(\d+) ([^|\n]+?) \| ([^\n]*)$", re.MULTILINE)
_NETWORK = re.compile(r'\{"backbone": \[.*?\}\]')
_PIECE = re.compile(r"[A-Za-z]{1,6}|\d{1,3}|[^\sA-Za-z\d]|\n")
_WORD = re.compile(r"([a-z]+)(\d+)(.*)")
_BLOCKS = ("c", "r", "mb", "b")
_FULL = 0.85  # of a limit: below it networks grow, above it they change their shape
_MOST_WORDS = 12
_WIDEST = 128
_SEEDS_PER_RUN = 1_000_000  # at temperature 0 equal requests get equal answers, but other runs have another model
_CELL_LETTERS = "ns13p"


class Row(NamedTuple):
    """What a prompt says of one candidate; None where it does not say."""

    network: str
    accuracy: float | None
    flash: float | None
    number: int = 0


class SimulatedEngine(Engine):
    """Answers in the form that is asked for: an edit of the best row it is shown.

    Args:
        skill: how often it edits the best candidate that it sees as its rule says; else a random one, at random.
        errors: how often it errs: it repeats a candidate, writes what nobody can read, or far too large.
        seconds: how long an answer takes; 0 answers at once.
    """

    name = "simulated"
    model = "simulated-rule"
    is_language_model = False

    def __init__(self, *, skill: Share = 0.8, errors: Share = 0.05, seconds: NonNegativeFloat = 0.0) -> None:
        self.skill, self.errors, self.seconds = skill, errors, seconds
        self.instant = not seconds
        self.model = f"simulated-rule, skill {skill:g}, errors {errors:g}"

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        if self.seconds:
            time.sleep(self.seconds)
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Reply:
        text = "\n".join(message.content for message in request.messages)
        rng = Random(f"{request.seed}:{text}" if request.temperature else f"{request.seed // _SEEDS_PER_RUN}:{text}")
        answer = json.dumps(self._say(request, text, rng))
        return Reply(
            text=answer,
            prompt_tokens=pieces(text),
            completion_tokens=pieces(answer),
            seconds=self.seconds,
            model=self.model,
        )

    def _say(self, request: Request, text: str, rng: Random) -> dict[str, Any]:
        fields = (request.json_schema or {}).get("properties", {})
        if "problem" in fields:
            return {"problem": "the best is not good enough yet", "suggestion": f"edit {rng.randint(1, 9)}: widen it"}
        if "tool" in fields:
            return self._call(request, text, rng)
        rows, limit = read_rows(text), _flash_limit(text)
        if "cell" in fields:
            return {"cell": "".join(rng.choices(_CELL_LETTERS, k=6))}
        count = fields.get("networks", fields.get("candidates", {})).get("maxItems", 1)
        cells = not limit and "six letters" in text
        letters = "abcde" if "stay hidden" in text else _CELL_LETTERS
        found: list[str] = []
        for _ in range(count):
            seen = [row.network for row in rows] + found
            found.append(self._cell(rows, seen, letters, rng) if cells else self._network(rows, seen, limit, rng))
        if "networks" in fields:
            return {"plan": "the best so far, changed in one place", "networks": found}
        specs = [_json(network) for network in found]
        return {"candidates": specs} if "candidates" in fields else specs[0]

    def _call(self, request: Request, text: str, rng: Random) -> dict[str, Any]:
        """Return the call that is due in a conversation with tools; in its errors it does as agents do that mix roles.

        It goes by the last outcome that it was told: proposed, fits, trained or refused.
        """
        said = [message.content for message in request.messages[1:] if message.role == "user"]
        rows, limit, cells = read_rows(text), _flash_limit(text), "six letters" in text
        proposed, fits = (rf"#(\d+) {state}" for state in ("is proposed", "fits"))
        last = next((one for one in reversed(said) if re.match(rf"{proposed}|{fits}|#\d+ [^|]* \| ", one)), "")
        if rng.random() < self.errors:
            wrong = rng.choice(("training", "evaluation"))
            number = 1000 + len(said)
            return rng.choice(
                (
                    {"plan": "I would widen it"},
                    {"role": wrong, "tool": "propose", "network": "c8"},
                    {"role": wrong, "tool": {"training": "train", "evaluation": "evaluate"}[wrong], "number": number},
                )
            )
        if found := re.match(proposed, last):
            return {"role": "evaluation", "tool": "evaluate", "number": int(found[1])}
        if found := re.match(fits, last):
            return {"role": "training", "tool": "train", "number": int(found[1])}
        if "\n0 trainings left" in last:
            best = max(rows, key=lambda row: row.accuracy or 0)
            return {"role": "supervisor", "tool": "deploy", "number": best.number}
        seen = [row.network for row in rows]
        able = SimulatedEngine(skill=self.skill, errors=0.0)  # its errors are drawn above, once a reply
        network = able._cell(rows, seen, _CELL_LETTERS, rng) if cells else able._network(rows, seen, limit, rng)
        return {"role": "proposal", "tool": "propose", "network": network}

    def _network(self, rows: Sequence[Row], seen: Sequence[str], limit: float, rng: Random) -> str:
        trained = [row for row in rows if row.accuracy is not None]
        if rng.random() < self.errors:
            return rng.choice([*seen, "c999 r999", "I would widen it"])
        for _ in range(50):
            if not trained:
                width = rng.choice((8, 12, 16, 24))
                words = [f"c{width}", *[f"r{width}"] * rng.randint(0, 1), f"d{2 * width}"]
                network = " ".join([*words, *[f"{rng.choice(_BLOCKS)}{2 * width}"] * rng.randint(0, 3)])
            elif rng.random() < self.skill:
                best = max(trained, key=lambda row: row.accuracy or 0)
                network = _climbed(best, limit, rng)
            else:
                network = _varied(rng.choice(trained).network.split(), rng)
            if network not in seen:
                return network
        return network

    def _cell(self, rows: Sequence[Row], seen: Sequence[str], letters: str, rng: Random) -> str:
        trained = [row for row in rows if row.accuracy is not None and len(row.network) == 6]
        if seen and rng.random() < self.errors:
            return rng.choice(seen)
        for _ in range(50):
            if not trained:
                cell = "".join(rng.choice(letters) for _ in range(6))
            else:
                best = max(trained, key=lambda row: row.accuracy or 0)
                parent = best if rng.random() < self.skill else rng.choice(trained)
                at = rng.randrange(6)
                cell = parent.network[:at] + rng.choice(letters) + parent.network[at + 1 :]
            if cell not in seen:
                return cell
        return cell


def pieces(text: str) -> int:
    """Return about how many tokens a text has: words in pieces of six letters, numbers of three digits, each sign."""
    return len(_PIECE.findall(text))


def read_rows(text: str) -> list[Row]:
    """Return what a prompt says of candidates: rows of the compact form, else networks and figures as JSON."""
    rows = []
    for number_of, network, rest in _ROW.findall(text):
        cells = [cell.strip() for cell in rest.split("|")]
        number = re.match(r"\d+\.\d+", cells[0])
        size = re.fullmatch(r"~?(\d+\.\d)", cells[2]) if number and len(cells) > 2 else None
        flash = float(size[1]) if size else None
        rows.append(Row(network, float(number[0]) if number else None, flash, int(number_of)))
    if rows:
        return rows
    found = list(_NETWORK.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)] * bool(found)
    for match, end in zip(found, ends, strict=True):
        after = text[match.end() : end]
        accuracy = re.search(r'"accuracy": ([\d.]+)', after)
        flash_bytes = re.search(r'"flash_bytes": (\d+)', after)
        words = " ".join(map(_word, json.loads(match[0] + "}")["backbone"]))
        flash = int(flash_bytes[1]) / 1024 if flash_bytes else None
        rows.append(Row(words, 100 * float(accuracy[1]) if accuracy else None, flash))
    return rows


def _flash_limit(text: str) -> float:
    """Return the limit of Flash in KB, 0 where the prompt names none."""
    found = re.search(r'Flash ([\d,]+) bytes \(|"flash_bytes": (\d+)', text)
    return int((found[1] or found[2]).replace(",", "")) / 1024 if found else 0.0


def _climbed(best: Row, limit: float, rng: Random) -> str:
    """Return the best network wider or deeper while there is room, else with another shape of the same size."""
    words = best.network.split()
    share = (best.flash or 0.5 * limit) / limit if limit else 1.0
    if share < _FULL and rng.random() < 0.5:
        return " ".join(_wider(word, min(1.5, (0.95 / share) ** 0.5)) for word in words)
    if share < _FULL and len(words) < _MOST_WORDS:
        return _deeper(words, rng)
    return _varied(words, rng)


def _deeper(words: list[str], rng: Random) -> str:
    at = rng.randrange(len(words))
    width = next((found[2] for word in reversed(words[: at + 1]) if (found := _WORD.fullmatch(word))), "16")
    return " ".join([*words[: at + 1], f"{rng.choice(('r', 'mb', 'b'))}{width}", *words[at + 1 :]])


def _varied(words: list[str], rng: Random) -> str:
    """Return the words with one block of another type, one width changed, or one word less."""
    at, way = rng.randrange(len(words)), rng.random()
    found = _WORD.fullmatch(words[at])
    if way < 0.4 and found and found[1] in _BLOCKS and found[3] == "":
        changed = [f"{rng.choice(_BLOCKS)}{found[2]}"]
    elif way < 0.8 or len(words) < 3:
        changed = [_wider(words[at], rng.choice((0.7, 0.85, 1.15, 1.3)))]
    else:
        changed = []
    return " ".join([*words[:at], *changed, *words[at + 1 :]])


def _wider(word: str, factor: float) -> str:
    found = _WORD.fullmatch(word)
    if found is None or found[1] in ("mp", "ap"):
        return word
    return f"{found[1]}{min(_WIDEST, max(4, 2 * round(int(found[2]) * factor / 2)))}{found[3]}"


def _json(network: str) -> dict[str, Any]:
    try:
        return notation.read(network).compact()
    except ValueError:
        return {"backbone": network}


def _word(layer: dict[str, Any]) -> str:
    """Return a layer of JSON as a word, as far as the rule knows it."""
    size = layer.get("out_channels", layer.get("kernel_size", 2))
    stride = "s2" if layer.get("stride") == 2 and layer["type"] != "downsample" else ""
    return f"{notation.KINDS.get(layer['type'], 'c')}{size}{stride}"
