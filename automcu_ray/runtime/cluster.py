"""Ray as this project uses it: how it starts, and how its cores and GPUs are shared."""

import contextlib
import math
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Ray reads these when it is imported, so this module is the only one that imports it for a run.
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # at Ray's 15 a busy machine starves trials until they are late
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "1"  # what reserves no GPU sees none

import ray
import ray.util.scheduling_strategies
import torch
from ray import tune

from automcu_ray.core.errors import AutoMcuError, ConfigError, ToolMissingError
from automcu_ray.runtime import interruption, ray_patches
from automcu_ray.runtime.config import Resources
from automcu_ray.runtime.ray_watch import RayWatch, end_ray

__all__ = [
    "died",
    "per_finalist",
    "per_trial",
    "placement",
    "ray",
    "retries",
    "slots",
    "start",
    "stop",
    "toolchain_workers",
    "tune",
]

ENDING_S = 10.0  # a raylet whose agent has died takes seconds to end, while calls to it fail already
PROBE_S = 60.0
ANYWHERE = "DEFAULT"
MOST_FINALIST_CPUS = 8  # nobody has measured that a small network gains by more
_CODE = Path(__file__).resolve().parents[2]  # the checkout, or site-packages
_watch: RayWatch | None = None
_PACKAGES = ("automcu_ray", "backends", "searchers", "trainables")


def start(resources: Resources, *, boards: int = 0) -> bool:
    """Start Ray on this machine, or join the cluster at `ray_address`, whose workers then get this very code.

    `boards` is how many of the resource `board` this machine has. No other cluster is joined, whatever RAY_ADDRESS or
    a file of Ray's says. What the code depends on must be installed there, and so must the packages of plugins.

    Returns whether that was still to do: who did it shuts it down by `stop`.

    Raises:
        ToolMissingError: Ray does not start, or the cluster does not answer.
        KeyboardInterrupt: Ctrl-C or SIGTERM meanwhile.
    """
    if ray.is_initialized():
        interruption.deliver()
        return False
    own = resources.ray_address is None
    if own:
        _check_loopback()
    try:
        _init(resources, boards)
    except BaseException:
        if own:  # an interrupt may come at any moment: agents that just start outlive a raylet
            ray.shutdown()
            end_ray()
        raise
    ray_patches.hush()
    if own:
        global _watch
        _watch = RayWatch()
    return True


def _init(resources: Resources, boards: int) -> None:
    try:
        if resources.ray_address is None:
            gpus = None if torch.cuda.is_available() else 0  # what torch cannot use would only limit the slots
            here: dict[str, Any] = {
                "num_cpus": len(os.sched_getaffinity(0)),
                "num_gpus": gpus,
                "resources": {"board": boards} if boards else None,
            }
            ray.init(address="local", **here, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        else:
            os.environ["RAY_OVERRIDE_JOB_RUNTIME_ENV"] = "1"  # of `ray job submit`, where it says the same
            ray.init(address=resources.ray_address, runtime_env=_code(), logging_level="ERROR", log_to_driver=False)
    except SystemExit:  # by a handler of Ray's
        interruption.interrupt(signal.SIGTERM)
    except Exception as error:  # Ray raises that very class where one of its processes is late
        said = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        if resources.ray_address is not None:
            raise ToolMissingError(
                f"no Ray cluster can be joined at {resources.ray_address}: {said} Does one run there (ray status "
                f"--address {resources.ray_address}), with Ray {ray.__version__} and this Python? Without "
                "resources.ray_address a run starts its own."
            ) from error
        raise ToolMissingError(
            f"Ray does not start on this machine: {said} Is there memory left, room in /tmp, and a core that is not "
            "busy? Then try again; nothing is lost."
        ) from error
    finally:
        interruption.deliver()  # Ray has set handlers of its own


def _code() -> dict[str, Any]:
    """Return what workers of another machine get: this very code; its configuration comes with each task, typed."""
    return {
        "py_modules": [str(_CODE / package) for package in _PACKAGES],
        "excludes": ["**/__pycache__"],
        "env_vars": {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1", "RAY_CHDIR_TO_TRIAL_DIR": "0"},
    }


@contextlib.contextmanager
def until_its_end(ours: bool) -> Iterator[None]:
    """Stop Ray after the block, where `start` has started it; an error asks before that whether it died by itself."""
    try:
        yield
    except BaseException as error:
        died(error)
        raise
    finally:
        if ours:
            stop()


def stop() -> None:
    """End the Ray that `start` has started; what is left of one that has died is killed: it would be waited for."""
    if _watch is not None:
        _watch.close()
    if not died():
        ray.shutdown()


def died(error: BaseException | None = None) -> str:
    """Return which of Ray's own processes has ended too early; "" while all is well.

    An `error` that is not of this project's may be the first sign: a process that is about to end is waited for. Ray
    exits where it cannot reach one of them, and raises errors of its own: then it is lost, whoever is still there.
    """
    if _watch is None:
        return ""
    if isinstance(error, Exception | SystemExit) and not isinstance(error, AutoMcuError | OSError):
        _watch.wait(ENDING_S)
    of_ray = isinstance(error, ray.exceptions.RayError) and not isinstance(error, ray.exceptions.RayTaskError)
    if of_ray or isinstance(error, SystemExit):
        _watch.died = _watch.died or "connection to its processes"
    return _watch.died


def _check_loopback() -> None:
    """Raise ToolMissingError where Ray's processes could not talk to each other: they would try for minutes."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5):
            pass
    except OSError as error:
        raise ToolMissingError(
            f"Ray needs this machine's loopback address 127.0.0.1, which does not answer: {error.strerror}. "
            "Bring it up: ip link set lo up."
        ) from error


def placement(resources: Resources, folder: Path) -> Any:
    """Return where what leaves files in a run's folder may run: anywhere, if all machines of the cluster see it.

    Otherwise on the driver's own machine, as Ray's scheduling strategy.
    """
    if resources.ray_address is None:
        return ANYWHERE
    probe = folder / f".seen-{os.getpid()}"
    probe.touch()
    look = ray.remote(num_cpus=0, max_retries=0)(lambda path: os.path.exists(path))
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    try:
        seen = [look.options(scheduling_strategy=_only(node)).remote(str(probe)) for node in nodes]
        answers, late = ray.wait(seen, num_returns=len(seen), timeout=PROBE_S)
        return ANYWHERE if not late and all(map(_is_true, answers)) else _only(ray.get_runtime_context().get_node_id())
    finally:
        probe.unlink()


def _is_true(answer: Any) -> bool:
    try:
        return bool(ray.get(answer))
    except ray.exceptions.RayError:  # a machine that has gone meanwhile
        return False


def _only(node: str) -> Any:
    return ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)


def retries(resources: Resources) -> int:
    """Return how often a trial whose worker died is tried again: machines of a cluster may vanish one by one."""
    return 1 if resources.ray_address is None else 3


def per_trial(resources: Resources, *, reserved_gpus: float = 0.0) -> tuple[float, float]:
    """Return the CPUs and GPUs of one trial; unless configured a whole GPU, or what is left of the only one.

    `reserved_gpus` is what the engine takes (`Engine.gpus`).

    Raises:
        ConfigError: that many GPUs per trial are not there beside the engine's.
    """
    free = _free_gpus(reserved_gpus)
    gpus = resources.gpus_per_trial
    if gpus is None:
        gpus = max(free, default=0.0)
        if reserved_gpus and not gpus:
            raise ConfigError(
                f"the engine reserves {reserved_gpus:g} of {_gpus():g} GPUs, so trials have none: set engine.gpus=0.4, "
                f"and they share the rest, or ask a server that has a GPU of its own (--engine openai)."
            )
    if gpus and not _gpu_slots(free, gpus):
        raise ConfigError(
            f"resources.gpus_per_trial={gpus:g}, but of {_gpus():g} GPUs the engine reserves {reserved_gpus:g}: "
            f"trials can have at most {max(free, default=0.0):g} of one."
        )
    return resources.cpus_per_trial, gpus


def slots(resources: Resources, *, reserved_gpus: float = 0.0) -> int:
    """Return how many trials run at once: as many as CPUs and GPUs allow; raises as `per_trial` does."""
    if resources.concurrent_trials is not None:
        return resources.concurrent_trials
    cpus, gpus = per_trial(resources, reserved_gpus=reserved_gpus)
    by_gpu = _gpu_slots(_free_gpus(reserved_gpus), gpus) if gpus else float("inf")
    return max(1, int(min(ray.cluster_resources()["CPU"] / cpus, by_gpu)))


def per_finalist(resources: Resources, count: int) -> tuple[float, float]:
    """Return the CPUs and GPUs of each of `count` finalists: on one machine they share the CPUs that trials have.

    On a cluster each has a trial's: Ray takes a task's CPUs from one of the machines, and nobody asked how large these
    are. Raises as `per_trial` does.
    """
    cpus, gpus = per_trial(resources)
    if resources.ray_address is not None:
        return cpus, gpus
    at_once = slots(resources)
    whole = min(ray.cluster_resources()["CPU"], at_once * cpus) // max(1, min(count, at_once))
    return max(cpus, min(whole, MOST_FINALIST_CPUS)), gpus


def _gpus() -> float:
    return float(ray.cluster_resources().get("GPU", 0))


def _free_gpus(reserved: float) -> list[float]:
    """Return what is free of each GPU beside the engine's; a trial's share must come from one of them."""
    whole = max(0, int(_gpus()) - math.ceil(reserved))
    part = math.ceil(reserved) - reserved if _gpus() else 0.0
    return [1.0] * whole + [part] * (part > 0)


def _gpu_slots(free: list[float], gpus: float) -> int:
    """Return how many trials of `gpus` each fit; beyond one they take whole GPUs."""
    if gpus > 1:
        return int(free.count(1.0) / gpus)
    return sum(int(share / gpus + 1e-6) for share in free)  # 0.6 / 0.2 is just below 3


def toolchain_workers(resources: Resources) -> int:
    """Return how many toolchain actors check candidates: one for two CPUs, since training shares them."""
    return resources.toolchain_workers or max(1, int(ray.cluster_resources()["CPU"] // 2))
