"""What a candidate's process says, heard from outside: bounded in bytes, messages and time, and never trusted."""

import json
import select
import socket
import time
from collections.abc import Iterator
from typing import Any

from automcu_ray.core.errors import ToolchainError

MAX_LINE_BYTES = 4_000_000  # the class numbers of half a million validation images
MAX_GRAPH_BYTES = 64_000_000  # sixteen million float weights: no microcontroller holds a quarter of them
MESSAGE_CHARACTERS = 300
RESOURCES = ("schema", "shape", "operator", "memory", "time", "sandbox")
STAGES = ("start", "build", "forward", "train", "export", "fingerprint")
GRAPHS = ("inference", "training")


class CandidateError(ToolchainError):
    """Generated code failed in the jail: `stage` says when, `resource` what it is about."""

    def __init__(self, stage: str, resource: str, message: str) -> None:
        printable = "".join(c if c.isprintable() else " " for c in message)
        super().__init__(printable[:MESSAGE_CHARACTERS])
        self.stage, self.resource = stage, resource


class Conversation:
    """One candidate's messages, one JSON object a line, until it hangs up; graphs are kept in `graphs`.

    `ended` is what the jail's server says about its end: believed, and there once the candidate is gone.
    """

    def __init__(self, channel: socket.socket, seconds: float, messages: int) -> None:
        self.channel, self.messages = channel, messages
        self.deadline_s = time.monotonic() + seconds
        self.stage = "start"
        self.finished = False
        self.graphs: dict[str, bytes] = {}
        self.ended: dict[str, Any] = {}
        self._heard = bytearray()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield messages.

        Raises:
            CandidateError: the candidate failed, says what no candidate says, or nothing in time.
        """
        for _ in range(self.messages):
            line = self._line()
            if not line:
                self.finished = True
                return
            try:
                message = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise self._breach("no JSON") from error
            if not isinstance(message, dict):
                raise self._breach("no JSON object")
            if message.get("event") == "failed":
                if self.stage != "fingerprint":
                    resource = message.get("resource")
                    known = resource if resource in RESOURCES else "sandbox"
                    raise CandidateError(self.stage, known, str(message.get("error")))
            elif message.get("event") == "graph":
                self._keep_graph(message)
            else:
                if message.get("event") == "stage" and message.get("stage") in STAGES:
                    self.stage = message["stage"]
                yield message
        raise self._breach("too many messages")

    def answer(self, message: dict[str, Any]) -> None:
        """Send one message; a candidate that no longer listens is noticed when it is heard."""
        self.channel.settimeout(1)
        try:
            self.channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise self._breach("it does not listen") from error

    def hand_over(self, files: list[int]) -> None:
        """Send open files."""
        try:
            socket.send_fds(self.channel, [b"\n"], files)
        except OSError as error:
            raise self._breach("it does not listen") from error

    def limit(self, seconds: float) -> None:
        """Set when it has to be over, in seconds from now."""
        self.deadline_s = time.monotonic() + seconds

    def _keep_graph(self, message: dict[str, Any]) -> None:
        kind, size = message.get("kind"), message.get("size")
        if kind not in GRAPHS or kind in self.graphs or not isinstance(size, int) or size < 0:
            raise self._breach("a graph that nobody wants")
        if size > MAX_GRAPH_BYTES:
            raise CandidateError("export", "memory", f"the exported network has {size} bytes, over {MAX_GRAPH_BYTES}")
        while len(self._heard) < size:
            if not self._hear():
                raise self._breach("a graph without its end")
        self.graphs[kind] = bytes(self._heard[:size])
        del self._heard[:size]

    def _line(self) -> bytes:
        """Return the next line, b"" at the end; an unfinished last line counts for nothing."""
        searched = 0
        while (end := self._heard.find(b"\n", searched)) < 0:
            searched = len(self._heard)
            if searched > MAX_LINE_BYTES:
                raise self._breach("a line without end")
            if not self._hear():
                return b""
        line = bytes(self._heard[: end + 1])
        del self._heard[: end + 1]
        return line

    def _hear(self) -> bool:
        """Read a little more; return False at the end."""
        left_s = self.deadline_s - time.monotonic()
        if left_s <= 0 or not select.select([self.channel], [], [], left_s)[0]:
            raise CandidateError(self.stage, "time", "it did not end in time")
        try:
            more = self.channel.recv(1 << 16)
        except ConnectionError:
            more = b""
        self._heard += more
        return bool(more)

    def _breach(self, what: str) -> CandidateError:
        return CandidateError(self.stage, "sandbox", f"the candidate's process wrote {what}")
