"""Settings with units."""

import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.runtime.config import parse_setting
from automcu_ray.runtime.units import number


@pytest.mark.parametrize(
    ("setting", "read"),
    [
        ("constraints.ram=24KB", {"constraints": {"ram_kb": 24}}),
        ("constraints.ram=1MB", {"constraints": {"ram_kb": 1024}}),
        ("constraints.flash_kb=1 MiB", {"constraints": {"flash_kb": 1024}}),
        ("constraints.ram_kb=512 bytes", {"constraints": {"ram_kb": 0.5}}),
        ("constraints.ram_kb=24", {"constraints": {"ram_kb": 24}}),
        ("constraints.ram_kb=null", {"constraints": {"ram_kb": None}}),
        ("constraints.latency=0.5s", {"constraints": {"latency_ms": 500}}),
        ("budget.time=1,5 h", {"budget": {"seconds": 5400}}),
        ("budget.trained=24", {"budget": {"trained": 24}}),
    ],
)
def test_amounts_are_read_with_their_units(setting: str, read: dict[str, object]) -> None:
    assert parse_setting(setting) == read


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [("constraints.ram=24", "wants a unit, such as 24KB"), ("constraints.ram_kb=24 ms", "an amount such as 24KB")],
)
def test_a_wrong_unit_is_one_line(setting: str, wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted):
        parse_setting(setting)


def test_commas_group_thousands_or_are_decimal() -> None:
    assert [number(text) for text in ("1,024", "1,5", "1.5", "12,345,678")] == [1024, 1.5, 1.5, 12345678]
