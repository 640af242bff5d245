"""Bytes of a port, gathered in a thread while something else is done."""

import threading
import time

import serial

from automcu_ray.core.errors import BoardError

_CHUNK_BYTES = 1 << 16
MOST_BYTES = 1 << 30  # of one recording: 44 minutes of a PPK2


class Gatherer:
    """Reads a port until it is told to stop; `started_s` is when the first byte came."""

    def __init__(self, port: serial.Serial) -> None:
        self.port, self.data, self.started_s = port, bytearray(), 0.0
        self.trouble = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            while not self._ended.is_set():
                came = self.port.read(min(_CHUNK_BYTES, max(1, self.port.in_waiting)))
                if came and not self.data:
                    self.started_s = time.monotonic()
                self.data += came
                if len(self.data) > MOST_BYTES:
                    self.trouble = f"more than {MOST_BYTES} bytes came"
                    return
        except (serial.SerialException, OSError) as error:
            self.trouble = f"the port broke: {error}"

    def end(self) -> None:
        """Stop reading: the port may be closed."""
        self._ended.set()
        self._thread.join(timeout=5)

    def finish(self, name: str) -> bytes:
        """Stop, and return what came.

        Raises:
            BoardError: the port broke, or too much came.
        """
        self.end()
        if self.trouble or self._thread.is_alive():
            raise BoardError(f"instrument {name!r}: {self.trouble or 'its port does not let go of a read'}.")
        return bytes(self.data)
