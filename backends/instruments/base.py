"""What every instrument does: it records from `start` to `stop`, in a process of its own (`own_process.py`)."""

from abc import ABC, abstractmethod
from typing import ClassVar

import serial

from automcu_ray.core.errors import BoardError, ConfigError
from automcu_ray.problem.arena import Quantity
from backends.instruments.trace import PowerTrace, ThermalTrace

Trace = PowerTrace | ThermalTrace
READ_S = 0.2  # a read of a port that waits longer hides a stop


class InstrumentError(BoardError):
    """The instrument, not the board or its firmware, did not do as agreed."""


class Instrument(ABC):
    """One instrument; its options are the keyword-only arguments of its constructor, which opens nothing.

    `usb` are the ids (vendor, product) by which it is found. What was not tried on the real thing its docstring says.
    """

    name: ClassVar[str]
    usb: ClassVar[tuple[tuple[int, int], ...]] = ()
    quantity: ClassVar[Quantity] = "current"

    @abstractmethod
    def start(self) -> None:
        """Open the instrument where it is not, and begin to record.

        Raises:
            BoardError: it cannot be opened, or answers otherwise than agreed.
        """

    @abstractmethod
    def stop(self) -> Trace:
        """End the recording and return it.

        Raises:
            BoardError: samples were lost, or none came: what is left would not be the truth.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the device; the supply that it gives ends."""


def open_port(name: str, port: str | None, baud: int) -> serial.Serial:
    """Return the open serial port of an instrument.

    Raises:
        ConfigError: none is named.
        BoardError: it cannot be opened.
    """
    if not port:
        raise ConfigError(f"instrument {name!r} needs its serial port, such as port=/dev/ttyACM1: see automcu doctor.")
    try:
        return serial.serial_for_url(port, baudrate=baud, timeout=READ_S, write_timeout=5)
    except (serial.SerialException, ValueError, OSError) as error:
        raise BoardError(f"instrument {name!r}: {port} cannot be opened: {error}") from error
