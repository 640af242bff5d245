"""Whether a traced network answers as its code does: a trace keeps the one way that its example took."""

import copy
import os
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

_TORCH = os.path.dirname(torch.__file__)
_SEED = 0


class TracedOtherwise(Exception):
    """The code decides by values, or remembers: what is exported would answer otherwise than what was trained."""


def check_trace(network: torch.nn.Module, example: Tensor) -> None:
    """Return if code and trace of a network, in the mode that it is in, agree on images of several signs and sizes.

    The network itself is left as it was, and so are torch's random numbers, which both are given alike.

    Raises:
        TracedOtherwise: they differ; names the lines where a value became Python's.
    """
    network = copied(network).cpu().requires_grad_(False)
    with warnings.catch_warnings(record=True) as heard, torch.random.fork_rng(devices=[]), torch.no_grad():
        warnings.simplefilter("always")
        # A function, not the module: what else is in the module (hooks, parametrizations) needs no form of TorchScript.
        jit: Any = torch.jit  # without types
        traced = jit.trace(lambda image: network(image), example, check_trace=False)
        with jit.optimized_execution(False):
            same = all(_agree(network, traced, images) for images in _probes(example))
    if not same:
        heard = [one for one in heard if issubclass(one.category, jit.TracerWarning)]
        lines = sorted({one.lineno for one in heard if not str(one.filename).startswith(_TORCH)})
        where = f" (line {', '.join(map(str, lines))})" if lines else ""
        raise TracedOtherwise(
            f"forward takes another way for other images{where}: it decides by their values in Python, by chance or by "
            "earlier calls, and an exported network takes one way for all; use torch.where"
        )


def copied(network: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of a network; tensors that it holds beside its parameters may have been computed from these."""
    computed = [value for module in network.modules() for value in vars(module).values() if isinstance(value, Tensor)]
    known: dict[int, Any] = {id(value): value.detach().clone() for value in computed if not value.is_leaf}
    return copy.deepcopy(network, known)


def _agree(network: torch.nn.Module, traced: Any, images: Tensor) -> bool:
    torch.manual_seed(_SEED)
    wanted: Tensor = network(images.clone())
    torch.manual_seed(_SEED)
    found: Tensor = traced(images.clone())
    return wanted.shape == found.shape and torch.allclose(wanted, found, rtol=1e-3, atol=1e-5, equal_nan=True)


def _probes(example: Tensor) -> Iterator[Tensor]:
    """Yield batches like the example: bright, dark and faint ones, and black above white."""
    noise = torch.rand(example.shape, generator=torch.Generator().manual_seed(_SEED)) * 2 - 1
    halves = torch.ones_like(noise)
    halves[..., : noise.shape[-2] // 2, :] = -1
    yield from (noise.abs(), -noise.abs(), noise / 100, halves)
