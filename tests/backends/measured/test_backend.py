"""A board of the map as a second opinion: figures, limits by name, and boards that fail and cost nobody anything."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from automcu_ray.core.errors import BoardError, ConfigError
from automcu_ray.core.feasibility import FeasibilityReport, Measured, Rung
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.testing.networks import deployed_network
from backends.boards.pool import BoardEntry, Pool
from backends.boards.qemu import command
from backends.instruments.replay import save
from backends.instruments.trace import PowerTrace, ThermalTrace
from backends.measured import backend as module
from backends.measured.backend import BoardBackend, read_map
from backends.measured.measuring import Differs, lines, over_limits
from backends.programs import running

NETWORK = deployed_network("plain", "int8")
RATE_HZ, VOLTS, IDLE, SPIKE = 10_000, 3.0, 0.010, 0.250


def written(folder: Path, *entries: dict[str, Any]) -> str:
    (folder / "boards.yaml").write_text(yaml.safe_dump({"boards": list(entries)}))
    return str(folder / "boards.yaml")


def asked(folder: Path, *entries: dict[str, Any], inputs: int = 3) -> BoardBackend:
    return BoardBackend(map=written(folder, *entries), inputs=inputs, locks=str(folder / "locks"))


def report_of(backend: BoardBackend, target: McuTarget, folder: Path, limits: Constraints) -> FeasibilityReport:
    (folder / "work").mkdir(exist_ok=True)
    return backend.build(NETWORK, target, limits, folder / "work").report


@pytest.fixture
def replaying(tmp_path: Path) -> dict[str, Any]:
    """An emulated board beside which a minute of current replays: 10 mA, and a sample of 250 mA every 20 ms."""
    amperes = np.full(60 * RATE_HZ, IDLE)
    amperes[:: RATE_HZ // 50] = SPIKE
    save(PowerTrace(amperes, RATE_HZ, VOLTS), tmp_path / "trace.npz")
    options = {"path": str(tmp_path / "trace.npz")}
    return {"id": "desk", "runner": "qemu", "instrument": "replay", "instrument_options": options}


@pytest.mark.usefixtures("qemu")
def test_energy_and_peak_are_figures_and_limits_by_name(
    target: McuTarget, tmp_path: Path, replaying: dict[str, Any]
) -> None:
    backend = asked(tmp_path, replaying)
    assert backend.measures == {"instructions", "energy", "current"}
    report = report_of(backend, target, tmp_path, Constraints(current_ma=200, energy_mj=1e6))
    found = report.measured
    assert found is not None and found.seconds is not None and found.energy_mj is not None
    mean_amperes = IDLE + (SPIKE - IDLE) / (RATE_HZ // 50)
    assert found.energy_mj == pytest.approx(1000 * VOLTS * mean_amperes * found.seconds, rel=0.2)
    assert (found.current_ma, found.latency_ms, found.temperature_c) == (250.0, None, None)
    (violation,) = report.violations
    assert (violation.rung, violation.resource, report.feasible) == (Rung.BOARD, "current", False)
    assert violation.message == "current: the supply's peak is 250 mA on board 'desk', the limit 200"
    assert "board desk and replay: all 3 outputs as onnxruntime's" in report.notes
    assert not any("latency" in note for note in report.notes)


@pytest.mark.usefixtures("qemu")
def test_time_is_counted_by_the_chip_behind_a_serial_port(target: McuTarget, tmp_path: Path) -> None:
    elf = BoardBackend(locks=str(tmp_path / "other")).toolchain.build(NETWORK, target, Constraints(), tmp_path).elf
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    argv = [*command("netduinoplus2", elf or tmp_path, 0)[:-4], "-serial", f"tcp:127.0.0.1:{port},server=on,wait=on"]
    entry = {"id": "far", "runner": "none", "serial": f"socket://127.0.0.1:{port}", "platform": "stm32f405"}
    backend = asked(tmp_path, entry)
    assert backend.measures == {"latency"}
    with running(argv, cwd=tmp_path):
        found = report_of(backend, target, tmp_path, Constraints(latency_ms=1e-3))
    assert found.measured and found.measured.latency_ms and found.measured.clock_hz == 16_000_000
    assert [one.resource for one in found.violations] == ["latency"]
    assert Pool([BoardEntry.model_validate(entry)], tmp_path / "locks").faults("far") == []


@pytest.mark.usefixtures("qemu")
def test_a_board_that_fails_leaves_no_figure_a_reason_and_a_finalist_that_ships(
    target: McuTarget, tmp_path: Path
) -> None:
    entry = {"id": "gone", "runner": "none", "serial": "/dev/no-such-port", "platform": "stm32f405"}
    report = report_of(asked(tmp_path, entry), target, tmp_path, Constraints(latency_ms=1))
    assert report.feasible and report.violations == () and report.measured is not None
    assert report.measured.latency_ms is None and "cannot be opened" in report.measured.reason
    assert report.notes[-1].startswith("not measured: board 'gone': ")
    assert len(Pool([BoardEntry.model_validate(entry)], tmp_path / "locks").faults("gone")) == 3
    again = report_of(asked(tmp_path, entry), target, tmp_path, Constraints())
    assert again.measured and "no board is left" in again.measured.reason


@contextmanager
def measuring(monkeypatch: pytest.MonkeyPatch, *outcomes: Measured | Exception) -> Iterator[None]:
    left = iter(outcomes)

    def measure(*_: Any) -> Measured:
        found = next(left)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(module, "measure", measure)
    yield
    assert next(left, None) is None


@pytest.mark.usefixtures("qemu")
def test_outputs_that_differ_twice_are_the_networks_and_a_hiccup_is_not(
    target: McuTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, good = asked(tmp_path, {"id": "desk"}), Measured(board="desk", inputs=3)
    with measuring(monkeypatch, Differs("2 of 3 are equal"), BoardError("silent"), good):
        assert report_of(backend, target, tmp_path, Constraints()).measured == good
    with measuring(monkeypatch, Differs("2 of 3 are equal"), Differs("2 of 3 are equal")):
        report = report_of(backend, target, tmp_path, Constraints())
    assert [(one.resource, one.message) for one in report.violations] == [("outputs", "2 of 3 are equal")]


def test_what_was_not_measured_passes_no_limit_and_what_was_names_its_unit() -> None:
    all_limits = Constraints(latency_ms=1, energy_mj=1, current_ma=1, temperature_c=44)
    assert over_limits(Measured(board="desk", reason="silent"), all_limits) == ()
    hot = Measured(board="desk", inputs=1, latency_ms=2, energy_mj=3, current_ma=4, temperature_c=45)
    assert [one.resource for one in over_limits(hot, all_limits)] == ["latency", "energy", "current", "temperature"]
    assert lines(hot)[1:] == (
        "latency 2 ms, the largest",
        "energy 3 mJ an input, its transfer and its answer included",
        "peak current 4 mA",
        "peak temperature 45 degrees Celsius",
    )
    assert ThermalTrace(np.array([300.0, 318.15]), 298.0, 9.0).peak_celsius == pytest.approx(45)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("boards: [{id: one, runner: none, prt: 3}]", "prt"),
        ("boards: [{id: one, connected: false}]", "no board that is connected"),
        ("boards: [{id: one, instrument: replay, instrument_options: {pat: x}}]", "pat"),
        ("[]", "a map of boards"),
    ],
)
def test_a_map_that_cannot_be_used_is_told(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_map(tmp_path / "map.yaml")
    with pytest.raises(ConfigError, match="map of boards"):
        read_map(tmp_path / "none.yaml")
