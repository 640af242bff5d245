"""A report over HTTP, on this machine alone: read-only, and shown anew whenever the file is."""

import secrets
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from automcu_ray.core.errors import ConfigError
from automcu_ray.reports.pages import template

LOOK_S, BEAT_S = 0.5, 10.0  # how often the file is looked at; after which silence a reader is asked for


class ReportServer(ThreadingHTTPServer):
    """Serves one report file on 127.0.0.1: the page, what frames it, and an event whenever it has been rewritten."""

    daemon_threads = True

    def __init__(self, report: Path, port: int) -> None:
        """Listen; port 0 takes a free one.

        Raises:
            ConfigError: the port is taken, or not ours to take.
        """
        self.report, self.stopping = report, threading.Event()
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"port {port} of 127.0.0.1 cannot be had ({error}): take another by --port.") from error

    @property
    def url(self) -> str:
        """The address to open."""
        return f"http://127.0.0.1:{self.server_port}/"

    def server_close(self) -> None:
        """Stop listening, and end what readers wait for."""
        self.stopping.set()
        super().server_close()

    def state(self) -> int | None:
        """Return what changes whenever the report is rewritten; None while there is none."""
        try:
            return self.report.stat().st_mtime_ns
        except FileNotFoundError:
            return None


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer

    def do_GET(self) -> None:
        """Answer one of three paths, to whoever asks for this machine by its own name."""
        port = self.server.server_port
        if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):  # another site's name, rebound
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
        elif self.path == "/":
            nonce = secrets.token_urlsafe(16)
            policy = f"default-src 'none'; frame-src 'self'; connect-src 'self'; script-src 'nonce-{nonce}'"
            page = template("watch.html.j2").render(nonce=nonce, run=self.server.report.parent.name)
            self._send(page.encode(), f"{policy}; style-src 'nonce-{nonce}'")
        elif self.path == "/report.html":
            try:
                self._send(self.server.report.read_bytes())
            except FileNotFoundError:
                self._send(b"<!doctype html><title>-</title><p>Nothing yet: the report comes with the first outcome.")
        elif self.path == "/events":
            self._tell_of_changes()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, page: bytes, policy: str = "") -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self._send_common(policy)
        self.wfile.write(page)

    def _send_common(self, policy: str = "") -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        if policy:
            self.send_header("Content-Security-Policy", policy)
        self.end_headers()

    def _tell_of_changes(self) -> None:
        """Send an event for each new state, until the reader or the server is gone (HTML standard, section 9.2)."""
        known, beat_s = self.server.state(), time.monotonic()  # before the reader hears that we look
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self._send_common()
        try:
            while not self.server.stopping.wait(LOOK_S):
                state = self.server.state()
                if state != known:
                    self.wfile.write(b"data: rewritten\n\n")
                elif time.monotonic() > beat_s + BEAT_S:
                    self.wfile.write(b": still here\n\n")
                else:
                    continue
                known, beat_s = state, time.monotonic()
        except OSError:  # the reader has gone
            return

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal is the run's."""
