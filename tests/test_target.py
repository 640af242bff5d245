"""Targets and constraints as data."""

from itertools import pairwise

import pytest

from automcu_ray.config import CONFIGS, names, read_yaml
from automcu_ray.target import BYTES_PER_KB, Constraints, McuTarget


@pytest.mark.parametrize("name", names("target"))
def test_every_target_reads_and_cites_a_source_for_each_number(name: str) -> None:
    target = McuTarget.model_validate(read_yaml(CONFIGS / "target" / f"{name}.yaml"))
    assert target.name == name
    sources = [target.clock_source, target.flash.source, *(region.source for region in target.ram.values())]
    assert all(len(source) > 10 for source in sources)
    regions = sorted((region.origin, region.origin + region.size_bytes) for region in target.ram.values())
    assert all(end <= start for (_, end), (start, _) in pairwise(regions))


def test_kb_means_1024_bytes(stm32f405: McuTarget) -> None:
    assert BYTES_PER_KB == 1024
    assert stm32f405.main_ram.size_bytes == 131_072
    assert Constraints(ram_kb=24).ram_limit_bytes(stm32f405) == 24_576


def test_a_limit_above_the_board_is_the_board(stm32f405: McuTarget) -> None:
    assert Constraints(ram_kb=500).ram_limit_bytes(stm32f405) == 131_072
    assert Constraints().flash_limit_bytes(stm32f405) == 1_048_576


def test_a_split_sram_is_not_added_up(stm32f405: McuTarget) -> None:
    assert sum(region.size_kb for region in stm32f405.ram.values()) == 192
    assert stm32f405.main_ram.size_kb == 128
