"""The jail from outside: sends a candidate in, takes an ONNX file and class numbers out, and believes nothing else."""

import contextlib
import json
import select
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from automcu_ray.core.errors import ToolMissingError
from automcu_ray.core.training_recipe import Protocol
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config import JailConfig
from backends.programs import running, scratch_folder
from trainables.datasets.base import Labels
from trainables.jail.conversation import CandidateError, Conversation
from trainables.jail.progress import Progress
from trainables.jail.sandbox import require_sandbox, server_command
from trainables.jail.shared import SharedArrays
from trainables.training.loop import Epoch

SERVER = "trainables.jail.server"
START_S = 120  # importing torch from a cold disk
GRACE_S = 10  # for the server's own watchdog to act, before this side kills the jail
SPARE_MESSAGES = 12
MAX_JOB_BYTES = 200_000  # one message of a packet socket
STOP = b"stop"


@dataclass(frozen=True)
class Traced:
    """What the jail gives for a sound candidate, as its process wrote it: ONNX that nobody has checked yet.

    `training` is the graph with all that training sees, None where the exporter cannot write it. The memory is the
    server's measurement.
    """

    inference: bytes
    training: bytes | None
    peak_memory_bytes: int
    forward_seconds: float = 0.0


class Jail:
    """One sandboxed server with torch loaded; it starts with the first candidate and takes one at a time.

    A candidate that takes the server with it fails, and the next one starts a new server. Linux ends everything
    inside when this process ends, however it ends; with `mode: none`, everything that does not take care to stay.

    With a share of a GPU, `gpus`, its devices are visible inside, and memory is watched instead of limited, since CUDA
    reserves far more addresses than memory. The share is what the network is trained in; hostile code can take more.
    That path has not been run yet.

    Attributes:
        cpu_seconds: what all candidates so far have used, by the server's measurement.
    """

    def __init__(self, task: Task, config: JailConfig, *, threads: int = 1, gpus: float = 0) -> None:
        self.task, self.config, self.threads, self.gpus = task, config, threads, gpus
        self.cpu_seconds = 0.0
        self._server = contextlib.ExitStack()
        self._control: socket.socket | None = None
        self._folder = Path()

    def check(self, code: str) -> Traced:
        """Build the network, run it on black images, and export it.

        Raises:
            CandidateError: it failed, or passed a limit.
            ToolMissingError: this machine cannot isolate it.
        """
        request = self._request(code, self.config.check_seconds)
        started_s, forward_s = time.perf_counter(), 0.0
        with self._candidate(request) as conversation:
            for _ in conversation:
                if conversation.stage == "export" and not forward_s:
                    forward_s = time.perf_counter() - started_s
        return _traced(conversation, forward_s)

    def train(
        self, code: str, seed: int, protocol: Protocol, arrays: Sequence[NDArray[Any]], val_labels: Labels
    ) -> Iterator[Epoch | Traced]:
        """Yield an Epoch after each report, and at last the trained network.

        `arrays` are training images, their labels, and validation images; they go in once the network stands and has
        run, within the time of a check. Validation labels stay here: class numbers come out, and where the protocol
        stops early, whether they are better than before goes in, one bit a report. So an epoch's accuracy is what
        these class numbers deserve; whether the exported network gives them is for the caller to see.

        Raises:
            CandidateError: as `check`; or it ends its training before the protocol does.
        """
        with contextlib.closing(SharedArrays(*arrays)) as data:
            about = {"seed": seed, "train": protocol.model_dump(), "arrays": data.about}
            request = self._request(code, self.config.train_seconds) | about
            progress = Progress(protocol, val_labels)
            with self._candidate(request) as conversation:
                for message in conversation:
                    stage = message.get("stage") if message.get("event") == "stage" else ""
                    if stage == "build":  # said before the code runs
                        conversation.limit(self.config.check_seconds + GRACE_S)
                    elif stage == "train" and data.files:
                        conversation.limit(self.config.train_seconds + GRACE_S)
                        conversation.hand_over(data.files)
                        data.close()
                    elif message.get("event") == "predictions":
                        conversation.answer({"better": progress.report(message.get("classes"))})
                    elif message.get("event") == "epoch":
                        yield progress.epoch(message.get("loss"), said_last=message.get("last") is True)
        yield _traced(conversation, 0.0)

    def start(self) -> None:
        """Start the server now: seconds that no candidate should be charged with."""
        self._running()

    def close(self) -> None:
        """End the server and everything inside; the next candidate starts a new one."""
        self._server.close()
        self._control = None

    def _request(self, code: str, seconds: float) -> dict[str, Any]:
        return {
            "code": code,
            "input_shape": self.task.input_shape,
            "num_classes": self.task.num_classes,
            "seconds": seconds,
            "memory_bytes": self.config.memory_mb << 20,
            "processes": self.config.processes if self.config.mode == "bubblewrap" else None,
            "threads": self.threads,
            "device": "cuda" if self.gpus else "cpu",
            "gpus": self.gpus,
            "seed": 0,
            "train": None,
        }

    @contextlib.contextmanager
    def _candidate(self, request: dict[str, Any]) -> Iterator[Conversation]:
        """Start a candidate, and see to it that it is gone on every way out."""
        message = json.dumps(request, ensure_ascii=False).encode(errors="replace")
        if len(message) > MAX_JOB_BYTES:
            raise CandidateError("build", "schema", f"the code has {len(message)} bytes, over {MAX_JOB_BYTES}")
        control = self._running()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            reports = Protocol.model_validate(request["train"]).reports if request["train"] else 0
            conversation = Conversation(ours, request["seconds"] + GRACE_S, 2 * reports + SPARE_MESSAGES)
            try:
                socket.send_fds(control, [message], [theirs.fileno()])
                theirs.close()  # so that its end is heard
                yield conversation
            finally:
                conversation.ended = self._end(
                    control, at_once=not conversation.finished, seconds=conversation.deadline_s - time.monotonic()
                )
                if conversation.stage == "start":
                    self.close()  # no candidate has run yet: the server cannot start them any more
        limit, number = conversation.ended["limit"], conversation.ended["signal"]
        if limit == "time":
            raise CandidateError(conversation.stage, "time", f"stopped: it takes more than {request['seconds']:g} s")
        if limit == "memory":
            told = f"stopped: it takes more than {self.config.memory_mb} MB"
            raise CandidateError(conversation.stage, "memory", told)
        if number:  # real-time signals have no name
            name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
            raise CandidateError(conversation.stage, "sandbox", f"its process died of {name}")

    def _end(self, control: socket.socket, *, at_once: bool, seconds: float) -> dict[str, Any]:
        """Return what the server says about the candidate's end."""
        try:
            if at_once:
                control.send(STOP)
            if select.select([control], [], [], max(seconds, GRACE_S))[0] and (answer := control.recv(4096)):
                ended: dict[str, Any] = json.loads(answer)
                self.cpu_seconds += ended["cpu_seconds"]
                return ended
        except OSError:
            pass  # it is gone: said below
        told = self._complaint()
        self.close()
        raise CandidateError("build", "sandbox", f"the jail's server ended with this candidate: {told}")

    def _running(self) -> socket.socket:
        """Return the socket of a running server."""
        if self._control is not None:
            if not select.select([self._control], [], [], 0)[0]:
                return self._control
            self.close()  # a server speaks only when asked: this is its end
        require_sandbox(self.config)
        folder = tempfile.TemporaryDirectory(prefix="jail-", dir=scratch_folder())
        self._folder = Path(self._server.enter_context(folder))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = server_command(self.config, SERVER, [str(theirs.fileno())], gpu=self.gpus > 0)
            self._server.enter_context(ours)
            self._server.enter_context(running(command, cwd=self._folder, pass_fds=[theirs.fileno()]))
        if not select.select([ours], [], [], START_S)[0] or not ours.recv(4096):
            told = self._complaint()
            self.close()
            raise ToolMissingError(f"the jail's server does not start: {told}")
        self._control = ours
        return ours

    def _complaint(self) -> str:
        """Return the last of what the server, not a candidate, has written to its stderr."""
        lines = [line for path in self._folder.glob("*.stderr") for line in path.read_text().splitlines()]
        return lines[-1][-200:] if lines else "it says nothing"


def _traced(conversation: Conversation, forward_s: float) -> Traced:
    if "inference" not in conversation.graphs:
        raise CandidateError(conversation.stage, "sandbox", "its process ended without a network")
    graphs, peak_memory_bytes = conversation.graphs, conversation.ended["peak_memory_bytes"]
    return Traced(graphs["inference"], graphs.get("training"), peak_memory_bytes, forward_s)
