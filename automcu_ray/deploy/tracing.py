"""A torch network as torch's exporter writes it to ONNX; apart from `export` because the jail imports so little."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.onnx import TrainingMode
from torch.onnx._internal.torchscript_exporter import utils as exporter

from automcu_ray.deploy.trace_check import check_trace, copied

INPUT, OUTPUT = "image", "logits"
TRACED = 2  # batch size while tracing; not 1, which broadcasting would hide
OPSET = 17  # the newest one the TorchScript exporter writes without conversion


_REPLACED = ("adaptive_avg_pool2d", "channel_shuffle", "local_response_norm", "rms_norm", "threshold")
_FUNCTIONS = {name: getattr(F, name) for name in _REPLACED}
_SPLIT: dict[Any, Any] = {owner: owner.tensor_split for owner in (torch, Tensor)}  # a module and a class

_LOGGING = exporter.setup_onnx_logging


@contextmanager
def _silent(verbose: bool) -> Iterator[None]:
    """Log nothing, in place of the exporter's own context."""
    yield


def _adaptive_mean(input: Tensor, output_size: Any) -> Tensor:
    """Windows that differ in size: a product with a matrix for each axis."""
    given = [int(side) for side in input.shape[-2:]]
    wanted = [output_size, output_size] if isinstance(output_size, int) else list(output_size)
    wanted = [had if side is None else side for side, had in zip(wanted, given, strict=True)]
    if not any(had % side for side, had in zip(wanted, given, strict=True)):
        pooled: Tensor = _FUNCTIONS["adaptive_avg_pool2d"](input, output_size)
        return pooled
    for side, had in reversed(list(zip(wanted, given, strict=True))):  # columns, then rows
        means = torch.zeros(had, side)
        for at in range(side):
            start, end = at * had // side, -(-(at + 1) * had // side)
            means[start:end, at] = 1 / (end - start)
        input = (input @ means).transpose(-2, -1)
    return input


def _channel_shuffle(input: Tensor, groups: int) -> Tensor:
    count, channels, *sizes = input.shape
    apart = input.view(count, groups, channels // groups, *sizes)
    return apart.transpose(1, 2).reshape(count, channels, *sizes)


def _threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    return torch.where(input > threshold, input, value)


def _rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    axes = tuple(range(-len(normalized_shape), 0))
    squares = (input * input).mean(axes, keepdim=True) + (torch.finfo(input.dtype).eps if eps is None else eps)
    unit = input / torch.sqrt(squares)
    return unit if weight is None else unit * weight


def _local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Squares of neighbouring channels are added by a product with a matrix of ones and zeros."""
    channels = torch.arange(input.shape[1])
    apart = channels[None, :] - channels[:, None] + size // 2  # of a window that begins size // 2 before
    near = ((apart >= 0) & (apart < size)).to(input.dtype) * (alpha / size)
    squares = (near @ (input * input).flatten(2)).reshape(input.shape)
    return input * (squares + k) ** -beta


def _tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """The exporter makes a sequence of it, of which neither ONNX's inference nor int8 knows sizes."""
    size, places = int(input.shape[dim]), indices_or_sections
    if isinstance(places, int):
        each, more = divmod(size, places)
        places = [number * each + min(number, more) for number in range(1, places)]
    starts, ends = [0, *map(int, places)], [*map(int, places), size]
    parts = [torch.arange(start, end) for start, end in zip(starts, ends, strict=True)]
    return tuple(input.index_select(dim, part) for part in parts)


@contextmanager
def _exportable() -> Iterator[None]:
    """Replace functions that the exporter does not know, or not in every form, by equal ones."""
    equal = (_adaptive_mean, _channel_shuffle, _local_response_norm, _rms_norm, _threshold)
    try:
        for name, function in zip(_REPLACED, equal, strict=True):
            setattr(F, name, function)
        for owner in _SPLIT:
            owner.tensor_split = _tensor_split
        torch._C._jit_set_onnx_log_enabled(False)  # it would print the whole graph
        exporter.setup_onnx_logging = _silent
        yield
    finally:
        exporter.setup_onnx_logging = _LOGGING
        for name, function in _FUNCTIONS.items():
            setattr(F, name, function)
        for owner, split in _SPLIT.items():
            owner.tensor_split = split


def trace(network: torch.nn.Module, input_shape: tuple[int, int, int], *, training: bool = False) -> bytes:
    """Return the ONNX file of a network for TRACED images; the network itself is left as it was.

    `training` keeps what inference folds away (BatchNorm, Dropout): two networks with equal traces train alike.

    Raises:
        TracedOtherwise: the file would answer otherwise than the network does.
        Exception: generated networks fail here in every way there is.
    """
    # The TorchScript exporter: 0.3 s instead of 4-15 s, and global pooling stays one operator.
    network = copied(network).cpu().train(training)
    buffer, example = io.BytesIO(), torch.zeros(TRACED, *input_shape)
    with warnings.catch_warnings(), _exportable():
        warnings.simplefilter("ignore")  # it warns that it is old, and about every shape it fixes
        torch.onnx.export(
            network,
            (example,),
            buffer,  # type: ignore[arg-type]
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamo=False,
            opset_version=OPSET,
            training=TrainingMode.TRAINING if training else TrainingMode.EVAL,
            do_constant_folding=not training,
            verbose=True,  # writes down which line of the code each operator comes from
        )
    check_trace(network, example)
    return buffer.getvalue()


def shift_norms(network: torch.nn.Module) -> None:
    """Give batch norms random shifts, in place: an untrained network then has the size that it will have trained.

    They begin with shifts of zero. Folded into biases these are equal, the exporter keeps equal constants once, and
    the ELF is up to 1,200 bytes smaller than after training (14 random specs, int8).
    """
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d) and module.affine:
            torch.nn.init.normal_(module.bias)
