from pathlib import Path

import numpy as np
import pytest

from automcu_ray.core.feasibility import FeasibilityReport
from automcu_ray.problem.target import Constraints
from automcu_ray.testing.networks import CLASSES, deployed_network
from backends.base import Firmware
from backends.boards.base import BoardRun
from backends.boards.qemu import QemuBoard
from backends.c_qemu.backend import CQemuBackend
from backends.c_qemu.form import Form
from tests.backends.conftest import read_target

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("name", ["stm32f405", "ensemble_e8_hp"])
def test_a_fast_arena_takes_what_the_limit_leaves_and_no_more_than_helps(qemu: None, name: str, tmp_path: Path) -> None:
    target, made = read_target(name), deployed_network("plain", "int8")
    pixels = np.random.default_rng(0).integers(0, 256, (1, *made.input_shape))
    image = made.encode(pixels.astype(np.uint8))

    def built(ram_bytes: int | None = None) -> Firmware:
        limit = Constraints() if ram_bytes is None else Constraints(ram_kb=ram_bytes / 1024)
        return CQemuBackend().build(made, target, limit, tmp_path)

    def ran(firmware: Firmware) -> BoardRun:
        assert firmware.board_elf is not None
        return QemuBoard().run(firmware.board_elf, target, image, output_dtype=np.dtype(np.int8), output_count=CLASSES)

    least = CQemuBackend(arena="least").build(made, target, Constraints(), tmp_path)
    plain, needed = ran(least), least.report
    assert needed.ram_bytes is not None
    fast = built()
    quick, roomy = ran(fast), fast.report
    assert roomy.ram is not None and needed.ram is not None and roomy.ram_bytes is not None
    assert roomy.ram.spare_bytes == roomy.ram.arena_bytes - needed.ram.arena_bytes > 0
    assert abs(roomy.least_ram_bytes - needed.ram_bytes) <= 256  # another stack, at most
    assert quick.instructions is not None and plain.instructions is not None
    assert quick.instructions < plain.instructions and np.array_equal(quick.outputs, plain.outputs)
    form = Form.of(roomy.notes)
    assert form.arena_bytes >= roomy.ram.arena_bytes and form.notes == roomy.notes
    memory = CQemuBackend().memory_map(made, target, roomy)
    assert memory is not None and memory.arena_bytes == roomy.ram.arena_bytes
    between = built((roomy.ram_bytes + needed.ram_bytes) // 2).report
    assert between.feasible and between.ram_bytes is not None and between.ram_bytes < roomy.ram_bytes
    none = built(needed.ram_bytes).report
    assert none.feasible and none.ram_bytes == needed.ram_bytes and not none.notes


def test_a_network_refused_for_its_ram_alone_is_not_built_for_size(gcc: None, tmp_path: Path) -> None:
    target, made = read_target("stm32f405"), deployed_network("plain", "int8")

    def built(ram_bytes: int) -> FeasibilityReport:
        return CQemuBackend(arena="least").build(made, target, Constraints(ram_kb=ram_bytes / 1024), tmp_path).report

    whole = CQemuBackend(arena="least").build(made, target, Constraints(), tmp_path).report
    assert whole.ram_bytes is not None
    refused = built(whole.ram_bytes - 600)
    assert not refused.feasible and not refused.notes
    assert (refused.ram_bytes, refused.flash_bytes) == (whole.ram_bytes, whole.flash_bytes)
    assert built(whole.ram_bytes - 1).notes  # another form's stack may do
