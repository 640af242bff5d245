"""Which form of C a network gets: forms are built, the fastest first, until one fits."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Literal

from automcu_ray.core.feasibility import FeasibilityReport
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.target import Core
from backends.base import Firmware
from backends.c_qemu.cgen import fitting_stage, generate
from backends.c_qemu.form import Code, Form

Optimise = Literal["speed", "size", "auto"]
Arena = Literal["least", "fast"]
Patches = Literal["never", "auto"]
_LESS_THAN_FAST: tuple[Code, ...] = ("lean", "narrow")
_OTHER_STACK_BYTES = 512  # that a form's stack may be smaller than another's


class Choice:
    """The choice for one network and core: see `CQemuBackend` for what its settings mean.

    `build` returns a network's firmware in a form; `ram_limit_bytes` is what all of its RAM may take.
    """

    def __init__(
        self,
        deployed: DeployedNetwork,
        core: Core,
        ram_limit_bytes: int,
        *,
        optimise: Optimise,
        arena: Arena,
        patches: Patches,
        build: Callable[[Form], Firmware],
    ) -> None:
        self.deployed, self.core, self.ram_limit_bytes = deployed, core, ram_limit_bytes
        self.optimise, self.arena, self.patches = optimise, arena, patches
        self._build, self._spent = build, dict[str, float]()

    def made(self, steps: bool) -> Firmware:
        """Return the firmware of the fastest form that fits, or of the last one tried; `steps` is every form's."""
        form = Form("small" if self.optimise == "size" else "fast", steps=steps)
        found = self._try(form)
        for other in () if found.report.feasible else self._others(found.report):
            form = dataclasses.replace(other, steps=steps, stage=None if steps else other.stage)
            found = self._try(form)
            if found.report.feasible:
                break
        if not found.report.feasible or self.deployed.precision != "int8":
            return found
        if self.optimise == "auto" and form.code == "small":
            for code in (*_LESS_THAN_FAST, form.code):  # the small one is known to fit
                found = self._try(dataclasses.replace(form, code=code))
                if found.report.feasible:
                    break
        return self._roomier(found, form) if self.arena == "fast" and form.code == "fast" else found

    def _try(self, form: Form) -> Firmware:
        """Return the firmware in a form; its seconds are of all that were built."""
        found = self._build(form)
        for rung, more in found.report.seconds_by_rung.items():
            self._spent[rung] = self._spent.get(rung, 0.0) + more
        return dataclasses.replace(found, report=found.report.replace(seconds_by_rung=dict(self._spent)))

    def _others(self, report: FeasibilityReport) -> Iterator[Form]:
        """Yield the forms that may fit where the first one, with its report, did not."""
        if self.deployed.precision != "int8":
            return
        stage, over = None, {found.resource: found.over_bytes or 0 for found in report.violations}
        room = _arena_bytes(report) - over.get("ram", 0)
        if over.get("ram") and self.patches == "auto":
            stage = fitting_stage(self.deployed, self.core, room)
        if stage is not None:
            yield Form("small" if self.optimise == "size" else "fast", stage)
        if self.optimise == "auto":
            small = Form("small")
            if "flash" in over or self._arena_bytes_of(small) <= room + _OTHER_STACK_BYTES:  # else its RAM is too much
                yield small
            if stage is not None:
                yield Form("small", stage)

    def _arena_bytes_of(self, form: Form) -> int:
        return generate(self.deployed, self.core, form=form).arena_bytes

    def _roomier(self, found: Firmware, form: Form) -> Firmware:
        """Return a firmware whose kernels take the RAM that is left, as far as they are faster for it.

        It is the given one where none is, or where their code has no room in Flash.
        """
        needed, used = _arena_bytes(found.report), found.report.ram_bytes or 0
        roomy = dataclasses.replace(form, arena_bytes=needed + max(0, self.ram_limit_bytes - used))
        if self._arena_bytes_of(roomy) <= needed:
            return found
        faster = self._try(roomy)
        if not faster.report.feasible or faster.report.ram is None:
            return self._try(form)
        ram = faster.report.ram.replace(spare_bytes=faster.report.ram.arena_bytes - needed)
        return dataclasses.replace(faster, report=faster.report.replace(ram=ram))


def _arena_bytes(report: FeasibilityReport) -> int:
    assert report.ram is not None, "the linker measures RAM"
    return report.ram.arena_bytes
