"""Runs inside the jail, in a process of the candidate's own: build, forward, export, train, answer by its socket.

Whatever it answers may be a lie: the other side believes sizes, accuracies and shapes only as far as it works them
out itself.
"""

import ctypes
import errno
import inspect
import json
import mmap
import os
import random
import resource
import signal
import socket
import sys
import types
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from automcu_ray.core.training_recipe import Protocol
from automcu_ray.deploy.tracing import TRACED, shift_norms, trace
from automcu_ray.networks.code_screening import runnable
from trainables.jail.seccomp import refuse_dangerous_calls
from trainables.training.loop import predict, train_scored_by
from trainables.training.process_memory import limit_gpu_memory

MODULE = "net"
OPEN_FILES, CUDA_OPEN_FILES = 64, 1024
MOST_FILES = 65536  # more than the server ever has open
CPU_SLACK_S = 5
_SET_PARENT_DEATH_SIGNAL = 1


@dataclass
class Arrays:
    """A split whose labels may be missing."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


class Unfit(Exception):
    """The network breaks its contract: it is no module, or its answer has the wrong shape or values."""


def run(request: dict[str, Any], files: list[int], server: int) -> NoReturn:
    """Answer one request by the candidate's socket (an open file), and end the process, as its server does."""
    stage = "start"
    try:
        (talk,) = files
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)  # `mode: none` has nothing else
        if os.getppid() != server:
            os._exit(1)  # it had ended already
        _leave_the_server(files)
        channel = socket.socket(fileno=talk)
        _limit(request)
        refuse_dangerous_calls()
        torch.set_num_threads(request["threads"])
        random.seed(0)  # torch's draws weights; a structure drawn by another is the same whatever the seed
        np.random.seed(0)
        torch.manual_seed(request["seed"])
        stage = _enter("build", channel)
        network = _build(request)
        stage = _enter("forward", channel)
        _forward(network, request)
        if request["train"]:
            stage = _enter("train", channel)
            _train(network, request, channel)
        else:
            shift_norms(network)
        stage = _enter("export", channel)
        shape = tuple(request["input_shape"])
        _send_graph(channel, "inference", trace(network, shape))
        if not request["train"]:
            stage = _enter("fingerprint", channel)
            _send_graph(channel, "training", trace(network, shape, training=True))
    except BaseException as error:  # a candidate may raise anything, SystemExit too
        lines = str(error).strip().splitlines() or [""]
        words = f"{type(error).__name__}: {lines[0]}"[:300]
        _send(channel, {"event": "failed", "resource": _resource(error, stage), "error": words})
    finally:
        os._exit(0)


def _leave_the_server(files: list[int]) -> None:
    """Keep the given files alone, and nothing behind the three standard streams."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    first = 3
    for file in [*sorted(files), MOST_FILES]:
        os.closerange(first, file)
        first = file + 1


def _limit(request: dict[str, Any]) -> None:
    """Put this process under the limits of the request; threads count as processes. No file may grow."""
    seconds = int(request["seconds"] * request["threads"]) + CPU_SLACK_S
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_NOFILE: OPEN_FILES if request["device"] == "cpu" else CUDA_OPEN_FILES,
    }
    if request["processes"] is not None:  # outside a sandbox all processes of the user would count
        limits[resource.RLIMIT_NPROC] = request["processes"]
        limits[resource.RLIMIT_SIGPENDING] = request["processes"]
    if request["device"] == "cpu":  # CUDA reserves more addresses than there is memory: there the server watches alone
        with open("/proc/self/statm") as statm:
            reserved = int(statm.read().split()[0]) * mmap.PAGESIZE
        limits[resource.RLIMIT_AS] = reserved + request["memory_bytes"]
    for limit, value in limits.items():
        spare = limit == resource.RLIMIT_CPU  # at the hard limit Linux kills without saying why
        resource.setrlimit(limit, (value, value + spare))


def _build(request: dict[str, Any]) -> nn.Module:
    """Return the candidate's network: `Net()`, or with as much of (in_channels, num_classes) as it takes."""
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module  # dataclasses look their module up
    exec(compile(runnable(request["code"]), f"{MODULE}.py", "exec"), module.__dict__)
    make = getattr(module, "Net", None)
    if not (isinstance(make, type) and issubclass(make, nn.Module)):
        raise Unfit("the code must define `class Net(nn.Module)`")
    given = {"in_channels": request["input_shape"][0], "num_classes": request["num_classes"]}
    takes = inspect.signature(make.__init__).parameters
    network: nn.Module = make(**{name: value for name, value in given.items() if name in takes})
    return network


def _forward(network: nn.Module, request: dict[str, Any]) -> None:
    network.eval()
    with torch.no_grad():
        logits = network(torch.zeros(TRACED, *request["input_shape"]))
    wanted = (TRACED, request["num_classes"])
    if not isinstance(logits, Tensor):
        raise Unfit(f"forward should return a tensor of shape {wanted}, found {type(logits).__name__}")
    if tuple(logits.shape) != wanted:
        raise Unfit(f"forward should return shape {wanted}, found {tuple(logits.shape)}")
    if not bool(torch.isfinite(logits).all()):
        raise Unfit("forward returned values that are not finite")


def _train(network: nn.Module, request: dict[str, Any], channel: socket.socket) -> None:
    """Train as every candidate is trained; predictions go out at each report, whether they are better comes back.

    Only now does the data come in: what the code does before has nothing to learn from.
    """
    _, data, _, _ = socket.recv_fds(channel, 1, len(request["arrays"]))
    images, labels, val_images = (_mapped(file, *about) for file, about in zip(data, request["arrays"], strict=True))
    reader = channel.makefile("r")
    steps = 0.0

    def steps_upward() -> float:
        """Return what grows with the accuracy, which is all that early stopping needs."""
        nonlocal steps
        predictions = predict(network, val_images, request["device"])
        _send(channel, {"event": "predictions", "classes": predictions.tolist()})
        steps += float(json.loads(reader.readline())["better"])
        return steps

    protocol = Protocol.model_validate(request["train"])
    split = Arrays(images, labels)
    layout = torch.contiguous_format  # models write `view`, as every tutorial does
    if request["device"] == "cuda":
        limit_gpu_memory(request["gpus"])
    about = (network, split, protocol, request["device"], request["seed"])
    for epoch in train_scored_by(steps_upward, *about, layout=layout):
        _send(channel, {"event": "epoch", "loss": epoch.loss, "last": epoch.last})


def _mapped(file: int, dtype: str, shape: list[int]) -> Any:
    return np.frombuffer(mmap.mmap(file, 0, prot=mmap.PROT_READ), dtype).reshape(shape)


def _enter(stage: str, channel: socket.socket) -> str:
    _send(channel, {"event": "stage", "stage": stage})
    return stage


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")


def _send_graph(channel: socket.socket, kind: str, model: bytes) -> None:
    _send(channel, {"event": "graph", "kind": kind, "size": len(model)})
    channel.sendall(model)


def _resource(error: BaseException, stage: str) -> str:
    """Return what a failure is about, as a Violation's `resource` names it; before the code runs it is not to blame."""
    if stage == "start":
        return "sandbox"
    full = isinstance(error, OSError) and error.errno == errno.ENOMEM  # mmap and its like
    if full or isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error):
        return "memory"
    if isinstance(error, OSError):
        return "sandbox"
    return {"build": "schema", "export": "operator"}.get(stage, "shape")
