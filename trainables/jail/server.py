"""Runs inside the jail: a server with torch loaded, which forks a process for each candidate and outlives it.

It reads nothing that a candidate wrote. Torch must not run an operator here: OpenMP does not survive a fork.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
from typing import Any

import onnx  # noqa: F401  # the exporter wants it: imported here, once, and not by every candidate

from trainables.jail import candidate

MAX_JOB_BYTES = 250_000  # the other side sends less
POLL_S = 0.05
NO_ROOM = "/dev/shm"  # exists, and is read-only in here
_SET_DUMPABLE = 4


def serve(control: socket.socket) -> None:
    """Answer jobs until the other side hangs up: one JSON message in, with the candidate's socket; one out."""
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)  # no other process of this user may read or write this one
    tempfile.tempdir = NO_ROOM  # looking for a place to write, and finding none, would be an error
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # process 1 is safe from signals that it does not handle
    control.send(b'{"ready": true}')
    while True:
        message, files, _, _ = socket.recv_fds(control, MAX_JOB_BYTES, 8)
        if not message:
            return
        if not files:
            continue  # "stop", for a candidate that has ended by itself
        request = json.loads(message)
        if request["train"]:
            import torch._dynamo  # noqa: F401  # every optimizer wants it: two seconds, once
        server, child = os.getpid(), os.fork()
        if child == 0:
            candidate.run(request, files, server)  # never returns
        for file in files:
            os.close(file)
        control.send(json.dumps(_watch(child, request, control)).encode())


def _watch(child: int, request: dict[str, Any], control: socket.socket) -> dict[str, Any]:
    """Return how the candidate ended, after killing whatever is left of it.

    `limit` is "time" or "memory" where one was passed, `signal` is 0 where no signal ended it.
    """
    limit, end = "", time.monotonic() + request["seconds"]
    most_bytes = _resident_bytes(os.getpid()) + request["memory_bytes"]
    watched = os.pidfd_open(child)
    while not limit and not select.select([watched, control.fileno()], [], [], POLL_S)[0]:
        if time.monotonic() > end:
            limit = "time"
        elif _resident_bytes(child) > most_bytes:
            limit = "memory"
    os.close(watched)
    _kill(child)
    _, status, usage = os.wait4(child, 0)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    if select.select([control], [], [], 0)[0]:
        control.recv(1)  # "stop", or the end of the other side, which the next read will see again
    signal_number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    limit = limit or ("time" if signal_number == signal.SIGXCPU else "")
    return {
        "limit": limit,
        "signal": signal_number,
        "peak_memory_bytes": usage.ru_maxrss * 1024,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
    }


def _resident_bytes(child: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        with open(f"/proc/{child}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    return 0


def _kill(child: int) -> None:
    """Kill the candidate and what it started: in a process namespace of our own all others, else its group."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        if os.getpid() == 1:
            os.kill(-1, signal.SIGKILL)
        else:
            os.killpg(child, signal.SIGKILL)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
