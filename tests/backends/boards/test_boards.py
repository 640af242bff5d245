import contextlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import serial

from automcu_ray.core.errors import BoardError, ConfigError
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.target import Constraints, Emulator, McuTarget
from automcu_ray.testing.networks import NETWORKS, deployed_network, images
from backends.boards.base import Board, BoardRun, Port, ask, greet
from backends.boards.qemu import QemuBoard, command
from backends.c_qemu import stack
from backends.c_qemu.backend import CQemuBackend
from backends.c_qemu.linker import Layout
from tests.backends.boards.answers import out
from tests.backends.conftest import read_target

ONE_TARGET_A_MACHINE = ["nrf51822", "stm32f103", "stm32f401", "stm32f405", "stm32h743", "rp2350", "ensemble_e8_hp"]
ONE_TARGET_A_CORE = [
    "stm32f030",
    "rp2040",
    "stm32f103",
    "stm32f401",
    "stm32f746",
    "stm32h743",
    "rp2350",
    "ensemble_e8_hp",
]
GREETING = b"READY 00000004 00000002\n"
INPUTS = np.zeros((2, 1, 2, 2), np.int8)


class Script:
    """A port that has said everything already, and then is silent."""

    def __init__(self, said: bytes) -> None:
        self.said, self.heard = said, b""

    def write(self, data: bytes, /) -> int:
        self.heard += data
        return len(data)

    def read_until(self, expected: bytes, size: int, /) -> bytes:
        line, found, _ = self.said.partition(expected)
        read = (line + found)[:size]
        self.said = self.said[len(read) :]
        return read


class ScriptedBoard(Board):
    name = "scripted"

    def __init__(self, said: bytes) -> None:
        super().__init__()
        self.port = Script(said)

    @contextmanager
    def connect(self, elf: Path, target: McuTarget) -> Iterator[Port]:
        yield self.port

    def instructions(self, ticks: int, target: McuTarget) -> int:
        return 10 * ticks


def run(board: Board, target: McuTarget) -> BoardRun:
    return board.run(Path("net.elf"), target, INPUTS, output_dtype=np.int8, output_count=2)


def test_answers_are_decoded_and_figures_are_the_largest(target: McuTarget) -> None:
    said = out(bytes(4), b"\x01\xff", 16, 100) + out(bytes(4), b"\x80\x7f", 18, 96)
    board = ScriptedBoard(GREETING + said)
    got = run(board, target)
    assert got.outputs.tolist() == [[1, -1], [-128, 127]]
    assert (got.instructions, got.stack_used_bytes) == (180, 100)
    assert board.port.heard == 2 * (b"NET:" + bytes([4, 0, 0, 0]) + bytes(4) + bytes(4))


def test_a_frame_carries_length_and_sum() -> None:
    port = Script(out(bytes([255, 2, 3]), b"\x05", 1, 2))
    assert ask(port, bytes([255, 2, 3]), 1).output == b"\x05"
    assert port.heard == b"NET:" + bytes([3, 0, 0, 0]) + bytes([4, 1, 0, 0]) + bytes([255, 2, 3])


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b"", "in time"),
        (b"READY 0000", "in time"),
        (b"\xff\x00garbage\n", "READY and 2 words"),
        (b"READY 00000004 00000003\n", r"take 4 and give 2 bytes, found \[4, 3\]"),
        (GREETING + b"FAULT stack\n", "faulted"),
        (GREETING + b"BAD sum\n", "OUT and 4 words, found 'BAD sum'"),
        (GREETING + b"OUT zz00 1 2 3\n", "hexadecimal"),
        (GREETING + b"OUT 01 1 2 3\n", "2 bytes of output, found 1"),
        (GREETING + b"OUT -001 1 2 3\n", "hexadecimal"),
        (GREETING + b"OUT 0_01 1 2 3\n", "hexadecimal"),
        (GREETING + b"OUT 01ff -1 2 3\n", "hexadecimal"),
        (GREETING + b"OUT 01ff " + b"f" * 300 + b" 2 3\n", "hexadecimal"),
        (GREETING + b"OUT 01ff 10 64\n", "no CRC: the firmware is of an earlier version"),
        (GREETING + b"OUT 01ff 10 64 00000000\n", "CRC"),
        (b"READY " * 100_000, "found 'READY READY"),
    ],
)
def test_silence_faults_and_rubbish_are_board_errors(said: bytes, message: str, target: McuTarget) -> None:
    with pytest.raises(BoardError, match=message):
        run(ScriptedBoard(said), target)


def test_an_answer_that_lost_a_byte_or_took_noise_in_is_never_believed() -> None:
    """Each byte of a line dropped, doubled, or changed in one bit; and the answer to an input with two bits turned."""
    payload, line = bytes([255, 2, 3]), out(bytes([255, 2, 3]), b"\x05\x80", 0x1234, 0x60)
    damaged = [line[:at] + line[at + 1 :] for at in range(len(line))]
    damaged += [line[:at] + line[at : at + 1] + line[at:] for at in range(len(line) - 1)]
    damaged += [
        line[:at] + bytes([line[at] ^ 1 << bit]) + line[at + 1 :] for at in range(len(line)) for bit in range(8)
    ]
    damaged.append(out(bytes([254, 3, 3]), b"\x05\x80", 0x1234, 0x60))  # its sum is that of the payload
    same = re.compile(rb"\s*OUT\s+0580\s+0*1234\s+0*60\s+" + line.split()[-1] + rb"\s*\n", re.IGNORECASE)
    believed = []
    for said in damaged:
        with contextlib.suppress(BoardError):
            believed.append((ask(Script(said), payload, 2), said))
    assert len(believed) < len(damaged) / 4 and all(same.fullmatch(said) for _, said in believed), believed


def test_the_protocol_speaks_over_any_pyserial_port() -> None:
    port = serial.serial_for_url("loop://", timeout=0.2)
    port.write(GREETING)
    greet(port, 4, 2)
    with pytest.raises(BoardError, match="in time"):
        greet(port, 4, 2)


def test_instructions_are_counted_and_the_port_is_a_socket() -> None:
    argv = " ".join(command("netduinoplus2", Path("/x/net.elf"), 7))
    assert "-icount shift=0" in argv and "socket,id=uart,fd=7,server=on,wait=on" in argv


def test_a_target_without_emulator_says_what_to_do(target: McuTarget) -> None:
    with pytest.raises(ConfigError, match="names no emulator"):
        run(QemuBoard(), target.replace(emulator=None))


def test_a_machine_that_nobody_knows_comes_with_the_nearest_one(target: McuTarget) -> None:
    emulator = Emulator(machine="mps2-an387", source="a slip of the pen")
    with pytest.raises(ConfigError, match=r"did you mean 'mps2-an38[56]'"):
        CQemuBackend()._link_for_emulator(target.replace(emulator=emulator), Layout(0, 1, 0, 1, 0, 1, 1, 1), Path("x"))


def test_a_result_says_which_machine_ran(target: McuTarget) -> None:
    assert QemuBoard().label(target) == "qemu netduinoplus2"
    assert QemuBoard().label(read_target("rp2350")) == "qemu mps2-an505"
    assert ScriptedBoard(b"").label(target) == "scripted"


def run_network(made: DeployedNetwork, batch: npt.NDArray[np.uint8], target: McuTarget, folder: Path) -> BoardRun:
    elf = CQemuBackend().build(made, target, Constraints(), folder).board_elf
    assert elf is not None
    board, dtype = QemuBoard(timeout_s=30), made.output_dtype
    return board.run(elf, target, made.encode(batch), output_dtype=dtype, output_count=made.num_classes)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", ["stm32f405", *ONE_TARGET_A_CORE])
def test_every_core_gives_the_bits_of_onnxruntime(qemu: None, name: str, network: str, tmp_path: Path) -> None:
    made, batch = deployed_network(network, "int8"), images(5, seed=8)  # all 0 and all 255 among them
    got = run_network(made, batch, read_target(name), tmp_path)
    assert np.array_equal(got.outputs, made.run(batch))
    assert 0 < got.stack_used_bytes < min(1024, stack.bound_bytes((tmp_path / "net.ci").read_text()))
    assert got.instructions and got.seconds > 0


@pytest.mark.parametrize("name", NETWORKS)
def test_float32_on_the_board_differs_by_the_order_of_sums_only(
    qemu: None, name: str, target: McuTarget, tmp_path: Path
) -> None:
    made, batch = deployed_network(name, "float32"), images(2, seed=8)
    got = run_network(made, batch, target, tmp_path)
    np.testing.assert_allclose(got.outputs, made.run(batch), rtol=1e-5, atol=1e-6)


def link_own_net(source: str, folder: Path, target: McuTarget, stack_bytes: int = 1024) -> Path:
    """Link a hand-written net() into the harness; one byte in, one byte out."""
    (folder / "net.c").write_text(source)
    backend = CQemuBackend()
    backend._compile(target.core, folder, ["net"])
    flash, ram = target.flash, target.main_ram
    here = (flash.origin, flash.size_bytes, ram.origin, ram.size_bytes, flash.origin)
    layout = Layout(*here, input_bytes=1, output_bytes=1, stack_bytes=stack_bytes)
    backend._link("net", target.core, target.uart, layout, folder)
    return backend._link_for_emulator(target, layout, folder) or folder / "net.elf"


def run_one(elf: Path, target: McuTarget, timeout_s: float = 20) -> BoardRun:
    board = QemuBoard(timeout_s=timeout_s)
    return board.run(elf, target, np.zeros((1, 1), np.int8), output_dtype=np.int8, output_count=1)


SKIPS = "extern volatile unsigned _stack_start[]; void net(void) {{ _stack_start[{}] = 0; }}"


def test_an_overflow_that_skips_the_last_word_of_the_stack_is_seen(
    qemu: None, tmp_path: Path, target: McuTarget
) -> None:
    for word in (1, 63):  # 256 bytes are never needed
        with pytest.raises(BoardError, match="stack larger than its reserve"):
            run_one(link_own_net(SKIPS.format(word), tmp_path, target), target)
    assert run_one(link_own_net(SKIPS.format(64), tmp_path, target), target).instructions is not None


NO_SYSTICK = "void net(void) { *(volatile unsigned *)0xE000E010u = 0; *(volatile unsigned *)0xE000E018u = 0; }"


def test_where_nothing_counts_ticks_the_answer_comes_without_them(qemu: None, tmp_path: Path) -> None:
    target = read_target("nrf51822")
    assert run_one(link_own_net(NO_SYSTICK, tmp_path, target), target, timeout_s=5).instructions is None


def test_no_ticks_are_no_count_and_never_zero_instructions(target: McuTarget) -> None:
    said = GREETING + out(bytes(4), b"\x01\xff") * 2
    assert run(ScriptedBoard(said), target).instructions is None


def countdown(start: int) -> str:
    """Return a net() of two instructions for each step down from `start`."""
    loop = '".syntax unified\\n1: subs %0, #1\\nbne 1b" : "+l"(left) :: "cc"'
    return f"void net(void) {{ unsigned left = {start}; __asm__ volatile({loop}); }}"


@pytest.mark.parametrize("name", ONE_TARGET_A_MACHINE)
def test_a_loop_of_two_million_instructions_counts_as_two_million(qemu: None, name: str, tmp_path: Path) -> None:
    target = read_target(name)
    got = run_one(link_own_net(countdown(1_000_000), tmp_path, target), target)
    assert got.instructions == pytest.approx(2_000_000, abs=125)  # within two ticks, of at most 62.5 instructions


def test_a_long_inference_outlives_the_24_bits_of_the_counter(qemu: None, tmp_path: Path, target: McuTarget) -> None:
    # 2^24 ticks are 99.9 million instructions
    elf = link_own_net(countdown(120_000_000), tmp_path, target)
    assert run_one(elf, target).instructions == pytest.approx(240_000_000, abs=300)


# What generated C can call: functions of the maths library, double arithmetic (in software on all but one core).
LIBRARY = """
#include <math.h>
#include <string.h>
volatile float x = 0.7f;
volatile double y = 0.7;
char from[64], to[64];
void net(void) {
    x = expf(x); x = expf(-200.0f * x); x = tanhf(x); x = erff(x); x = powf(x + 1, x); x = logf(x + 1); x = sqrtf(x);
    x = fmaf(x, x, x); x = fmaxf(x, 1); x = fminf(x, 1); x = fabsf(x); x = floorf(x); x = ceilf(x); x = roundf(x);
    x = nearbyintf(x); y = nearbyint(y); y = y * y / (y + 1); y = sqrt(y); x = (float)y; x = (float)(long)y;
    memcpy(to, from, sizeof to); memset(to, 1, sizeof to); memmove(to, to + 1, 32);
}
"""


# What code written by a model may call besides: large angles need the deepest calls.
ANGLES = """
#include <math.h>
volatile float x = 3e8f;
void net(void) { x = sinf(x) * 1e9f; x = cosf(x) * 1e9f; x = tanf(x); }
"""
DOUBLES = """
#include <math.h>
volatile double x = 3e8;
void net(void) { x = sin(x * 1e9); x = pow(x * x + 0.1, 1.7); x = cos(x * 1e12); x = erf(x); x = log1p(x); }
"""


@pytest.mark.parametrize("name", ONE_TARGET_A_MACHINE)
@pytest.mark.parametrize(("source", "most"), [(LIBRARY, 640), (ANGLES, 1024), (DOUBLES, 1400)])
def test_no_function_of_a_library_uses_more_stack_than_its_allowance(
    qemu: None, source: str, most: int, name: str, tmp_path: Path
) -> None:
    target = read_target(name)
    elf = link_own_net(source, tmp_path, target, stack_bytes=2048)
    used = run_one(elf, target).stack_used_bytes
    assert 0 < used < stack.bound_bytes((tmp_path / "net.ci").read_text()) <= most


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "static volatile char a[4096]; volatile char big[1500]; for (int i = 0; i < 1500; i++) big[i] = a[i];",
            "faulted",
        ),
        ("for (;;) {}", "in time"),
    ],
)
def test_a_firmware_that_crashes_or_hangs_is_a_board_error(
    body: str, message: str, qemu: None, tmp_path: Path, target: McuTarget
) -> None:
    elf = link_own_net(f"void net(void) {{ {body} }}", tmp_path, target)
    with pytest.raises(BoardError, match=message):
        run_one(elf, target, timeout_s=3)


@pytest.mark.parametrize("name", ONE_TARGET_A_MACHINE)
def test_a_crash_is_told_on_every_machine(qemu: None, name: str, tmp_path: Path) -> None:
    target = read_target(name)
    with pytest.raises(BoardError, match="faulted"):
        run_one(link_own_net('void net(void) { __asm__ volatile("udf #0"); }', tmp_path, target), target)


def test_a_file_that_is_no_firmware_is_a_board_error(qemu: None, tmp_path: Path, target: McuTarget) -> None:
    (tmp_path / "x.elf").write_bytes(b"not an ELF")
    with pytest.raises(BoardError, match="QEMU ended with status -6: qemu: fatal: Lockup"):
        run_one(tmp_path / "x.elf", target, timeout_s=60)


def test_what_qemu_says_before_it_ends_is_in_the_error(qemu: None, tmp_path: Path, target: McuTarget) -> None:
    with pytest.raises(BoardError, match=f"QEMU ended with status 1: .*Could not load kernel '{tmp_path}/none.elf'"):
        run_one(tmp_path / "none.elf", target, timeout_s=3)


def test_an_elf_may_be_named_from_here(
    qemu: None, tmp_path: Path, target: McuTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    link_own_net("void net(void) {}", tmp_path, target)
    monkeypatch.chdir(tmp_path)
    assert run_one(Path("net.elf"), target).instructions is not None


def test_boards_can_run_side_by_side(qemu: None, tmp_path: Path, target: McuTarget) -> None:
    made, wrong = deployed_network("viewed", "int8"), list[int]()
    elf = CQemuBackend().build(made, target, Constraints(), tmp_path).elf
    assert elf is not None

    def one(seed: int) -> None:
        batch = images(2, seed)
        got = QemuBoard().run(elf, target, made.encode(batch), output_dtype=np.int8, output_count=5)
        if not np.array_equal(got.outputs, made.run(batch)):
            wrong.append(seed)

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
