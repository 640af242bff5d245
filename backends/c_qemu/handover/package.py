"""A bundle as it is taken home: sources and harness in their folders, the interface, projects, README and the check."""

import hashlib
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper
from safetensors.numpy import save_file

from automcu_ray.core.errors import ToolchainError, ToolMissingError
from automcu_ray.core.learning import METRICS
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.target import McuTarget
from automcu_ray.problem.task import Task
from automcu_ray.records.manifest import NetworkManifest
from backends.boards.machines import find_machine
from backends.c_qemu.gcc_flags import uart_flags
from backends.c_qemu.handover import CHECK, RECIPE, SUMS, api, projects
from backends.c_qemu.handover.uf2 import uf2
from backends.programs import Runner

OBJCOPY, COPY_TIMEOUT_S = "arm-none-eabi-objcopy", 30.0
# emx-onnx-cgen hands arrays to pointers to const arrays, which ISO C allows from C23 on.
_LENIENT = """#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wdiscarded-qualifiers"
#endif
#pragma GCC diagnostic ignored "-Wpedantic"
"""
_SOURCES = ("net.c", "net.h", "stream.c", "stream.h")
_HARNESS = ("*.c", "*.ld", "harness.h", "uart_*.h")


def package(
    folder: Path,
    deployed: DeployedNetwork,
    task: Task,
    manifest: NetworkManifest,
    build: dict[str, Any],
    *,
    gcc: str,
    run: Runner,
) -> None:
    """Turn what a build left in `folder`, with ONNX, vectors and manifest beside it, into what the user takes home.

    `build` are the flags and places that `verify.py` builds by, `gcc` the compiler's version. Weights of a network
    that came as a file are in its ONNX alone: a stranger's graph is not read in this process.
    """
    _move(folder, _SOURCES, folder / "src")
    _move(folder, _HARNESS, folder / "harness")
    header, front_end = folder / "src" / "net.h", task.front_end if (folder / "src" / "stream.c").exists() else None
    if deployed.precision == "float32":
        source = folder / "src" / "net.c"
        source.write_text(_LENIENT + source.read_text())
    told = api.Told(manifest.learning, manifest.anomaly.threshold if manifest.anomaly else 0.0)
    header.write_text(api.header(header.read_text(), deployed, front_end, told))
    (folder / "src" / "net_api.c").write_text(api.source(deployed, front_end, manifest.classes, told))
    if not deployed.foreign:
        _save_weights(deployed.float_onnx, folder / "weights.safetensors")
    _save_images(folder, task.target, run)
    channels, height, width = deployed.input_shape
    size = deployed.output_dtype.itemsize
    recipe = {
        "gcc": gcc,
        "precision": deployed.precision,
        "input_bytes": channels * height * width * size,
        "output_bytes": deployed.num_classes * size,
        "stream": front_end is not None,
        **build,
        "uf2": task.target.uf2 and {"family": task.target.uf2.family, "origin": task.target.flash.origin},
        "board": _place("net", task.target),
        "emulator": _emulator(task.target),
    }
    (folder / RECIPE).write_text(json.dumps(recipe, indent=2) + "\n")
    for script in CHECK.glob("*.py"):
        shutil.copyfile(script, folder / script.name)
    about: dict[str, object] = {
        **manifest.model_dump(exclude={"target", "input", "output", "layers", "classes", "stream"}),
        "kind": manifest.learning.kind,
        "verb": api.VERBS[manifest.learning.kind],
        "told": manifest.told,
        "test_figures": _metrics(manifest.test_figures),
        "trivial_figures": _metrics(manifest.trivial_figures),
        "stream": front_end is not None,
        "channels": channels,
        "num_classes": deployed.num_classes,
        "core_flags": build["core_flags"],
        "has_weights": not deployed.foreign,
    }
    names = [target.name for target in manifest.learning.targets] or manifest.classes or _numbers(deployed)
    projects.write(folder, task.target, inputs=manifest.preparation, names=names, about=about)
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}\n"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    (folder / SUMS).write_text("".join(lines))


def _metrics(figures: dict[str, float]) -> dict[str, float]:
    """Return the figures without those of single targets, whose names come from outside."""
    return {name: value for name, value in figures.items() if name in METRICS}


def _numbers(deployed: DeployedNetwork) -> list[str]:
    return [str(number) for number in range(deployed.num_classes)]


def _move(folder: Path, patterns: tuple[str, ...], to: Path) -> None:
    to.mkdir()
    for pattern in patterns:
        for path in folder.glob(pattern):
            path.rename(to / path.name)


def _save_weights(model: bytes, path: Path) -> None:
    graph = onnx.load_from_string(model).graph
    save_file({tensor.name: numpy_helper.to_array(tensor).copy() for tensor in graph.initializer}, path)


def _save_images(folder: Path, target: McuTarget, run: Runner) -> None:
    """Write the firmware as .bin and .hex, and as .uf2 for a board that takes it.

    Without objcopy the ELF alone remains, from which anyone can make them.
    """
    for kind, name in (("binary", "firmware.bin"), ("ihex", "firmware.hex")):
        with suppress(ToolchainError, ToolMissingError):
            run([OBJCOPY, "-O", kind, "firmware.elf", name], timeout_s=COPY_TIMEOUT_S, cwd=folder)
    (folder / "commands.log").unlink(missing_ok=True)
    image = folder / "firmware.bin"
    if target.uf2 is not None and image.is_file():
        (folder / "firmware.uf2").write_bytes(uf2(image.read_bytes(), target.flash.origin, target.uf2.family))


def _place(script: str, target: McuTarget) -> dict[str, Any]:
    return {
        "script": script,
        "uart": target.uart.kind,
        "uart_flags": uart_flags(target.uart),
        "boot": target.boot,
    }


def _emulator(target: McuTarget) -> dict[str, Any] | None:
    """Return where the firmware runs in QEMU; None where nowhere."""
    if target.emulator is None:
        return None
    machine = find_machine(target.emulator.machine)
    place = _place("net", target)
    if not target.emulator.same_chip:
        place = {"script": "emulated", "uart": machine.uart.kind, "uart_flags": uart_flags(machine.uart)}
    return {"machine": target.emulator.machine, "systick_hz": machine.systick_hz, **place}
