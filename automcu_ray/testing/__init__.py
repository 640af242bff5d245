"""Contracts that the tests of a plugin inherit: one for each kind, searcher, engine, backend, dataset and board.

A package on top, beside `run`: contracts import the base class of each kind. It needs pytest (extra `dev`).
"""

import pytest

KINDS = ("backend", "board", "dataset", "engine", "searcher")
pytest.register_assert_rewrite(*(f"{__name__}.{kind}_contract" for kind in KINDS))
