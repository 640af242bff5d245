"""What ST's tools report about a network, whatever their version wrote: the figures, and how they hang together."""

from collections.abc import Iterable
from dataclasses import dataclass

from automcu_ray.core.errors import ToolchainError


@dataclass(frozen=True)
class Buffer:
    """An array of the generated C: weights, or a tensor; `in_flash` says which."""

    name: str
    size_bytes: int
    in_flash: bool


@dataclass(frozen=True)
class Runtime:
    """What runs the network, in bytes: code, constants and data of generated objects, kernels and C library.

    Known where arm-none-eabi-gcc was on the tool's PATH and its version is 8.0 or later. JSON knows the two sums only.
    """

    flash_bytes: int
    ram_bytes: int
    code_bytes: int | None = None
    total_flash_bytes: int | None = None


@dataclass(frozen=True)
class VendorReport:
    """The figures of one network; `input_bytes` and `output_bytes` are 0 where both lie inside the activations.

    `total_flash_bytes` of the runtime is the tool's own total: weights as linked (a few bytes of padding) and code.
    """

    tool: str
    model: str
    weights_bytes: int
    activations_bytes: int
    input_bytes: int
    output_bytes: int
    macs: int | None = None
    runtime: Runtime | None = None
    operators: tuple[str, ...] = ()
    buffers: tuple[Buffer, ...] = ()

    @property
    def io_bytes(self) -> int:
        """Input and output outside the activations."""
        return self.input_bytes + self.output_bytes

    @property
    def ram_bytes(self) -> int:
        """What the tool calls "ram (total)": activations, input and output, without the runtime."""
        return self.activations_bytes + self.io_bytes

    def largest(self, *, in_flash: bool) -> Buffer | None:
        """Return the largest buffer in Flash or in RAM; None where the report lists none."""
        found = [buffer for buffer in self.buffers if buffer.in_flash == in_flash]
        return max(found, key=lambda buffer: buffer.size_bytes, default=None)


def unreadable(why: str) -> ToolchainError:
    """Return the error for a report that is cut off, contradicts itself or is of another tool."""
    return ToolchainError(f"cannot read the report of ST's tool: {why}.")


def agreed(what: str, values: Iterable[int]) -> int:
    """Return the one value that every place of a report gives for a figure.

    Raises:
        ToolchainError: no place gives it, or two differ.
    """
    found = sorted(set(values))
    if len(found) != 1:
        raise unreadable(f"{what} should be one number, found {', '.join(map(str, found)) or 'none'}")
    return found[0]
