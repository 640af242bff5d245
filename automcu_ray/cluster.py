"""Ray as this project uses it: how it starts, and how its cores and GPUs are shared."""

import os
from pathlib import Path

# Ray reads these when it is imported, so this module is the only one that imports it for a run.
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
from ray import tune

from automcu_ray.config import Resources

__all__ = ["per_trial", "ray", "slots", "start", "toolchain_workers", "tune"]

CHECKOUT = Path(__file__).resolve().parents[1]


def start(resources: Resources) -> None:
    """Start Ray on this machine, or join the cluster at `ray_address`, whose workers then get this checkout."""
    if ray.is_initialized():
        return
    if resources.ray_address is None:
        ray.init(
            num_cpus=len(os.sched_getaffinity(0)),
            include_dashboard=False,
            logging_level="ERROR",
            log_to_driver=False,
        )
    else:
        ray.init(
            address=resources.ray_address,
            runtime_env={"working_dir": str(CHECKOUT), "excludes": ["/.venv", "/runs", "/.git"]},
            logging_level="ERROR",
            log_to_driver=False,
        )


def per_trial(resources: Resources) -> tuple[float, float]:
    """Return the CPUs and GPUs of one trial; a whole GPU each where there are any, unless configured."""
    gpus = resources.gpus_per_trial
    if gpus is None:
        gpus = 1.0 if ray.cluster_resources().get("GPU", 0) else 0.0
    return resources.cpus_per_trial, gpus


def slots(resources: Resources) -> int:
    """Return how many trials run at once: as many as CPUs and GPUs allow."""
    if resources.concurrent_trials is not None:
        return resources.concurrent_trials
    cpus, gpus = per_trial(resources)
    have = ray.cluster_resources()
    by_gpu = have.get("GPU", 0) / gpus if gpus else float("inf")
    return max(1, int(min(have["CPU"] / cpus, by_gpu)))


def toolchain_workers(resources: Resources) -> int:
    """Return how many toolchain actors check candidates: one for two CPUs, since training shares them."""
    return resources.toolchain_workers or max(1, int(ray.cluster_resources()["CPU"] // 2))
