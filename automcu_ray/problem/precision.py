"""The types of number that a network may be deployed in; apart from `task`, so that a configuration needs no numpy."""

from typing import Literal

Precision = Literal["int8", "float32"]
