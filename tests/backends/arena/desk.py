"""A desk without a board: vendors' tools that are stand-ins, and a pseudo terminal where their firmware answers.

The stand-ins compile the very sources that the rig has laid out, for this computer, with `host/port.c` for the chip's.
"""

import os
import subprocess
import threading
import time
from pathlib import Path

HOST = Path(__file__).parent / "host"
_BUILD = """#!/bin/sh
{log}
mkdir -p build
rm {port}
exec gcc -std=gnu11 -O1 -w -I{sources} -I{host} {flags} {sources}/*.c {host}/port.c -o build/firmware.elf
"""
_LOG = 'for word in "$@"; do printf "%s\\n" "$word"; done > {log}\n'


class Desk:
    """Stand-ins in `folder/bin`; firmware that they "flash" runs on the pseudo terminal `serial`."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.flashed = folder / "bin", folder / "flashed"
        self.log = folder / "log"
        (self.bin / "host").mkdir(parents=True)
        for path in HOST.iterdir():
            (self.bin / "host" / path.name).write_bytes(path.read_bytes())
        self.host, slave = os.openpty()
        self.serial = os.ttyname(slave)
        self._slave, self._ended = slave, threading.Event()
        self.boot_s = 0.0  # between the end of a flasher and the first byte of the firmware
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def program(self, name: str, script: str) -> None:
        """Put a program on PATH."""
        (self.bin / name).write_text(script)
        (self.bin / name).chmod(0o755)

    def builder(self, sources: str, flags: str = "") -> str:
        """Return a script that compiles what lies in a folder, and leaves its arguments in build.log there."""
        log = _LOG.format(log="build.log")
        return _BUILD.format(log=log, port=f"{sources}/port.c", sources=sources, host=self.bin / "host", flags=flags)

    def flasher(self, elf: str) -> str:
        """Return a script that leaves its arguments, and "flashes" the file that the shell word `elf` gives."""
        log = _LOG.format(log=self.log / '"$(basename "$0")"')
        self.log.mkdir(exist_ok=True)
        return f"#!/bin/sh\n{log}printf '%s' {elf} > {self.flashed}.part\nmv {self.flashed}.part {self.flashed}\n"

    def close(self) -> None:
        """Take the board off the desk."""
        self._ended.set()
        self._watcher.join()
        for line in (self.host, self._slave):
            os.close(line)

    def _watch(self) -> None:
        running: subprocess.Popen[bytes] | None = None
        while not self._ended.is_set():
            if self.flashed.exists():
                elf = self.flashed.read_text()
                self.flashed.unlink()
                if running is not None:
                    running.kill()
                    running.wait()
                time.sleep(self.boot_s)
                running = subprocess.Popen([elf], stdin=self.host, stdout=self.host)
            time.sleep(0.01)
        if running is not None:
            running.kill()
            running.wait()
