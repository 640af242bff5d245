"""What every board keeps to, emulated or on a desk. Inherit, and say how to make one and what it runs."""

import pickle
from abc import abstractmethod
from pathlib import Path

import numpy as np
import pytest

from automcu_ray.core.errors import BoardError
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.target import McuTarget
from automcu_ray.testing.networks import deployed_network, images
from automcu_ray.testing.tasks import read_target
from backends.boards.base import Board, BoardRun


class BoardContract:
    """`make` returns a board; `firmware` builds the given network for the target of the fixture `target`."""

    @abstractmethod
    def make(self) -> Board: ...

    @abstractmethod
    def firmware(self, deployed: DeployedNetwork, target: McuTarget, workdir: Path) -> Path: ...

    @pytest.fixture
    def target(self) -> McuTarget:
        return read_target("stm32f405")

    @pytest.fixture(autouse=True)
    def built(self, target: McuTarget, tmp_path: Path) -> None:
        self.target = target
        self.deployed = deployed_network("plain", "int8")
        self.elf = self.firmware(self.deployed, target, tmp_path)

    def run(self, count: int = 3, output_count: int = 5) -> BoardRun:
        inputs = self.deployed.encode(images(3)[:count])
        return self.make().run(self.elf, self.target, inputs, output_dtype=np.int8, output_count=output_count)

    def test_it_says_who_it_is_and_what_it_needs(self) -> None:
        board = self.make()
        assert board.name and board.measures and board.label(self.target)
        assert board.version() == self.make().version()

    def test_outputs_are_the_bits_of_onnxruntime_in_the_order_of_the_images(self) -> None:
        assert (self.run().outputs == self.deployed.run(images(3))).all()

    def test_figures_are_measured_or_none_and_never_zero(self) -> None:
        got = self.run()
        assert got.instructions is None or got.instructions > 0
        assert got.stack_used_bytes > 0 and got.seconds > 0
        assert ("instructions" in self.make().measures) or got.instructions is None

    def test_another_run_gives_the_same(self) -> None:
        one, two = self.run(), self.run()
        assert (one.outputs == two.outputs).all()
        assert (one.instructions, one.stack_used_bytes) == (two.instructions, two.stack_used_bytes)

    def test_no_images_and_another_network_than_the_firmwares_are_board_errors(self) -> None:
        with pytest.raises(BoardError, match="at least one input"):
            self.run(count=0)
        with pytest.raises(BoardError, match="should take 432 and give 7 bytes"):
            self.run(output_count=7)

    def test_it_can_be_sent_to_another_process(self) -> None:
        assert pickle.loads(pickle.dumps(self.make())).label(self.target) == self.make().label(self.target)
