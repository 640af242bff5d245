"""A made-up trace of 20 s at 100,000 samples a second: five cycles of 0.6 s at 15 mA, each with a spike of 0.2 ms."""

from pathlib import Path

import numpy as np
import pytest

from automcu_ray.core.errors import BoardError, ConfigError
from backends.instruments.replay import Replay, save
from backends.instruments.trace import PowerTrace, ThermalTrace, over_ceiling

RATE_HZ, SECONDS, VOLTS = 100_000, 20, 3.3
IDLE, ACTIVE, SPIKE = 0.002, 0.015, 0.04
STARTS = [1.0, 5.0, 9.0, 13.0, 17.0]


@pytest.fixture(scope="module")
def trace() -> PowerTrace:
    amperes = np.full(RATE_HZ * SECONDS, IDLE)
    for start in STARTS:
        at = round(start * RATE_HZ)
        amperes[at : at + 60_000] = ACTIVE
        amperes[at + 30_000 : at + 30_020] = SPIKE
    return PowerTrace(amperes, RATE_HZ, VOLTS)


def test_peak_mean_and_energy_of_a_cycle_are_worked_out_by_hand(trace: PowerTrace) -> None:
    assert trace.seconds == 20 and trace.peak_amperes == SPIKE
    charge = 17 * IDLE + 5 * (0.5998 * ACTIVE + 0.0002 * SPIKE)
    assert trace.mean_amperes == pytest.approx(charge / 20, rel=1e-9)
    cycle = VOLTS * (0.5998 * ACTIVE + 0.0002 * SPIKE)
    for start in STARTS:
        assert trace.between(start, start + 0.6).joules == pytest.approx(cycle, rel=1e-9)
    reference = np.sum(trace.amperes[100_000:160_000] * VOLTS) / RATE_HZ
    assert trace.between(1.0, 1.6).joules == pytest.approx(reference, rel=1e-12)


def test_means_of_10_ms_would_hide_the_peak(trace: PowerTrace) -> None:
    averaged = PowerTrace(trace.amperes.reshape(-1, 1000).mean(axis=1), 100, VOLTS)
    assert averaged.peak_amperes == pytest.approx(0.98 * ACTIVE + 0.02 * SPIKE)  # 15.5 mA, where 40 flowed
    assert averaged.joules == pytest.approx(trace.joules)


def test_a_supply_that_sags_counts_sample_by_sample() -> None:
    sagging = PowerTrace(np.array([0.1, 0.2, 0.1, 0.0]), 2, np.array([3.0, 2.5, 3.0, 3.3]))
    assert sagging.joules == pytest.approx((0.3 + 0.5 + 0.3) / 2)
    assert sagging.between(0.5, 1.5).joules == pytest.approx((0.5 + 0.3) / 2)


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (2, 2), (3, 1), (19, 21)])
def test_markers_outside_are_an_error(start: float, end: float, trace: PowerTrace) -> None:
    with pytest.raises(BoardError, match="within 0 to 20 s"):
        trace.between(start, end)


def test_temperature_rise_time_and_ceiling() -> None:
    run = ThermalTrace(np.array([298.0, 301.5, 309.0, 305.0]), ambient_kelvin=298.0, seconds=40.0)
    assert run.peak_rise_kelvin == 11.0
    assert run.objective(rise_weight=2.0, seconds_weight=0.5) == 42.0
    assert over_ceiling(309.0, 317.0, "temperature") == ""
    assert "ceiling 305" in over_ceiling(309.0, 305.0, "temperature")
    assert over_ceiling(float("nan"), 305.0, "temperature") != ""


def test_a_recorded_trace_replays_as_an_instrument(trace: PowerTrace, tmp_path: Path) -> None:
    save(trace, tmp_path / "trace.npz")
    found = Replay(path=tmp_path / "trace.npz").record(10)
    assert found.seconds == 10 and np.array_equal(found.amperes, trace.amperes[: 10 * RATE_HZ])


def test_what_is_no_trace_is_told(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no trace")
    np.savez(tmp_path / "nan.npz", amperes=np.array([np.nan]), rate_hz=1.0, volts=3.3)
    for name in ("text.npz", "nan.npz", "absent.npz"):
        with pytest.raises(ConfigError, match=name):
            Replay(path=tmp_path / name)
