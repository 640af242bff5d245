"""Runs in a process of its own: forks a child for each job on a foreign graph, with limits, and outlives it."""

import contextlib
import os
import resource
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from automcu_ray.core.confinement import PRIVATE
from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy import adoption
from automcu_ray.deploy.bounded import BUSY, encode, receive
from automcu_ray.deploy.export import DeployedNetwork, deploy_traced
from automcu_ray.deploy.nearest_spec import read_spec
from automcu_ray.deploy.onnx_graph import with_batch_one
from automcu_ray.deploy.pixels import Pixels
from automcu_ray.deploy.quantised import network as quantised_network
from automcu_ray.deploy.step_network import step_network
from automcu_ray.deploy.untrusted_onnx import check_foreign

MAX_JOB_BYTES = 16 << 30  # images of a whole split, sent by ourselves
FILE_BYTES = 1 << 30
Answer = tuple[dict[str, Any], list[bytes]]


def adopt(about: dict[str, Any], blobs: list[bytes]) -> Answer:
    """Answer with a user's file as `tracing.trace` would have written it, and what was changed."""
    pixels = _pixels(about)
    model, changes = adoption.adopt(blobs[0], tuple(about["input_shape"]), about["num_classes"], pixels)
    return {"changes": changes, "quantised": quantised_network.quantised_already(model)}, [model]


def check(about: dict[str, Any], blobs: list[bytes]) -> Answer:
    """Answer with what `check_foreign` finds."""
    shape, pairs = tuple(about["input_shape"]), about["pairs"]
    return vars(check_foreign(blobs[0], shape, about["num_classes"], pairs=pairs)), []


def deploy(about: dict[str, Any], blobs: list[bytes]) -> Answer:
    """Answer with the fields and both models of the deployed network."""
    shape = tuple(about["input_shape"])
    images = np.frombuffer(blobs[1], np.uint8).reshape(-1, *shape)
    made = dict(vars(deploy_traced(blobs[0], shape, precision=about["precision"], calibration=images)))
    return made, [made.pop("float_onnx"), made.pop("onnx")]


def deploy_quantised(about: dict[str, Any], blobs: list[bytes]) -> Answer:
    """Answer as `deploy`, for a file that is quantised already; with what had to be rounded, and how far apart it is.

    The second blob are calibration images, the third the file as the user gave it.
    """
    shape, pixels = tuple(about["input_shape"]), _pixels(about)
    images = np.frombuffer(blobs[1], np.uint8).reshape(-1, *shape)
    deployed, notes = quantised_network.deploy_quantised(blobs[0], shape, images)
    some = images[: about["compared"]]
    own = quantised_network.own_answers(blobs[2], shape, pixels, some)
    steps = quantised_network.steps_apart(deployed, own, deployed.run(some))
    made = dict(vars(deployed))
    parts = [made.pop("float_onnx"), made.pop("onnx")]
    return {"network": made, "notes": notes, "steps": steps, "compared": len(own.answers)}, parts


def _pixels(about: dict[str, Any]) -> Pixels:
    name, scale, mean, std = about["pixels"]
    return Pixels(name, scale, tuple(mean), tuple(std))


def spec(about: dict[str, Any], blobs: list[bytes]) -> Answer:
    """Answer with the layers of a spec that are nearest to a network."""
    return vars(read_spec(blobs[0], tuple(about["input_shape"]))), []


def run(about: dict[str, Any], blobs: list[bytes]) -> Answer:
    """Answer with a deployed network's outputs for uint8 images."""
    shape = tuple(about.pop("input_shape"))
    network = DeployedNetwork(**about, float_onnx=blobs[0], onnx=blobs[1], input_shape=shape)
    outputs = network.run(np.frombuffer(blobs[2], np.uint8).reshape(-1, *shape))
    return {"shape": outputs.shape}, [outputs.tobytes()]


def single(about: dict[str, Any], blobs: list[bytes]) -> Answer:
    """Answer with the model for one image."""
    return {}, [with_batch_one(blobs[0]).SerializeToString()]


def steps(about: dict[str, Any], blobs: list[bytes]) -> Answer:
    """Answer with the network of one step."""
    made = step_network(with_batch_one(blobs[0]), tuple(about["input_shape"]))
    return {}, [with_batch_one(made.SerializeToString()).SerializeToString()]


JOBS: dict[str, Callable[[dict[str, Any], list[bytes]], Answer]] = {
    "adopt": adopt,
    "check": check,
    "deploy": deploy,
    "deploy_quantised": deploy_quantised,
    "run": run,
    "single": single,
    "spec": spec,
    "steps": steps,
}


def serve(control: socket.socket) -> None:
    """Answer jobs until the other side hangs up."""
    with contextlib.suppress(ConnectionError):
        while True:
            request, blobs = receive(control, MAX_JOB_BYTES)
            file = os.memfd_create("answer", os.MFD_CLOEXEC)
            child = os.fork()
            if child == 0:
                _work(request, blobs, file)  # never returns
            refused, seconds = _watch(child, request["cpu_s"], control)
            size = os.fstat(file).st_size
            if refused or not size:
                why = f"the exported network is refused: {refused or 'its process said nothing'}."
                control.sendall(encode({"refused": why, "about": {}, "cpu_seconds": seconds}, []))
            else:
                control.sendall(os.pread(file, size, 0))
            os.close(file)
            for left in Path(PRIVATE).iterdir() if os.getpid() == 1 else ():  # confined, so that this /tmp is ours
                shutil.rmtree(left, ignore_errors=True)


def _work(request: dict[str, Any], blobs: list[bytes], file: int) -> NoReturn:
    """Do one job under its limits, write the answer into the file, and end the process."""
    try:
        _limit(request["cpu_s"], request["memory_bytes"])
        head, parts = {"refused": "", "about": {}}, list[bytes]()
        try:
            head["about"], parts = JOBS[request["job"]](request["about"], blobs)
        except ToolchainError as error:
            head["refused"] = str(error)
        except Exception as error:  # onnx and onnxruntime fail in every way there is
            lines = str(error).strip().splitlines() or [""]
            words = f"{type(error).__name__}: {lines[0]}"[:300]
            head["refused"] = f"the exported network is refused: {words}."
        message = encode({**head, "cpu_seconds": time.process_time()}, parts)
        with open(file, "wb", closefd=False) as answer:
            answer.write(message)
        os._exit(0)
    finally:
        os._exit(1)


def _limit(cpu_s: float, memory_bytes: int) -> None:
    """Bound this process; what it has already, packages above all, does not count."""
    with open("/proc/self/statm") as statm:
        reserved = int(statm.read().split()[0]) * resource.getpagesize()
    seconds = int(time.process_time() + cpu_s) + 1
    limits = {
        resource.RLIMIT_AS: reserved + memory_bytes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: FILE_BYTES,
    }
    for limit, value in limits.items():
        spare = limit == resource.RLIMIT_CPU  # at the hard limit Linux kills without saying why
        resource.setrlimit(limit, (value, value + spare))


def _watch(child: int, cpu_s: float, control: socket.socket) -> tuple[str, float]:
    """Return why a child did not end well, "" where it did, and its CPU seconds."""
    watched = os.pidfd_open(child)
    ready = select.select([watched, control.fileno()], [], [], BUSY * cpu_s)[0]
    os.close(watched)
    if watched not in ready:
        os.kill(child, signal.SIGKILL)  # too slow, or nobody waits any more
    _, status, usage = os.wait4(child, 0)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if watched not in ready or number == signal.SIGXCPU:
        refused = f"it takes more than {cpu_s:g} s"
    elif number:
        refused = f"its process died of {signal.Signals(number).name}"
    else:
        refused = "its process took too much memory" if status else ""
    return refused, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
