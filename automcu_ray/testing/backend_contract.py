"""What every backend must keep: inherit, and fill `make`."""

import pickle
from abc import abstractmethod
from pathlib import Path

import pytest

from automcu_ray.core.feasibility import Rung
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.testing.networks import deployed_network
from automcu_ray.testing.tasks import read_target
from backends.base import Backend, Firmware

TOO_SMALL = Constraints(ram_kb=2, flash_kb=2)


class BackendContract:
    """Builds a small network for the fixture `target`; a subclass skips where its programs are missing.

    `builds_elf` is False for a backend that leaves the firmware to the user's own project, `measures_sizes` where it
    does not say how much RAM and Flash that would take.
    """

    builds_elf = True
    measures_sizes = True

    @abstractmethod
    def make(self) -> Backend: ...

    @pytest.fixture
    def target(self) -> McuTarget:
        return read_target("stm32f405")

    def network(self) -> DeployedNetwork:
        return deployed_network("plain", "int8")

    def build(self, target: McuTarget, constraints: Constraints, workdir: Path) -> Firmware:
        return self.make().build(self.network(), target, constraints, workdir)

    def needs_sizes(self) -> None:
        if not self.measures_sizes:
            pytest.skip("sizes are not measured")

    def test_it_says_who_it_is_and_what_it_needs(self) -> None:
        backend = self.make()
        assert backend.name and backend.programs and backend.measures
        assert backend.missing_programs() == ()
        assert backend.version() == self.make().version() != ""

    def test_what_fits_comes_with_firmware_and_sources(self, target: McuTarget, tmp_path: Path) -> None:
        made = self.build(target, Constraints(), tmp_path)
        assert made.report.feasible and made.report.violations == ()
        assert made.report.backend == self.make().name
        assert (made.elf is not None) == self.builds_elf
        assert made.elf is None or made.elf.read_bytes()[:4] == b"\x7fELF"
        assert made.sources and all(path.is_file() or any(path.iterdir()) for path in made.sources)

    def test_parts_add_up_to_totals(self, target: McuTarget, tmp_path: Path) -> None:
        report = self.build(target, Constraints(), tmp_path).report
        for parts, total in ((report.ram, report.ram_bytes), (report.flash, report.flash_bytes)):
            if parts is not None:
                sizes = parts.model_dump()
                assert sizes.pop("total_bytes") == total == sum(sizes.values())
                assert all(size >= 0 for size in sizes.values())
        assert self.measures_sizes == (report.ram_bytes is not None) == (report.flash_bytes is not None)

    def test_too_large_is_a_report_and_no_firmware(self, target: McuTarget, tmp_path: Path) -> None:
        self.needs_sizes()
        made = self.build(target, TOO_SMALL, tmp_path)
        assert not made.report.feasible and made.elf is None
        assert [violation.resource for violation in made.report.violations] == ["ram", "flash"]
        for violation in made.report.violations:
            assert violation.limit_bytes == 2048 and violation.over_bytes and violation.over_bytes > 0
            assert violation.where and str(violation.over_bytes) in violation.message
        assert made.report.ram_bytes == made.report.violations[0].found_bytes
        assert made.report.flash_bytes == made.report.violations[1].found_bytes

    def test_a_limit_of_exactly_the_need_fits(self, target: McuTarget, tmp_path: Path) -> None:
        self.needs_sizes()
        need = self.build(target, Constraints(), tmp_path).report
        assert need.ram_bytes is not None and need.flash_bytes is not None
        exact = Constraints(ram_kb=need.ram_bytes / 1024, flash_kb=need.flash_bytes / 1024)
        assert self.build(target, exact, tmp_path).report.feasible
        short = Constraints(ram_kb=(need.ram_bytes - 1) / 1024)
        assert self.build(target, short, tmp_path).report.violations[0].over_bytes == 1

    def test_the_same_network_gets_the_same_sizes(self, target: McuTarget, tmp_path: Path) -> None:
        one, two = (self.build(target, Constraints(), tmp_path).report for _ in range(2))
        assert (one.ram, one.flash) == (two.ram, two.flash)

    def test_seconds_are_kept_by_rung(self, target: McuTarget, tmp_path: Path) -> None:
        seconds = self.build(target, Constraints(), tmp_path).report.seconds_by_rung
        assert seconds and all(value >= 0 for value in seconds.values())
        assert set(seconds) <= {str(rung) for rung in Rung}

    def test_a_backend_can_be_sent_to_another_process(self) -> None:
        assert pickle.loads(pickle.dumps(self.make())).version() == self.make().version()
