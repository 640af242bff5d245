"""The names of vLLM's module that the engine asks for."""

from enum import Enum
from typing import Any


class RequestOutputKind(Enum):
    FINAL_ONLY = 2


class StructuredOutputsParams:
    def __init__(self, json: Any) -> None:
        self.json = json
