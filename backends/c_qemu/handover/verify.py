#!/usr/bin/env python3
"""Rebuild this bundle's firmware, run it in QEMU on the test vectors, and say of each figure: same or different.

It needs Python 3.9, the GNU toolchain for Arm and QEMU, and nothing of the project that wrote the bundle. With --host
the C is compiled for this computer as well (strictly, and with sanitizers) and run: that executes the bundle's C here.

Exit status: 0 all the same, 1 something differs, 2 a tool is missing or the bundle cannot be read.
"""

import argparse
import ast
import hashlib
import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

GCC, SIZE, QEMU = "arm-none-eabi-gcc", "arm-none-eabi-size", "qemu-system-arm"
RECIPE, SUMS = "verify.json", "SHA256SUMS"
BUILD_S, RUN_S = 300, 300
NANOSECONDS = 1_000_000_000
FLOAT32_ROUNDING = 1e-4  # relative to the largest score: float32 sums depend on their order
MOST_BYTES = 1 << 28  # of a file in test_vectors.npz
HOST_FLAGS = ("-std=c99", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-error=unused-function")
# Nothing that a recipe says may become another option of GCC or QEMU: those can load plugins and files.
_FLAG = re.compile(
    r"-(m(cpu|float-abi|fpu)=[a-z0-9+-]+|mthumb|std=gnu11|O[0-3s]|f(function|data)-sections|Wall|Wextra|nostartfiles"
    r"|-specs=(nano|nosys)\.specs|Wl,--gc-sections,--print-memory-usage|Wl,--noinhibit-exec|D(STREAM|GUARD_BYTES=\d+u"
    r"|UART_(BASE=0x[0-9a-f]+u|SETUP={0x[0-9a-f]+u,0x[0-9a-f]+u}(,{0x[0-9a-f]+u,0x[0-9a-f]+u})*|WAITS|(CLOCK_HZ|BAUD)=\d+u)))"
)
_WORD = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")
_REGION = re.compile(r"^\s*(\w+):\s+(\d{1,12}) (B|KB|MB|GB)\s", re.MULTILINE)
_UNIT = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
_HOST_MAIN = """#include <stdio.h>
#include "net.h"
static union { net_value values[NET_INPUT_BYTES / sizeof(net_value)]; char bytes[NET_INPUT_BYTES]; } in;
int main(void) {
    static net_value scores[NET_OUTPUT_BYTES / sizeof(net_value)];
    net_init();
    while (fread(in.bytes, 1, sizeof in.bytes, stdin) == sizeof in.bytes) {
        net_run(in.values, scores);
        fwrite(scores, 1, sizeof scores, stdout);
    }
    return 0;
}
"""


class Unusable(Exception):
    """The bundle cannot be read, or a tool is missing."""


class Report:
    """Prints one line a figure, and remembers whether all were the same."""

    def __init__(self) -> None:
        self.all_same = True

    def say(self, figure: str, same: "bool | None", detail: str) -> None:
        word = {True: "same", False: "DIFFERENT", None: "not checked"}[same]
        self.all_same &= same is not False
        print(f"{figure:<22} {word:<12} {detail}")

    def compare(self, figure: str, told: Any, found: Any) -> None:
        if told is None:
            self.say(figure, None, "the manifest does not tell it")
        elif found is None:
            self.say(figure, None, f"{told} in the manifest")
        else:
            self.say(figure, told == found, f"{found}" if told == found else f"{found}, the manifest says {told}")


def main(argv: "Sequence[str] | None" = None) -> int:
    """Check the bundle in a folder; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", nargs="?", type=Path, default=Path(__file__).resolve().parent)
    parser.add_argument("--host", action="store_true", help="compile and run the C on this computer, too")
    asked = parser.parse_args(argv)
    try:
        return 0 if check(asked.bundle, host=asked.host) else 1
    except Unusable as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def check(bundle: Path, *, host: bool = False) -> bool:
    """Print a line for each figure; return whether all are the same.

    Raises:
        Unusable: no bundle there, or a tool is missing.
    """
    recipe, manifest = read_json(bundle / RECIPE), read_json(bundle / "manifest.json")
    report = Report()
    check_files(bundle, report)
    vectors = read_vectors(bundle / "test_vectors.npz")
    with tempfile.TemporaryDirectory(prefix="verify-") as folder:
        work = Path(folder)
        try:
            check_firmware(bundle, recipe, manifest, vectors, work, report)
            if host:
                check_host(bundle, recipe, vectors, work, report)
        except (KeyError, TypeError, ValueError, AttributeError, OSError, struct.error) as error:
            raise Unusable(f"{bundle}: not a bundle that can be checked ({type(error).__name__}: {error}).") from error
    print("the same in every figure that was checked" if report.all_same else "something differs")
    return report.all_same


def check_files(bundle: Path, report: Report) -> None:
    """Compare every file with the digest that was written down."""
    path = bundle / SUMS
    if not path.is_file():
        report.say("files", False, f"no {SUMS}")
        return
    lines = [text.partition("  ") for text in path.read_text(encoding="utf-8").splitlines()]
    told = {name: wanted for wanted, _, name in lines}
    found = {one.relative_to(bundle).as_posix(): one for one in bundle.rglob("*") if one.is_file() and one != path}
    other = [name for name in told if name not in found or digest(found[name]) != told[name]]
    detail = f"{len(told)} as they were written" if not other else f"{len(other)} of {len(told)}, {other[0]!r} first"
    report.say("files", not other and bool(told), detail)


def digest(path: Path) -> str:
    """Return a file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_firmware(
    bundle: Path, recipe: Any, manifest: Any, vectors: Mapping[str, bytes], work: Path, report: Report
) -> None:
    """Build the firmware for the board, and for QEMU's machine, and compare sizes, outputs and counts."""
    need(GCC, SIZE)
    version = run([GCC, "-dumpfullversion"], work, 30).stdout.strip()
    told = str(recipe["gcc"])
    report.say("compiler", True if version == told else None, f"GCC {version}" + f", not {told}" * (version != told))
    for name in ("src", "harness"):
        shutil.copytree(bundle / name, work / name, symlinks=True)
    elf, used = build(recipe, recipe["board"], work, "firmware")
    report.compare("RAM, bytes", manifest["ram_bytes"], used["RAM"])
    report.compare("Flash, bytes", manifest["flash_bytes"], used["FLASH"])
    same = elf.read_bytes() == (bundle / "firmware.elf").read_bytes()
    if same or version == told:
        report.say("firmware.elf", same, "byte for byte")
    else:
        report.say("firmware.elf", None, "built by another compiler")
    machine = recipe["emulator"]
    if machine is None:
        report.say("outputs", None, "QEMU has no machine for this board")
        return
    need(QEMU)
    if machine["script"] != recipe["board"]["script"]:
        elf, _ = build(recipe, machine, work, "emulated")
    outputs, ticks, stack = emulate(word(machine["machine"]), elf, vectors["inputs"], int(recipe["input_bytes"]), work)
    compare_outputs(report, "outputs in QEMU", recipe, vectors, outputs)
    counted = round(ticks * NANOSECONDS / int(machine["systick_hz"])) if ticks else None
    report.compare("instructions", manifest["instructions"], counted)
    report.compare("stack, bytes", manifest["stack_used_bytes"], stack)


def build(recipe: Any, place: Any, work: Path, name: str) -> "tuple[Path, dict[str, int]]":
    """Return an ELF, linked for a place, and the bytes that it takes in each memory region."""
    core, compiling, linking = (flags(recipe[key]) for key in ("core_flags", "compile_flags", "link_flags"))
    uart, harness = word(place["uart"]), flags([*place["uart_flags"], *recipe["harness_flags"]])
    objects = []
    for unit in ["net", *(["stream"] if recipe["stream"] else [])]:
        succeed(run([GCC, *core, *compiling, "-c", f"../src/{unit}.c", "-o", f"{unit}.o"], at(work, name), BUILD_S))
        objects.append(f"{unit}.o")
    for unit in ("startup", "main", f"uart_{uart}"):
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


def talk(to: "Any", back: "Any", inputs: bytes, size: int) -> "Iterator[tuple[bytes, int, int]]":
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


def check_host(bundle: Path, recipe: Any, vectors: Mapping[str, bytes], work: Path, report: Report) -> None:
    """Compile the interface and the network strictly for this computer, with sanitizers, and run all vectors."""
    if shutil.which("gcc") is None:
        report.say("outputs on the host", None, "no gcc here")
        return
    (work / "host.c").write_text(_HOST_MAIN)
    sources = sorted(str(path) for path in (bundle / "src").glob("*.c"))
    checks = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    argv = ["gcc", *HOST_FLAGS, *checks, f"-I{bundle / 'src'}", "host.c", *sources, "-lm", "-o", "host"]
    succeed(run(argv, work, BUILD_S))
    done = subprocess.run(
        [str(work / "host")], input=vectors["inputs"], capture_output=True, timeout=RUN_S, check=False
    )
    if done.returncode:
        report.say("outputs on the host", False, done.stderr.decode(errors="replace").strip()[:200])
        return
    compare_outputs(report, "outputs on the host", recipe, vectors, done.stdout)


def compare_outputs(report: Report, figure: str, recipe: Any, vectors: Mapping[str, bytes], found: bytes) -> None:
    """Compare outputs with those of onnxruntime: bit for bit at int8, within its rounding at float32."""
    told, size = vectors["outputs"], int(recipe["output_bytes"])
    count = len(told) // size
    rows = [(told[i : i + size], found[i : i + size]) for i in range(0, len(told), size)]
    equal = sum(one == other for one, other in rows)
    if recipe["precision"] == "int8" or equal == count:
        report.say(figure, equal == count and len(found) == len(told), f"{equal} of {count} test vectors bit-equal")
        return
    wanted, got = (struct.unpack(f"<{len(data) // 4}f", data) for data in (told, found))
    apart = max((abs(a - b) for a, b in zip(wanted, got)), default=0.0)  # noqa: B905  # Python 3.9
    near = len(wanted) == len(got) and apart <= FLOAT32_ROUNDING * (max(map(abs, wanted)) + 1)
    report.say(figure, near, f"{count} test vectors, {apart:.2g} apart at most")


def read_vectors(path: Path) -> "dict[str, bytes]":
    """Return the arrays of an .npz file as bytes in C order, by name."""
    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.file_size > MOST_BYTES:
                    raise ValueError(f"{info.filename} is too large")
                data = archive.read(info)
                if data[:6] != b"\x93NUMPY":
                    raise ValueError(f"{info.filename} is no array")
                width = 2 if data[6] == 1 else 4
                start = 8 + width + int.from_bytes(data[8 : 8 + width], "little")
                about = ast.literal_eval(data[8 + width : start].decode("latin-1"))
                if about["fortran_order"]:
                    raise ValueError(f"{info.filename} is in another order")
                found[info.filename[: -len(".npy")]] = data[start:]
        return {name: found[name] for name in ("inputs", "outputs")}
    except (OSError, KeyError, TypeError, IndexError, SyntaxError, ValueError, zipfile.BadZipFile) as error:
        raise Unusable(f"{path} should hold test vectors with outputs: {type(error).__name__}: {error}.") from error


def read_json(path: Path) -> Any:
    """Return what a JSON file holds."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Unusable(f"{path} should be there and hold JSON: {error}.") from error


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


if __name__ == "__main__":
    sys.exit(main())
