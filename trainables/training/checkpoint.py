"""A file from which an interrupted training goes on, and not from its start."""

import hashlib
import io
import pickle
import time
from pathlib import Path
from typing import Any

import torch

from automcu_ray.core.atomic_write import write_whole


class Checkpoint:
    """Where a training stood at the end of an epoch: `state` as it was saved, None for a training that begins.

    `about` is all that decides how the training goes. A file that another training left is not read, nor one that
    cannot be. `seconds` are those that the training had taken before it was interrupted.
    """

    def __init__(self, path: Path, about: str) -> None:
        self.path, self.key = path, hashlib.sha256(about.encode()).hexdigest()
        self.state: dict[str, Any] | None = None
        self.seconds = 0.0
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except (RuntimeError, OSError, EOFError, pickle.UnpicklingError):
            found = None
        if isinstance(found, dict) and found.get("key") == self.key:
            self.state, self.seconds = found["state"], found["seconds"]
        self._started_s = time.perf_counter()

    def save(self, state: dict[str, Any]) -> None:
        """Replace the file whole, so that a kill leaves the old one or the new one."""
        seconds = self.seconds + time.perf_counter() - self._started_s
        buffer = io.BytesIO()
        torch.save({"key": self.key, "state": state, "seconds": seconds}, buffer)
        write_whole(self.path, buffer.getvalue())
