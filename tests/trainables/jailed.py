"""What the jail's tests share: whether there can be one here, and which processes are inside."""

import os
from pathlib import Path

import pytest

from automcu_ray.config import JailConfig
from automcu_ray.errors import ToolMissingError
from trainables.jail.sandbox import require_sandbox

CHECKOUT = Path(__file__).resolve().parents[2]


def _why_not() -> str:
    try:
        require_sandbox(JailConfig())
    except ToolMissingError as error:
        return str(error)
    return ""


needs_sandbox = pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "there is one")


def jailed_pythons() -> dict[int, int]:
    """Return the jail's processes that descend from this one: pid here to pid in its own namespace."""
    parents, inside = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it ended while we looked
            continue
        pid = int(folder.name)
        parents[pid] = int(status["PPid"])
        if b"trainables.jail.server" in command and b"bwrap" not in command[0]:
            inside[pid] = int(status["NSpid"].split()[-1])
    return {pid: inner for pid, inner in inside.items() if _descends(pid, parents)}


def _descends(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False
