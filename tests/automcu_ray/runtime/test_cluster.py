import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from automcu_ray.core.errors import ConfigError, ToolMissingError
from automcu_ray.runtime import cluster, interruption, ray_watch
from automcu_ray.runtime.cluster import ray
from automcu_ray.runtime.config import Resources


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch):
    """Pretend that Ray runs on so many CPUs and GPUs."""

    def have(cpus: float, gpus: float) -> None:
        found = {"CPU": cpus, **({"GPU": gpus} if gpus else {})}
        monkeypatch.setattr(cluster.ray, "cluster_resources", lambda: found)

    return have


@pytest.mark.parametrize(
    ("cpus", "gpus", "reserved", "per_trial", "slots"),
    [
        (8, 0, 0.0, 0.0, 8),  # no GPU: as many as CPUs
        (8, 1, 0.0, 1.0, 1),
        (8, 4, 0.0, 1.0, 4),
        (2, 4, 0.0, 1.0, 2),  # CPUs are the limit
        (8, 1, 0.4, 0.6, 1),  # the rest of the only GPU
        (8, 2, 0.4, 1.0, 1),  # 0.6 and 1 are free: one whole GPU
        (8, 2, 1.0, 1.0, 1),
    ],
)
def test_trials_take_what_the_engine_leaves(
    machine, cpus: float, gpus: float, reserved: float, per_trial: float, slots: int
) -> None:
    machine(cpus, gpus)
    assert cluster.per_trial(Resources(), reserved_gpus=reserved) == (1, pytest.approx(per_trial))
    assert cluster.slots(Resources(), reserved_gpus=reserved) == slots


@pytest.mark.parametrize(
    ("cpus", "gpus", "settings", "count", "each"),
    [
        (8, 0, {}, 1, (8, 0)),
        (8, 0, {}, 3, (2, 0)),
        (8, 0, {}, 20, (1, 0)),
        (8, 0, {"concurrent_trials": 2}, 1, (2, 0)),  # no more than trials were given
        (2, 0, {"concurrent_trials": 8}, 1, (2, 0)),  # nor more than there are
        (64, 0, {}, 1, (8, 0)),
        (8, 0, {"cpus_per_trial": 3.0}, 1, (6, 0)),
        (2, 0, {"cpus_per_trial": 0.3}, 1, (1, 0)),  # six trials have 1.8
        (8, 0, {"ray_address": "auto"}, 1, (1, 0)),  # its CPUs may lie in several machines
        (8, 1, {"gpus_per_trial": 0.25}, 2, (2, 0.25)),
        (8, 4, {}, 2, (2, 1)),  # a training runs on one GPU
    ],
)
def test_few_finalists_share_the_machine(
    machine, cpus: float, gpus: float, settings: dict[str, Any], count: int, each: tuple[float, float]
) -> None:
    machine(cpus, gpus)
    assert cluster.per_finalist(Resources(**settings), count) == each


@pytest.mark.parametrize(
    ("gpus", "reserved", "share", "slots"),
    [
        (1, 0.4, 0.2, 3),  # floating point makes 0.6 / 0.2 less than 3
        (1, 0.4, 0.3, 2),
        (2, 0.4, 0.5, 3),  # one beside the engine, two on the other GPU
        (2, 0.4, 0.6, 2),
        (4, 0.0, 2.0, 2),
        (4, 0.4, 2.0, 1),  # 0.6 of a GPU is no part of two whole ones
        (1, 1.0, 0.0, 16),  # configured to reserve none
    ],
)
def test_a_configured_share_must_come_from_one_gpu(
    machine, gpus: float, reserved: float, share: float, slots: int
) -> None:
    machine(16, gpus)
    resources = Resources(gpus_per_trial=share)
    assert cluster.per_trial(resources, reserved_gpus=reserved) == (1, share)
    assert cluster.slots(resources, reserved_gpus=reserved) == slots


def test_an_engine_on_the_only_gpu_leaves_none_and_says_what_to_set(machine) -> None:
    machine(8, 1)
    with pytest.raises(ConfigError, match=r"reserves 1 of 1 GPUs.*set engine\.gpus=0\.4"):
        cluster.slots(Resources(), reserved_gpus=1.0)


@pytest.mark.parametrize(("gpus", "reserved", "most"), [(1, 0.4, "0.6"), (0, 0.0, "0"), (2, 1.4, "0.6")])
def test_a_share_that_is_nowhere_free_is_refused(machine, gpus: float, reserved: float, most: str) -> None:
    machine(8, gpus)
    with pytest.raises(ConfigError, match=rf"gpus_per_trial=0\.8.*at most {most} of one"):
        cluster.per_trial(Resources(gpus_per_trial=0.8), reserved_gpus=reserved)


@pytest.fixture
def fresh(signals: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """No Ray yet; what it would be started with."""
    about: dict[str, Any] = {}
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster.ray, "init", about.update)
    monkeypatch.setattr(cluster, "RayWatch", lambda: None)
    return about


def test_no_other_cluster_is_joined_unless_asked(fresh: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    assert cluster.start(Resources())
    assert fresh["address"] == "local"
    assert cluster.start(Resources(ray_address="10.0.0.1:6379"))
    assert fresh["address"] == "10.0.0.1:6379"


def test_workers_of_a_cluster_get_the_packages_and_nothing_else(fresh: dict[str, Any]) -> None:
    cluster.start(Resources(ray_address="auto"))
    sent = [Path(path) for path in fresh["runtime_env"]["py_modules"]]
    assert [path.name for path in sent] == ["automcu_ray", "backends", "searchers", "trainables"]
    assert all((path / "__init__.py").is_file() for path in sent)
    assert not {"working_dir", "pip", "conda"} & fresh["runtime_env"].keys()


@pytest.mark.parametrize("address", ["head", "ray://10.0.0.1:10001", "10.0.0.1:port", "", "a b:1"])
def test_an_address_that_ray_could_not_join_is_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="ray_address"):
        Resources(ray_address=address)


def test_where_a_machine_does_not_see_the_folder_work_stays_on_the_drivers_own(
    ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = Resources(ray_address="auto")
    assert cluster.placement(Resources(), tmp_path / "none") == cluster.ANYWHERE
    assert cluster.placement(joined, tmp_path) == cluster.ANYWHERE
    (here,) = cluster.ray.nodes()
    gone = {"NodeID": "0" * len(here["NodeID"]), "Alive": True}
    monkeypatch.setattr(cluster.ray, "nodes", lambda: [here, gone])
    assert cluster.placement(joined, tmp_path).node_id == here["NodeID"]
    assert list(tmp_path.iterdir()) == []


def test_ray_itself_says_nothing_of_a_process_that_died(
    fresh: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.start(Resources())
    died = {"lines": ["A worker died or was killed", "Traceback"], "pid": "raylet", "is_err": False}
    cluster.ray._private.worker.print_to_stdstream(died, ignore_prefix=False)
    logging.getLogger("ray.tune.execution.tune_controller").error("Trial task failed for trial 8")
    assert capsys.readouterr() == ("", "")


def test_sigterm_is_held_back_while_ray_starts_and_its_processes_hear_it() -> None:
    """In a process of its own: threads that this one has would take the signal."""
    script = """if True:
        import os, signal, subprocess, threading
        from automcu_ray.runtime import interruption
        interruption.listen()
        interruption.postpone()
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        signal.signal(signal.SIGTERM, lambda *about: os._exit(9))
        os.kill(os.getpid(), signal.SIGTERM)
        child = ["grep", "SigBlk", "/proc/self/status"]
        said = subprocess.run(child, preexec_fn=lambda: None, stdout=subprocess.PIPE).stdout
        try:
            interruption.deliver()
        except KeyboardInterrupt:
            print(int(said.split()[1], 16) >> 14 & 1, interruption.status())
    """
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240)
    assert found.stdout == "0 143\n", found.stderr


def test_no_loopback_is_one_line_at_once(fresh: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*where: object, **how: object) -> None:
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(cluster.socket, "create_server", none)
    with pytest.raises(ToolMissingError, match=r"^Ray needs .*127\.0\.0\.1, which.*: Cannot.*ip link set lo up"):
        cluster.start(Resources())
    assert not fresh


def test_sigterm_while_ray_starts_is_an_interruption(fresh: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def terminated(**about: object) -> None:
        raise SystemExit(15)  # what Ray's handler makes of it

    monkeypatch.setattr(cluster.ray, "init", terminated)
    with pytest.raises(KeyboardInterrupt):
        cluster.start(Resources())
    assert interruption.status() == 143


def test_ctrl_c_that_ray_swallows_while_it_starts_still_counts(
    fresh: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def deaf(**about: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    interruption.listen()
    monkeypatch.setattr(cluster.ray, "init", deaf)
    with pytest.raises(KeyboardInterrupt):
        cluster.start(Resources())
    assert interruption.status() == 130


@pytest.mark.parametrize("address", [None, "auto"])
def test_a_start_that_is_interrupted_leaves_nothing_of_its_own(
    address: str | None, signals: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    def interrupted(**about: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster.ray, "init", interrupted)
    monkeypatch.setattr(cluster.ray, "shutdown", lambda: ended.append("ray"))
    monkeypatch.setattr(cluster, "end_ray", lambda: ended.append("its agents"))
    with pytest.raises(KeyboardInterrupt):
        cluster.start(Resources(ray_address=address))
    assert ended == ([] if address else ["ray", "its agents"])


def test_a_process_of_ray_that_dies_interrupts_at_once(signals: None, monkeypatch: pytest.MonkeyPatch) -> None:
    interruption.listen()
    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr(ray_watch, "_NEEDED", ("sleep",))
        watch = ray_watch.RayWatch()
        with pytest.raises(KeyboardInterrupt):
            process.kill()
            threading.Event().wait(30)
    assert watch.died == "sleep" and interruption.urgent()


def test_an_error_that_comes_before_its_process_has_ended_waits_for_the_name(
    signals: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    interruption.listen()
    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr(ray_watch, "_NEEDED", ("sleep",))
        monkeypatch.setattr(cluster, "_watch", ray_watch.RayWatch())
        assert cluster.died(ToolMissingError("ours, said at once")) == cluster.died() == ""
        threading.Timer(0.2, process.kill).start()
        assert cluster.died(RuntimeError("the raylet does not answer")) == "sleep"


def an_error_of_a_worker() -> Exception:
    task_error: Exception = ray.exceptions.RayTaskError("check", "Traceback ...", ValueError("a bug of ours"))
    return task_error


@pytest.mark.parametrize(
    ("error", "died"),
    [
        (SystemExit(1), "connection to its processes"),  # so Ray's C++ ends a driver
        (ray.exceptions.RaySystemError("the actor is gone"), "connection to its processes"),
        (an_error_of_a_worker(), ""),
        (RuntimeError("a bug of ours"), ""),
    ],
)
def test_where_all_processes_are_there_yet_rays_own_errors_say_that_it_is_lost(
    error: BaseException, died: str, signals: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "ENDING_S", 0.01)
    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr(ray_watch, "_NEEDED", ("sleep",))
        monkeypatch.setattr(cluster, "_watch", ray_watch.RayWatch())
        assert cluster.died(error) == died == cluster.died()
        cluster.stop()  # which kills what is left of it, where it is lost
        assert (process.poll() is None) is (died == "") or process.wait(10) == -signal.SIGKILL
        process.kill()


@pytest.mark.parametrize(("usable", "asked"), [(True, None), (False, 0)])
def test_gpus_that_torch_cannot_use_do_not_count(
    usable: bool, asked: int | None, fresh: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.torch.cuda, "is_available", lambda: usable)
    assert cluster.start(Resources())
    assert fresh["num_gpus"] == asked


def test_ray_that_does_not_start_is_one_line_that_says_what_to_do(
    fresh: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(**about: Any) -> None:
        raise Exception("The current node timed out during startup.\nThis could happen because ...")

    monkeypatch.setattr(cluster.ray, "init", late)
    with pytest.raises(
        ToolMissingError, match=r"on this machine: The current node timed out during startup\. Is there"
    ):
        cluster.start(Resources())
    with pytest.raises(ToolMissingError, match=r"joined at 10\.0\.0\.1:6379: The current.*Does one run there"):
        cluster.start(Resources(ray_address="10.0.0.1:6379"))


def test_a_configured_number_of_trials_stands(machine) -> None:
    machine(8, 1)
    assert cluster.slots(Resources(concurrent_trials=5), reserved_gpus=0.5) == 5


@pytest.mark.ray
def test_what_reserves_no_gpu_sees_none() -> None:
    script = (
        "import os; from automcu_ray.runtime import cluster; from automcu_ray.runtime.config import Resources;"
        "cluster.start(Resources());"
        "seen = cluster.ray.remote(num_gpus=0)(lambda: os.environ['CUDA_VISIBLE_DEVICES']);"
        "print(repr(cluster.ray.get(seen.remote())))"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "0"}
    found = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=240)
    assert found.stdout.splitlines()[-1:] == ["''"], found.stderr
