"""An instrument's process: one at a time, gone when it is killed, and its errors are those of the instrument."""

from pathlib import Path

import numpy as np
import pytest

from automcu_ray.core.errors import BoardError, ConfigError
from backends.instruments.own_process import attached
from backends.instruments.replay import save
from backends.instruments.trace import PowerTrace


def test_a_trace_comes_out_of_another_process_which_one_has_at_a_time(tmp_path: Path) -> None:
    trace = PowerTrace(np.linspace(0, 1, 1000), 1000, 3.0)
    save(trace, tmp_path / "trace.npz")
    options = {"path": tmp_path / "trace.npz"}
    with attached("replay", options, tmp_path / "locks") as instrument:
        instrument.start()
        found = instrument.stop()
        assert isinstance(found, PowerTrace) and found.joules == trace.joules
        with pytest.raises(BoardError, match="in use"), attached("replay", options, tmp_path / "locks"):
            pass
    with attached("replay", options, tmp_path / "locks") as again:
        again.start()


@pytest.mark.thorough
def test_errors_and_deaths_reach_who_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trace is an \.npz"), attached("replay", {"path": tmp_path / "x"}, tmp_path):
        pass
    with attached("ppk2", {"port": "/dev/no-such-port"}, tmp_path) as instrument:
        with pytest.raises(BoardError, match="cannot be opened"):
            instrument.start()
        import multiprocessing

        [child] = multiprocessing.active_children()
        child.kill()
        child.join()
        with pytest.raises(BoardError, match="has ended"):
            instrument.start()
    with attached("ppk2", {"port": "/dev/no-such-port"}, tmp_path):
        pass  # kill -9 left no lock
