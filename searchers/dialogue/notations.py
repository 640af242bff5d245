"""What a candidate is called in prompts and replies: one short line, of a network or of a cell."""

from collections.abc import Collection, Sequence
from random import Random
from typing import Any, Literal, Protocol

from pydantic import ValidationError

from automcu_ray.core.errors import ConfigError
from automcu_ray.networks import code_outline, notation, notation_pattern
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.cell import EDGES, OPERATIONS, CellSpec
from automcu_ray.networks.cell_space import CellSpace
from automcu_ray.networks.search_space import Space
from automcu_ray.networks.spec import ArchitectureSpec, explain
from automcu_ray.problem.task import Task

NotationName = Literal["compact", "json"]
_LETTERS = {"none": "n", "skip_connect": "s", "nor_conv_1x1": "1", "nor_conv_3x3": "3", "avg_pool_3x3": "p"}
_HIDDEN = "abcde"
_LEGEND = (
    "A cell is six letters, one an edge, such as 3s31p3. Nodes 0 (input) to 3 (output) hold maps of one shape; a node",
    "is the sum of what its edges bring. Edges in order: 0-1, 0-2, 1-2, 0-3, 1-3, 2-3 (from-to).",
    "Letters: n nothing; s identity; 1 ReLU, 1x1 convolution, batch norm; 3 the same with 3x3; p 3x3 average pool.",
)
_BLIND_LEGEND = (
    "A candidate is six letters, each of a, b, c, d, e. Places and letters have meanings that stay hidden.",
)


class Notation(Protocol):
    """Writes candidates as one line, and reads them back."""

    noun: str
    change_chars: int  # of a change that is said in a row: both lines say a longer one as well

    @property
    def legend(self) -> Sequence[str]: ...

    def write(self, candidate: Candidate) -> str: ...

    def read(self, found: Any) -> Candidate:
        """Return the candidate that a line, or its JSON, stands for.

        Raises:
            ConstructibilityError: it cannot be built.
            ValueError: it is none; `explain` says why.
        """
        ...

    def pattern(self, tried: Collection[str]) -> str:
        """Return a regular expression of the lines that may be written, without those tried where it can be."""
        ...


class SpecNotation:
    """Networks as words, one a layer: `c24 r24 d32`."""

    noun = "network"
    change_chars = 32

    def __init__(self, space: Space) -> None:
        self.space = space

    @property
    def legend(self) -> Sequence[str]:
        return notation.legend(self.space)

    def write(self, candidate: Candidate) -> str:
        return "" if candidate.spec is None else notation.write(candidate.spec)

    def read(self, found: Any) -> Candidate:
        spec = notation.read(found) if isinstance(found, str) else ArchitectureSpec.model_validate(found)
        return self.space.candidate(spec)

    def pattern(self, tried: Collection[str]) -> str:
        return notation_pattern.pattern(self.space)


class CodeNotation:
    """PyTorch code as an outline of its layers, for rows: it is read back from nothing but the code itself."""

    noun = "network"
    change_chars = 120
    legend = ("A row names the layers that a network's code makes, in order of its text.",)

    def write(self, candidate: Candidate) -> str:
        return code_outline.outline(candidate.code) if candidate.code else ""

    def read(self, found: Any) -> Candidate:
        raise ValueError("code is written in full, not as its outline")

    def pattern(self, tried: Collection[str]) -> str:
        return ".*"


class CellNotation:
    """Cells as six letters, one an edge; `blind` gives letters and places meanings that nobody can know.

    Blind names are a control: whoever does well with them has searched, and does not remember the benchmark.
    """

    noun = "cell"
    change_chars = 0

    def __init__(self, space: CellSpace, blind: int | None = None) -> None:
        self.space, self.blind = space, blind is not None
        places, letters = list(range(len(EDGES))), list(_HIDDEN)
        if blind is not None:
            Random(f"blind:{blind}").shuffle(places)
            Random(f"letters:{blind}").shuffle(letters)
        self.places = places
        self.letters = dict(zip(OPERATIONS, letters, strict=True)) if self.blind else dict(_LETTERS)

    @property
    def legend(self) -> Sequence[str]:
        return _BLIND_LEGEND if self.blind else _LEGEND

    def write(self, candidate: Candidate) -> str:
        if candidate.cell is None:
            return ""
        return "".join(self.letters[candidate.cell.operations[place]] for place in self.places)

    def read(self, found: Any) -> Candidate:
        if isinstance(found, dict):  # of rules, which see no letters
            return self.space.candidate(list(CellSpec.model_validate(found).operations))
        names = {letter: name for name, letter in self.letters.items()}
        text = str(found).strip().lower()
        if len(text) != len(EDGES) or not set(text) <= set(names):
            raise ValueError(f"a cell is six letters of {', '.join(names)}, found {text[:40]!r}")
        operations = dict(zip(self.places, (names[letter] for letter in text), strict=True))
        return self.space.candidate([operations[place] for place in range(len(EDGES))])

    def pattern(self, tried: Collection[str]) -> str:
        return all_but("".join(self.letters.values()), len(EDGES), set(tried))


def notation_of(
    task: Task, name: NotationName = "compact", *, shared: bool = False, blind: int | None = None
) -> Notation | None:
    """Return how candidates of a task are written; None: as JSON, as in the papers.

    Raises:
        ConfigError: cells as JSON, a transcript in the compact form, or names to be hidden that no cell has.
    """
    if blind is not None and task.form != "cell":
        raise ConfigError("searcher.blind_names hides the names of cells: take --task nasbench201, or leave it out.")
    if task.form == "cell":
        if name == "json" or shared:
            raise ConfigError("searcher: cells are written in the compact form only: leave notation and context out.")
        return CellNotation(task.cells, blind)
    return None if name == "json" or shared else SpecNotation(task.space)


def all_but(letters: str, length: int, excluded: Collection[str]) -> str:
    """Return a regular expression of all words of a length but those excluded; it has no look-around."""
    if not excluded:
        return f"[{letters}]{{{length}}}"
    branches, free = [], ""
    for letter in letters:
        rest = {word[1:] for word in excluded if word.startswith(letter)}
        if not rest:
            free += letter
        elif length > 1 and (inside := all_but(letters, length - 1, rest)):
            branches.append(f"{letter}{inside}")
    if free:
        branches.append(f"[{free}]" + (f"[{letters}]{{{length - 1}}}" if length > 1 else ""))
    return f"(?:{'|'.join(branches)})" if branches else ""


def why(error: ValueError) -> str:
    """Return in one line what is wrong with what was written."""
    return explain(error) if isinstance(error, ValidationError) else str(error)
