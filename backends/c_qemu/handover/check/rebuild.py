"""How verify.py builds a bundle's firmware and runs it in QEMU, by a recipe that is a stranger's until checked."""

import re
import shutil
import struct
import subprocess
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

GCC, SIZE, OBJCOPY = "arm-none-eabi-gcc", "arm-none-eabi-size", "arm-none-eabi-objcopy"
QEMU = "qemu-system-arm"
RECIPE = "verify.json"
BUILD_S, RUN_S = 300, 300
# Nothing that a recipe says may become another option of GCC or QEMU: those can load plugins and files.
_FLAG = re.compile(
    r"-(m(cpu|float-abi|fpu)=[a-z0-9+-]+|mthumb|std=gnu11|O[0-3s]|f(function|data)-sections|Wall|Wextra|nostartfiles"
    r"|-specs=(nano|nosys)\.specs|Wl,--gc-sections,--print-memory-usage|Wl,--noinhibit-exec|D(STREAM|GUARD_BYTES=\d+u"
    r"|UART_(BASE=0x[0-9a-f]+u|SETUP={0x[0-9a-f]+u,0x[0-9a-f]+u}(,{0x[0-9a-f]+u,0x[0-9a-f]+u})*|WAITS|(CLOCK_HZ|BAUD)=\d+u)))"
)
_WORD = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")
_REGION = re.compile(r"^\s*(\w+):\s+(\d{1,12}) (B|KB|MB|GB)\s", re.MULTILINE)
_UNIT = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}


class Unusable(Exception):
    """The bundle cannot be read, or a tool is missing."""


def build(recipe: Any, place: Any, work: Path, name: str) -> "tuple[Path, dict[str, int]]":
    """Return an ELF, linked for a place, and the bytes that it takes in each memory region."""
    core, compiling, linking = (flags(recipe[key]) for key in ("core_flags", "compile_flags", "link_flags"))
    uart, harness = word(place["uart"]), flags([*place["uart_flags"], *recipe["harness_flags"]])
    objects = []
    for unit in ["net", *(["stream"] if recipe["stream"] else [])]:
        succeed(run([GCC, *core, *compiling, "-c", f"../src/{unit}.c", "-o", f"{unit}.o"], at(work, name), BUILD_S))
        objects.append(f"{unit}.o")
    boot = [f"boot_{word(place['boot'])}"] if place.get("boot") else []
    for unit in ("startup", "main", f"uart_{uart}", *boot):
        argv = [GCC, *core, *compiling, *harness, "-c", f"../harness/{unit}.c", "-o", f"{unit}.o"]
        succeed(run(argv, at(work, name), BUILD_S))
        objects.append(f"{unit}.o")
    script = f"../harness/{word(place['script'])}.ld"
    linked = run([GCC, *core, *linking, f"-T{script}", *objects, "-lm", "-o", "net.elf"], at(work, name), BUILD_S)
    succeed(linked)
    used = {region: int(size) * _UNIT[unit] for region, size, unit in _REGION.findall(linked.stdout)}
    return at(work, name) / "net.elf", used


def at(work: Path, name: str) -> Path:
    """Return a build folder, made where there is none."""
    (work / name).mkdir(exist_ok=True)
    return work / name


def emulate(machine: str, elf: Path, inputs: bytes, size: int, work: Path) -> "tuple[bytes, int, int]":
    """Return all outputs, and the largest counts of SysTick ticks and stack bytes."""
    argv = [QEMU, "-machine", machine, "-kernel", str(elf), "-display", "none", "-monitor", "none"]
    argv += ["-icount", "shift=0", "-serial", "stdio"]
    with (work / "qemu.stderr").open("wb") as errors:
        qemu = subprocess.Popen(argv, cwd=work, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
    watchdog = threading.Timer(RUN_S, qemu.kill)
    watchdog.start()
    try:
        assert qemu.stdin is not None and qemu.stdout is not None
        answers = list(talk(qemu.stdin, qemu.stdout, inputs, size))
    except (OSError, ValueError) as error:
        said = (work / "qemu.stderr").read_text(errors="replace").strip()[-200:]
        raise Unusable(f"{machine} did not answer as agreed: {error} {said}") from error
    finally:
        watchdog.cancel()
        qemu.kill()
        qemu.wait()
    return b"".join(one[0] for one in answers), max(one[1] for one in answers), max(one[2] for one in answers)


def talk(to: Any, back: "Any", inputs: bytes, size: int) -> "Iterator[tuple[bytes, int, int]]":
    """Yield output, ticks and stack of each input; the protocol is in harness/main.c."""
    line(back, "READY")
    for start in range(0, len(inputs), size):
        payload = inputs[start : start + size]
        to.write(b"NET:" + struct.pack("<II", len(payload), sum(payload) & 0xFFFFFFFF) + payload)
        to.flush()
        words = line(back, "OUT")
        if len(words) == 3:
            raise ValueError("its answers carry no CRC: harness/ is of an earlier version, take its own verify.py.")
        output, ticks, stack = bytes.fromhex(words[0]), int(words[1], 16), int(words[2], 16)
        if zlib.crc32(payload + output + struct.pack("<QI", ticks, stack)) != int(words[3], 16):
            raise ValueError("an answer's CRC does not agree with it: it or its input was damaged.")
        yield output, ticks, stack


def line(back: BinaryIO, wanted: str) -> "list[str]":
    """Return the words behind the one that a line has to begin with."""
    words = back.readline(1 << 16).decode("ascii", "replace").split()
    if not words or words[0] != wanted:
        raise ValueError(f"wanted {wanted}, found {' '.join(words)[:80]!r}.")
    return words[1:]


def flags(listed: Sequence[str]) -> "list[str]":
    """Return options of GCC, all of them among those that a bundle needs."""
    if other := [flag for flag in listed if not _FLAG.fullmatch(flag)]:
        raise Unusable(f"{RECIPE} gives GCC an option that no bundle needs: {other[0][:80]!r}.")
    return list(listed)


def word(found: str) -> str:
    """Return a name that is no path and no option."""
    if not _WORD.fullmatch(found):
        raise Unusable(f"{RECIPE} should give a plain name, found {found[:80]!r}.")
    return found


def need(*programs: str) -> None:
    """Raise Unusable where a program is not on PATH."""
    for name in programs:
        if shutil.which(name) is None:
            raise Unusable(f"{name} is not on PATH; on Debian: apt install gcc-arm-none-eabi {QEMU}.")


def run(argv: Sequence[str], cwd: Path, timeout_s: float) -> "subprocess.CompletedProcess[str]":
    """Return a finished program."""
    try:
        return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unusable(f"{argv[0]} should end within {timeout_s:g} s.") from error


def succeed(done: "subprocess.CompletedProcess[str]") -> None:
    """Raise Unusable where a program failed."""
    if done.returncode:
        said = [text for text in done.stderr.splitlines() if "error" in text] or done.stderr.splitlines() or ["nothing"]
        raise Unusable(f"{done.args[0]} failed: {said[0][:300]}")
