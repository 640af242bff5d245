"""Strangers' graphs are checked, quantised and run in a process of their own, bounded in memory and time.

An operator's overflow ends a process (SIGFPE), an Einsum takes gigabytes, a pool runs for minutes: whatever a graph
does to onnxruntime, it does it there. One server a process, started when first needed, forks a child for each job;
where bubblewrap may, it sees no network and no file but its own packages.
"""

import atexit
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from automcu_ray.core.confinement import confined, environment, obstacle
from automcu_ray.core.errors import ToolchainError

MODULE = "automcu_ray.deploy.bounded_server"
CODE = Path(__file__).resolve().parents[2]
MEMORY_BYTES = 3 << 30  # beside the interpreter with its packages
CPU_S = 120.0
GRACE_S = 60.0  # for the server to answer, beyond the time of the job on a busy machine
BUSY = 4  # times the CPU time is what a job may take by the clock
MAX_ANSWER_BYTES = 1 << 30
_SIZE = struct.Struct("!Q")

Blobs = Sequence[bytes]


def run_bounded(
    job: str, about: dict[str, Any], blobs: Blobs, *, cpu_s: float = CPU_S
) -> tuple[dict[str, Any], list[bytes]]:
    """Return what a job of `bounded_server` answers: a JSON object and byte strings.

    Raises:
        ToolchainError: the job refused, died, or passed a limit.
    """
    request = {"job": job, "about": about, "cpu_s": cpu_s, "memory_bytes": MEMORY_BYTES}
    with _LOCK:
        server = _Server.running()
        try:
            server.control.settimeout(BUSY * cpu_s + GRACE_S)
            server.control.sendall(encode(request, blobs))
            answer, parts = receive(server.control, MAX_ANSWER_BYTES)
        except (OSError, ValueError) as error:
            server.close()
            raise ToolchainError(f"the process for foreign graphs gave no answer: {type(error).__name__}.") from error
        server.cpu_seconds += answer["cpu_seconds"]
    if answer["refused"]:
        raise ToolchainError(answer["refused"])
    return answer["about"], parts


def cpu_seconds() -> float:
    """Return what all jobs of this process have used so far."""
    return _Server.current.cpu_seconds if _Server.current is not None else 0.0


def encode(head: dict[str, Any], blobs: Blobs) -> bytes:
    """Return one message: a JSON object with a size before it, then byte strings."""
    text = json.dumps({**head, "sizes": [len(blob) for blob in blobs]}).encode()
    return b"".join([_SIZE.pack(len(text)), text, *blobs])


def receive(control: socket.socket, most_bytes: int) -> tuple[dict[str, Any], list[bytes]]:
    """Read one message.

    Raises:
        ConnectionError: the other side has hung up.
        ValueError: more than `most_bytes`.
    """
    (size,) = _SIZE.unpack(_exactly(control, _SIZE.size))
    if size > most_bytes:
        raise ValueError(f"a message of {size} bytes")
    head: dict[str, Any] = json.loads(_exactly(control, size))
    sizes = head.pop("sizes")
    if sum(sizes) > most_bytes:
        raise ValueError(f"a message of {sum(sizes)} bytes")
    return head, [_exactly(control, size) for size in sizes]


def _exactly(control: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        if not (count := control.recv_into(view)):
            raise ConnectionResetError("hung up")
        view = view[count:]
    return bytes(data)


class _Server:
    """The server of this process, by pid: a forked child must not share its parent's."""

    current: "_Server | None" = None

    def __init__(self) -> None:
        self.pid, self.cpu_seconds = os.getpid(), 0.0
        self.control, theirs = socket.socketpair()
        argv = [sys.executable, "-s", "-m", MODULE, str(theirs.fileno())]
        visible = [CODE / "automcu_ray", Path(sys.prefix), Path(sys.base_prefix)]
        outside = [path for path in visible if not path.is_relative_to("/usr")]
        command = argv if obstacle() else confined(argv, readable=outside, proc=True)
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")  # it forks: one thread
        settings = {**environment(), "PYTHONPATH": str(CODE), "PYTHONDONTWRITEBYTECODE": "1", **threads}
        with theirs:
            self._process = subprocess.Popen(
                command, env=settings, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

    @classmethod
    def running(cls) -> "_Server":
        """Return this process's server, started if need be."""
        if cls.current is None or cls.current.pid != os.getpid() or cls.current._process.poll() is not None:
            spent = cls.current.cpu_seconds if cls.current is not None else 0.0
            cls.current = cls()
            cls.current.cpu_seconds = spent
            atexit.register(cls.current.close)
        return cls.current

    def close(self) -> None:
        """End the server and its job."""
        if self.pid == os.getpid():
            self.control.close()
            self._process.kill()
            self._process.wait()


_LOCK = threading.Lock()
