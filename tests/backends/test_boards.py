import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import serial

from automcu_ray import plugins
from automcu_ray.errors import BoardError, ConfigError
from automcu_ray.target import Constraints, McuTarget
from backends.boards import BOARDS
from backends.boards.base import Board, Port, ask, greet
from backends.boards.qemu import QemuBoard, command
from backends.c_qemu import CORE_FLAGS, FIRMWARE, CQemuBackend
from tests.backends.conftest import read_target
from tests.networks_for_export import NETWORKS, deployed_network, images

GREETING = b"READY 00000004 00000002\n"
INPUTS = np.zeros((2, 1, 2, 2), np.int8)


class Script:
    """A port that has said everything already, and then is silent."""

    def __init__(self, said: bytes) -> None:
        self.said, self.heard = said, b""

    def write(self, data: bytes, /) -> int:
        self.heard += data
        return len(data)

    def read_until(self, expected: bytes, /) -> bytes:
        line, found, self.said = self.said.partition(expected)
        return line + found


class ScriptedBoard(Board):
    name = "scripted"

    def __init__(self, said: bytes) -> None:
        super().__init__()
        self.port = Script(said)

    @contextmanager
    def connect(self, elf: Path, target: McuTarget) -> Iterator[Port]:
        yield self.port

    def instructions(self, ticks: int, target: McuTarget) -> int | None:
        return None


def run(said: bytes, target: McuTarget) -> object:
    return ScriptedBoard(said).run(Path("net.elf"), target, INPUTS, output_dtype=np.int8, output_count=2)


def test_answers_are_decoded_and_figures_are_the_largest(target: McuTarget) -> None:
    board = ScriptedBoard(GREETING + b"OUT 01ff 0000000000000010 00000064\nOUT 807f 0000000000000012 00000060\n")
    got = board.run(Path("net.elf"), target, INPUTS, output_dtype=np.int8, output_count=2)
    assert got.outputs.tolist() == [[1, -1], [-128, 127]]
    assert (got.instructions, got.stack_used_bytes) == (None, 100)
    assert board.port.heard == 2 * (b"NET:" + bytes([4, 0, 0, 0]) + bytes(4) + bytes(4))


def test_a_frame_carries_length_and_sum() -> None:
    port = Script(b"OUT 05 01 02\n")
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
        (GREETING + b"BAD sum\n", "OUT and 3 words, found 'BAD sum'"),
        (GREETING + b"OUT zz00 1 2\n", "hexadecimal"),
        (GREETING + b"OUT 01 1 2\n", "2 bytes of output, found 1"),
    ],
)
def test_silence_faults_and_rubbish_are_board_errors(said: bytes, message: str, target: McuTarget) -> None:
    with pytest.raises(BoardError, match=message):
        run(said, target)


def test_no_inputs_are_a_board_error(target: McuTarget) -> None:
    with pytest.raises(BoardError, match="at least one input"):
        ScriptedBoard(GREETING).run(Path("x"), target, INPUTS[:0], output_dtype=np.int8, output_count=2)


def test_the_protocol_speaks_over_any_pyserial_port() -> None:
    port = serial.serial_for_url("loop://", timeout=0.2)
    port.write(GREETING)
    greet(port, 4, 2)
    with pytest.raises(BoardError, match="in time"):
        greet(port, 4, 2)


def test_the_table_knows_qemu_and_its_command_line() -> None:
    assert plugins.load("board", BOARDS, "qemu") is QemuBoard
    argv = " ".join(command("netduinoplus2", Path("/x/net.elf"), 7))
    assert "-icount shift=0" in argv and "socket,id=uart,fd=7,server=on,wait=on" in argv


def test_a_target_without_emulator_says_what_to_do() -> None:
    board = QemuBoard()
    with pytest.raises(ConfigError, match="names no emulator"):
        board.run(Path("x"), read_target("stm32f103"), INPUTS, output_dtype=np.int8, output_count=2)


@pytest.fixture
def build(qemu: None, tmp_path: Path, target: McuTarget) -> Callable[[str, str], Path]:
    def made(name: str, precision: str) -> Path:
        elf = CQemuBackend().build(deployed_network(name, precision), target, Constraints(), tmp_path).elf
        assert elf is not None
        return elf

    return made


@pytest.mark.parametrize("name", NETWORKS)
def test_int8_on_the_board_is_bit_equal_to_onnxruntime(
    name: str, build: Callable[[str, str], Path], target: McuTarget
) -> None:
    made, batch = deployed_network(name, "int8"), images(5, seed=8)  # all 0 and all 255 among them
    got = QemuBoard(timeout_s=30).run(
        build(name, "int8"), target, made.encode(batch), output_dtype=np.int8, output_count=made.num_classes
    )
    assert np.array_equal(got.outputs, made.run(batch))
    assert 0 < got.stack_used_bytes < 1024 and got.instructions and got.seconds > 0


@pytest.mark.parametrize("name", NETWORKS)
def test_float32_on_the_board_differs_by_the_order_of_sums_only(
    name: str, build: Callable[[str, str], Path], target: McuTarget
) -> None:
    made, batch = deployed_network(name, "float32"), images(2, seed=8)
    got = QemuBoard(timeout_s=30).run(
        build(name, "float32"), target, made.encode(batch), output_dtype=np.float32, output_count=5
    )
    np.testing.assert_allclose(got.outputs, made.run(batch), rtol=1e-5, atol=1e-6)


def test_instructions_and_stack_are_the_same_in_every_run(build: Callable[[str, str], Path], target: McuTarget) -> None:
    elf, made = build("plain", "int8"), deployed_network("plain", "int8")
    runs = [
        QemuBoard().run(elf, target, made.encode(images(1)), output_dtype=np.int8, output_count=5) for _ in range(3)
    ]
    assert len({(run.instructions, run.stack_used_bytes) for run in runs}) == 1


def link_own_net(source: str, folder: Path, target: McuTarget) -> Path:
    """Link a hand-written net() into the harness; one byte in, one byte out."""
    (folder / "net.c").write_text(source)
    script = (FIRMWARE / "link.ld").read_text()
    regions = {
        "FLASH_ORIGIN": "0x08000000",
        "FLASH_BYTES": "64K",
        "RAM_ORIGIN": "0x20000000",
        "RAM_BYTES": "64K",
    }
    for name, value in (regions | {"INPUT_BYTES": "1", "OUTPUT_BYTES": "1", "STACK_BYTES": "1024"}).items():
        script = script.replace(f"@{name}@", value)
    (folder / "link.ld").write_text(script)
    files = [str(FIRMWARE / f"{name}.c") for name in ("startup", "main", "uart_stm32_v1")]
    flags = [*CORE_FLAGS[target.core], "-O2", "-DUART_BASE=0x40011000u", "-nostartfiles", "-Tlink.ld"]
    done = CQemuBackend().run(
        [
            "arm-none-eabi-gcc",
            *flags,
            "--specs=nano.specs",
            "--specs=nosys.specs",
            "net.c",
            *files,
            "-o",
            "x.elf",
        ],
        timeout_s=60,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return folder / "x.elf"


def run_one(elf: Path, target: McuTarget, timeout_s: float = 20) -> int | None:
    board = QemuBoard(timeout_s=timeout_s)
    return board.run(elf, target, np.zeros((1, 1), np.int8), output_dtype=np.int8, output_count=1).instructions


def test_a_loop_of_two_million_instructions_counts_as_two_million(
    qemu: None, tmp_path: Path, target: McuTarget
) -> None:
    loop = 'void net(void) { __asm__ volatile("mov r3, %0\\n1: subs r3, #1\\nbne 1b" :: "r"(1000000) : "r3"); }'
    assert run_one(link_own_net(loop, tmp_path, target), target) == pytest.approx(2_000_000, abs=60)


def test_a_long_inference_outlives_the_24_bits_of_the_counter(qemu: None, tmp_path: Path, target: McuTarget) -> None:
    # 2^24 ticks are 99.9 million instructions
    loop = 'void net(void) { __asm__ volatile("mov r3, %0\\n1: subs r3, #1\\nbne 1b" :: "r"(120000000) : "r3"); }'
    assert run_one(link_own_net(loop, tmp_path, target), target) == pytest.approx(240_000_000, abs=300)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('__asm__ volatile("udf #0");', "faulted"),
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


def test_a_file_that_is_no_firmware_is_a_board_error(qemu: None, tmp_path: Path, target: McuTarget) -> None:
    (tmp_path / "x.elf").write_bytes(b"not an ELF")
    start = time.monotonic()
    with pytest.raises(BoardError, match="QEMU ended with status -6: qemu: fatal: Lockup"):
        run_one(tmp_path / "x.elf", target, timeout_s=3)
    assert time.monotonic() - start < 10


def test_what_qemu_says_before_it_ends_is_in_the_error(qemu: None, tmp_path: Path, target: McuTarget) -> None:
    with pytest.raises(BoardError, match=f"QEMU ended with status 1: .*Could not load kernel '{tmp_path}/none.elf'"):
        run_one(tmp_path / "none.elf", target, timeout_s=3)


def test_an_elf_may_be_named_from_here(
    qemu: None, tmp_path: Path, target: McuTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    link_own_net("void net(void) {}", tmp_path, target)
    monkeypatch.chdir(tmp_path)
    assert run_one(Path("x.elf"), target) is not None


def test_boards_can_run_side_by_side(build: Callable[[str, str], Path], target: McuTarget) -> None:
    elf, made = build("viewed", "int8"), deployed_network("viewed", "int8")
    wrong: list[int] = []

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
