"""What the jail's tests share: that they need one, and which processes are inside."""

import os
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
needs_sandbox = pytest.mark.usefixtures("sandbox")


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

    def descends(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and descends(parents[pid]))

    return {pid: inner for pid, inner in inside.items() if descends(pid)}
