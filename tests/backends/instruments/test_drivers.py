"""Drivers against programs that speak as the instruments do, at the other end of a pseudo terminal."""

import os
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from automcu_ray.core.errors import BoardError, ConfigError
from backends.instruments import lpm01a, thermometer
from backends.instruments.joulescope import joined
from backends.instruments.lpm01a import Lpm01a
from backends.instruments.ppk2 import RATE_HZ, Calibration, Ppk2, decode
from backends.instruments.thermometer import Thermometer
from backends.instruments.trace import PowerTrace
from tests.backends.instruments.test_trace import ACTIVE, IDLE, SECONDS, SPIKE, STARTS, VOLTS

RESISTANCES = (1031.64, 101.65, 10.15, 0.94, 0.043)
GAINS = (1.0, 0.998, 1.002, 0.999, 1.01)
METADATA = (
    "Calibrated: 0\n"
    + "".join(f"R{i}: {R}\n" for i, R in enumerate(RESISTANCES))
    + "".join(f"GS{i}: {1 + i / 9}\nGI{i}: {g}\nO{i}: {10 * i}.5\nS{i}: -0.000001\nI{i}: 1e-6\nUG{i}: 1.00\n"
              for i, g in enumerate(GAINS))
    + "HW: 9173\nIA: 56\nEND"
)  # fmt: skip


def encode(amperes: np.ndarray, ranges: np.ndarray) -> bytes:
    """Return words whose converter's values are nearest to currents, a counter, and an input that is low in a cycle."""
    own = Calibration.parse(METADATA)
    codes = np.arange(1 << 14, dtype=np.uint32)
    words = np.zeros(len(amperes), np.uint32)
    for one in range(5):
        told = own.amperes(codes | np.uint32(one << 14), VOLTS)
        here = ranges == one
        words[here] = np.searchsorted(told, amperes[here]).clip(0, (1 << 14) - 1).astype(np.uint32) | np.uint32(
            one << 14
        )
    count = np.arange(len(amperes), dtype=np.uint32)
    level = np.ones(len(amperes), np.uint32)
    for start in STARTS:
        level[round(start * RATE_HZ) : round((start + 0.6) * RATE_HZ)] = 0
    return bytes((words | (count % 64) << 18 | level << 24).astype("<u4").tobytes())


@pytest.fixture(scope="module")
def made_up() -> tuple[np.ndarray, bytes]:
    """The trace of `test_trace.py`, and as a PPK2 would send it."""
    amperes = np.full(RATE_HZ * SECONDS, IDLE)
    for start in STARTS:
        at = round(start * RATE_HZ)
        amperes[at : at + 60_000] = ACTIVE
        amperes[at + 30_000 : at + 30_020] = SPIKE
    ranges = np.where(amperes > 0.01, 3, 2)
    ranges[amperes == SPIKE] = 4
    return amperes, encode(amperes, ranges)


def test_a_ppk2s_trace_has_the_peak_mean_and_energy_a_cycle_of_a_numpy_reference(
    made_up: tuple[np.ndarray, bytes],
) -> None:
    _, data = made_up
    trace = decode(data, Calibration.parse(METADATA), VOLTS)
    words = np.frombuffer(data, "<u4")
    ranges, adc = words >> 14 & 7, (words & 0x3FFF) * 4.0
    r, gs, gi = (np.array(one)[ranges] for one in (RESISTANCES, [1 + i / 9 for i in range(5)], GAINS))
    bare = (adc - (10 * ranges + 0.5)) * 1.8 / 163840 / r
    reference = bare * (gs * bare + gi) - 1e-6 * VOLTS + 1e-6
    np.testing.assert_allclose(trace.amperes, reference, rtol=1e-12)
    assert trace.peak_amperes == reference.max() == pytest.approx(SPIKE, rel=0.05)  # within a step of the widest range
    assert trace.mean_amperes == pytest.approx(reference.mean(), rel=1e-12)
    edges = trace.falling_edges_s(0)
    assert edges == STARTS
    for start in edges:
        part = slice(round(start * RATE_HZ), round((start + 0.6) * RATE_HZ))
        assert trace.between(start, start + 0.6).joules == pytest.approx(
            VOLTS * reference[part].sum() / RATE_HZ, rel=1e-12
        )
        wanted = VOLTS * (0.5998 * ACTIVE + 0.0002 * SPIKE)
        assert trace.between(start, start + 0.6).joules == pytest.approx(wanted, rel=0.01)
    averaged = PowerTrace(trace.amperes.reshape(-1, 1000).mean(axis=1), 100, VOLTS)  # the published harness' mistake
    assert averaged.peak_amperes < 0.4 * trace.peak_amperes


def test_a_ppk2_that_loses_samples_or_is_out_of_step_is_not_believed(made_up: tuple[np.ndarray, bytes]) -> None:
    data, own = made_up[1][:4000], Calibration.parse(METADATA)
    with pytest.raises(BoardError, match="found 1 gaps"):
        decode(data[:400] + data[404:], own, VOLTS)
    for wrong in (b"", data[1:], bytes(4 * 99 * [0xFF])):
        with pytest.raises(BoardError):
            decode(wrong, own, VOLTS)
    with pytest.raises(BoardError, match="R0 to R4"):
        Calibration.parse("R0: 1.0\nR1: -3\nEND")


@contextmanager
def answering(answer: Callable[[bytes], bytes], after: bytes = b"") -> Iterator[tuple[str, list[bytes]]]:
    """Yield a serial device behind which a program answers what is written to it, and what that was."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    heard: list[bytes] = []

    def serve() -> None:
        try:
            if after:
                os.write(ours, after)
            while True:
                heard.append(os.read(ours, 4096))
                os.write(ours, answer(heard[-1]))
        except OSError:
            return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield os.ttyname(theirs), heard
    finally:
        os.close(theirs)
        thread.join(5)  # its read ends when nobody has the other end open; only then may the number be used again
        os.close(ours)


def test_a_ppk2_is_set_up_in_order_and_its_stream_recorded(made_up: tuple[np.ndarray, bytes]) -> None:
    def answer(asked: bytes) -> bytes:
        if b"\x19" in asked[:2]:
            return METADATA.encode()
        return made_up[1][:400_000] if asked[-1:] == b"\x06" else b""

    with answering(answer) as (port, heard):
        device = Ppk2(port=port, volts=3.3)
        device.start()
        time.sleep(0.1)
        while device._gathered is not None and len(device._gathered.data) < 400_000:
            time.sleep(0.01)
        trace = device.stop()
        device.close()
        time.sleep(0.05)
    assert len(trace.amperes) == 100_000 and trace.seconds == 1 and 0 < trace.started_s < time.monotonic()
    said = b"".join(heard)
    # stop, calibration, 3300 mV = 2500 + 32 above (3, 0), source meter, power, start; stop, power off
    assert said == bytes([0x07, 0x19, 0x0D, 3 + 2532 // 256, 2532 % 256, 0x11, 2, 0x0C, 1, 0x06, 0x07, 0x0C, 0])


def test_an_lpm01a_acknowledges_each_command_and_its_samples_are_read() -> None:
    def answer(asked: bytes) -> bytes:
        lines = [line for line in asked.decode().split("\r\n") if line]
        said = b"".join(f"PowerShield > ack {line}\r\n".encode() for line in lines)
        if "start" in lines:
            said += b"TimeStamp: 000s 000ms, buff 00%\r\n6409-07\r\n1500-05\r\nevent 1 ris\r\n0002+00\r\n"
        return said

    with answering(answer) as (port, heard):
        device = Lpm01a(port=port, volts=1.8)
        device.start()
        time.sleep(0.2)
        trace = device.stop()
        device.close()
    np.testing.assert_allclose(trace.amperes, [640.9e-6, 15e-3, 2.0], rtol=1e-12)
    assert trace.rate_hz == 5000 and b"volt 1800m\r\n" in b"".join(heard)
    with answering(lambda asked: b"PowerShield > error\r\n") as (port, _):
        refused = Lpm01a(port=port)
        with pytest.raises(BoardError, match="'htc'"):
            refused.start()
        refused.close()
    for said in (b"", b"nonsense\r\n", b"6409-07\r\nError: overflow\r\n"):
        with pytest.raises(BoardError):
            lpm01a.parse(said)


def test_the_hottest_pixel_counts_and_rubbish_is_no_temperature() -> None:
    lines = b"3.0\nT 24.5\nT: 26.25\n24.0,31.5,25.0\nT 2"
    trace = thermometer.parse(lines, 12.0, ambient_c=22.0)
    assert trace.peak_rise_kelvin == pytest.approx(9.5) and len(trace.kelvin) == 3
    assert trace.objective(rise_weight=2, seconds_weight=0.5) == pytest.approx(25)
    assert thermometer.parse(b"\nT 20\nT 21\n", 1, None).peak_rise_kelvin == pytest.approx(1)
    for wrong in (b"", b"x\n", b"x\nT nan\n", b"x\nT 1e3\n", b"x\nT -300\n", b"x\nT 20 ERROR\n"):
        with pytest.raises(BoardError):
            thermometer.parse(wrong, 1, None)
    with answering(lambda asked: b"", after=b"T 1\nT 20\nT 30\n") as (port, _):
        device = Thermometer(port=port, ambient_c=20)
        device.start()
        device.close()


def test_current_and_voltage_of_a_joulescope_are_joined_and_a_gap_is_told() -> None:
    about = {"sample_rate": 2_000_000, "decimate_factor": 2}
    parts = [{**about, "sample_id": 100 + 6 * i, "data": np.arange(3.0)} for i in range(3)]
    first, rate_hz, samples = joined(parts)
    assert (first, rate_hz, len(samples)) == (50, 1e6, 9)
    for wrong in ([], [parts[0], parts[2]]):
        with pytest.raises(BoardError):
            joined(wrong)


def test_options_out_of_range_and_ports_that_are_not_there_are_told() -> None:
    for make in (lambda: Ppk2(volts=9), lambda: Lpm01a(rate="100k"), lambda: Thermometer(ambient_c=900)):
        with pytest.raises(ConfigError):
            make()
    with pytest.raises(ConfigError, match="serial port"):
        Ppk2().start()
    with pytest.raises(BoardError, match="cannot be opened"):
        Lpm01a(port="/dev/no-such-port").start()
