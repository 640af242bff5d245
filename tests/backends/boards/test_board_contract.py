"""QEMU keeps the contract with a real firmware, and so does the base class over any port that speaks the protocol."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.testing.board_contract import BoardContract
from automcu_ray.testing.networks import SHAPE, deployed_network
from backends.boards.base import MAGIC, Board, Port
from backends.boards.qemu import QemuBoard
from backends.c_qemu.backend import CQemuBackend
from tests.backends.boards.answers import out


@pytest.mark.usefixtures("qemu")
class TestQemu(BoardContract):
    def make(self) -> Board:
        return QemuBoard()

    def firmware(self, deployed: DeployedNetwork, target: McuTarget, workdir: Path) -> Path:
        elf = CQemuBackend().build(deployed, target, Constraints(), workdir).elf
        assert elf is not None
        return elf


class HostPort:
    """Answers as firmware/main.c does; onnxruntime computes."""

    def __init__(self) -> None:
        self.network = deployed_network("plain", "int8")
        self.said = io.BytesIO(b"READY 000001b0 00000005\n")

    def write(self, data: bytes, /) -> int:
        assert data.startswith(MAGIC) and len(data) == len(MAGIC) + 8 + 3 * 12 * 12
        encoded = np.frombuffer(data[len(MAGIC) + 8 :], np.int8).reshape(1, *SHAPE)
        output = self.network.run((encoded.astype(np.int16) + 128).astype(np.uint8)).tobytes()
        self.said = io.BytesIO(out(data[len(MAGIC) + 8 :], output))
        return len(data)

    def read_until(self, expected: bytes, size: int, /) -> bytes:
        return self.said.readline()


class HostBoard(Board):
    name = "host"

    @contextmanager
    def connect(self, elf: Path, target: McuTarget) -> Iterator[Port]:
        yield HostPort()

    def instructions(self, ticks: int, target: McuTarget) -> int | None:
        return None


class TestAnyPort(BoardContract):
    def make(self) -> Board:
        return HostBoard()

    def firmware(self, deployed: DeployedNetwork, target: McuTarget, workdir: Path) -> Path:
        return workdir / "net.elf"
