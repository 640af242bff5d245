import json
import re
from collections.abc import Iterable
from typing import Any

from searchers.engines.base import Message

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_FENCED = re.compile(r"^```json\n(.*)\n```$", re.MULTILINE)


def read_sections(messages: Iterable[Message]) -> dict[str, Any]:
    """The first fenced JSON of every section of a prompt, by heading; None where there is none."""
    parts = _SECTION.split("\n".join(message.content for message in messages))
    sections: dict[str, Any] = {}
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        fenced = _FENCED.search(body)
        sections.setdefault(heading, json.loads(fenced[1]) if fenced else None)
    return sections
