"""Say what this machine can run, in which version, what it measures, and how to install what is missing."""

import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from automcu_ray.commands.finding import MAX_CHARS, Finding, broken, check
from automcu_ray.core.confinement import obstacle
from automcu_ray.core.errors import ConfigError
from automcu_ray.problem.target import BYTES_PER_KB, McuTarget
from automcu_ray.runtime import plugins
from automcu_ray.runtime.command import run_command
from automcu_ray.runtime.config import JailConfig, compose, merge, parse_setting
from automcu_ray.runtime.config_files import CONFIGS, load, names, read_yaml

ENGINE_PACKAGES = {"openai": "openai", "hf_local": "transformers", "vllm": "vllm"}


@dataclass(frozen=True)
class Settings:
    """What `--set` says, by group; `taken` are the options that some plugin has."""

    groups: Mapping[str, Any]
    taken: set[tuple[str, str]] = field(default_factory=set)

    @classmethod
    def parse(cls, settings: Iterable[str]) -> "Settings":
        """Return the settings, or raise ConfigError where one is for no plugin and not for the jail."""
        groups: dict[str, Any] = {}
        for setting in settings:
            merge(groups, parse_setting(setting))
        for group, options in groups.items():
            if group not in ("backend", "engine", "jail") or not isinstance(options, dict):
                raise ConfigError(f"doctor: --set wants backend.X=, engine.X= or jail.X=, found {group!r}.")
        return cls(groups)

    def options(self, kind: str, name: str, make: Callable[..., Any]) -> dict[str, Any]:
        """Return a plugin's options: its file's, then those of the settings that it has."""
        its_own = {key: value for key, value in load(kind, name).items() if key != "name"}
        given = {key: value for key, value in self.groups.get(kind, {}).items() if key in plugins.options_of(make)}
        self.taken.update((kind, key) for key in given)
        return plugins.check_options(kind, name, make, {**its_own, **given})

    def check_taken(self) -> None:
        """Raise ConfigError where no plugin has an option."""
        for kind in ("backend", "engine"):
            for key in self.groups.get(kind, {}):
                if (kind, key) not in self.taken:
                    raise ConfigError(f"doctor: --set {kind}.{key}: no {kind} has such an option.")


def _backend(settings: Settings, name: str) -> Finding:
    from backends import BACKENDS

    make = plugins.load("backend", BACKENDS, name)
    backend = make(**settings.options("backend", name, make))
    does = f"measures {', '.join(sorted(backend.measures))}"
    if absent := backend.missing_programs():
        needs = f"{', '.join(absent)}: {backend.how_to_install()}"
        return Finding("backend", name, usable=False, does=does, needs=needs)
    return Finding("backend", name, usable=True, version=backend.version(), does=does)


def _board(name: str) -> Finding:
    from backends.boards import BOARDS
    from backends.programs import apt_packages, missing

    board = plugins.load("board", BOARDS, name)()
    does = f"runs firmware; measures {', '.join(sorted(board.measures))}"
    if absent := missing(board.programs):
        needs = f"{', '.join(absent)}: apt install {apt_packages(absent)}"
        return Finding("board", name, usable=False, does=does, needs=needs)
    return Finding("board", name, usable=True, version=board.version(), does=does)


def _rig(name: str) -> Finding:
    from automcu_ray.run.run_arena import tasks_of_rig
    from backends.arena.rigs import rig_of

    tasks = tasks_of_rig(name)
    absent, does = (
        rig_of(tasks[0]).lacking(),
        f"builds firmware of arena tasks {', '.join(task.name for task in tasks)}",
    )
    return Finding("rig", name, usable=not absent, does=does, needs="; ".join(absent))


def _engine(settings: Settings, name: str) -> Finding:
    from searchers.engines import ENGINES

    engine = plugins.load("engine", ENGINES, name)
    does = "a language model" if engine.is_language_model else "rules, no language model"
    package = ENGINE_PACKAGES.get(name, "")
    version = f"{package} {importlib.metadata.version(package)}" if package and _installed(package) else ""

    def made() -> Finding:
        model = engine(**settings.options("engine", name, engine)).model
        return Finding("engine", name, usable=True, does=f"{does} {model}".strip())

    found = check("engine", name, made)
    return replace(found, version=version, does=found.does or does)


def _described(kind: str, table: Mapping[str, str], name: str) -> Finding:
    """Return the first line of a plugin's docstring: to say what it does, it is not made."""
    does = (plugins.load(kind, table, name).__doc__ or "").strip().partition("\n")[0]
    return Finding(kind, name, usable=True, does=does)


def _ports() -> dict[str, Any]:
    """Return the USB serial ports of this machine by their device: boards, debug probes and instruments."""
    from serial.tools import list_ports

    return {port.device: port for port in sorted(list_ports.comports()) if port.vid is not None}


def _port(device: str) -> Finding:
    from backends.instruments import INSTRUMENTS

    port = _ports()[device]
    does = "".join(filter(str.isprintable, port.description or ""))[:80]
    fits = [
        name
        for name in INSTRUMENTS
        if (port.vid, port.pid) in getattr(plugins.load("instrument", INSTRUMENTS, name), "usb", ())
    ]
    does += f"; instrument {' or '.join(fits)} by its USB id" if fits else ""
    return Finding("port", device, usable=True, version=f"{port.vid:04x}:{port.pid:04x}", does=does)


def _sandbox(name: str) -> Finding:
    does = "hides all but its own folder from the compiler; without it the compiler of specs' networks sees all files"
    why = obstacle()
    return Finding("sandbox", name, usable=not why, does=does, needs=why)


def _jail(settings: Settings, name: str) -> Finding:
    from trainables.jail.sandbox import require_sandbox

    require_sandbox(JailConfig.model_validate(settings.groups.get("jail", {})))
    return Finding("jail", name, usable=True, does="runs generated code, isolated")


def _default_run(name: str) -> Finding:
    from automcu_ray.run.plan import prepare

    config = prepare(compose({}, [])).config
    words = f"{config.task} on {config.target.name}: {config.searcher.name}, {config.backend.name}"
    return Finding("run", name, usable=True, does=words)


def find_all(settings: Settings = Settings({})) -> Iterator[Finding]:
    """Yield a finding for each backend, board, rig, instrument, port, engine, searcher, both sandboxes, and a run."""
    from backends import BACKENDS
    from backends.arena.rigs import RIGS
    from backends.boards import BOARDS
    from backends.instruments import INSTRUMENTS
    from searchers import SEARCHERS
    from searchers.engines import ENGINES
    from trainables.datasets import DATASETS

    looks: list[tuple[str, Iterable[str], Callable[[str], Finding]]] = [
        ("backend", BACKENDS, partial(_backend, settings)),
        ("board", BOARDS, _board),
        ("rig", RIGS, _rig),
        ("instrument", INSTRUMENTS, partial(_described, "instrument", INSTRUMENTS)),
        ("port", _ports(), _port),
        ("engine", ENGINES, partial(_engine, settings)),
        ("searcher", SEARCHERS, partial(_described, "searcher", SEARCHERS)),
        ("dataset", (), partial(_described, "dataset", DATASETS)),
        ("sandbox", ["bubblewrap"], _sandbox),
        ("jail", ["bubblewrap"], partial(_jail, settings)),
        ("run", ["default"], _default_run),
    ]
    for kind, table, look in looks:
        for name in plugins.known(kind, table):
            yield check(kind, name, partial(look, name))


def find_targets() -> tuple[list[dict[str, Any]], list[Finding]]:
    """Return each target's name, core, main RAM and Flash in KB, mark and emulator; and findings for broken files."""
    found, bad = [], []
    for name in names("target"):
        try:
            target = McuTarget.model_validate(read_yaml(CONFIGS / "target" / f"{name}.yaml"))
            machine = {"machine": "", "same_chip": False}
            if target.emulator is not None:
                machine = {"machine": target.emulator.machine, "same_chip": target.emulator.same_chip}
            sizes = {"ram_kb": target.main_ram.size_kb, "flash_kb": target.flash.size_kb}
            found.append({"name": name, "core": target.core, **sizes, "mark": target.mark, **machine})
        except Exception as error:  # a file that somebody is writing hides no other
            bad.append(broken("target", name, error))
    return found, bad


def machine_facts() -> dict[str, str]:
    """Return what trials will run on."""
    facts = {"python": platform.python_version(), "system": platform.platform(terse=True)}
    facts["cpus"] = str(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else str(os.cpu_count())
    if hasattr(os, "sysconf"):
        facts["memory"] = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / BYTES_PER_KB**3:.1f} GB"
    facts["ray"] = importlib.metadata.version("ray") if _installed("ray") else "missing"
    try:
        import torch

        facts["torch"] = torch.__version__
        gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        unused = "none that torch can use: its build is for CPUs, or not for this driver"
        facts["gpus"] = ", ".join(gpus) or (unused if Path("/proc/driver/nvidia").exists() else "none")
    except Exception as error:
        facts["torch"] = f"it is broken: {error}"[:MAX_CHARS]
    return facts


def _installed(package: str) -> bool:
    try:
        return bool(importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return False


def _show(console: Console, findings: list[Finding], targets: list[dict[str, Any]]) -> None:
    from automcu_ray.reports.console import harmless, say  # it brings scipy, which --help need not wait for

    say(console, ", ".join(f"{key} {value}" for key, value in machine_facts().items()))
    table = _table("", "what", "name", "version", "what it does")
    for one in findings:
        words = (one.kind, one.name, one.version, one.does)  # programs and plugins have written in them
        table.add_row("yes" if one.usable else "no", *(Text(harmless(word)) for word in words))
    console.print(table)
    boards = _table("target", "core", "RAM KB", "Flash KB", "mark", "QEMU machine")
    for target in targets:
        machine = f"{target['machine']}{'' if target['same_chip'] or not target['machine'] else ' (core only)'}"
        sizes = (f"{target['ram_kb']:g}", f"{target['flash_kb']:g}")
        boards.add_row(target["name"], target["core"], *sizes, target["mark"], machine)
    console.print(boards)
    for one in findings:
        if not one.usable:
            say(console, f"{one.kind} {one.name} needs: {one.needs}")


def _table(*titles: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="backend.X, engine.X or jail.X; can be repeated."),
    ] = None,
) -> None:
    """Say what this machine can run. Exit status: 0 if a run without any flag can work, 1 if not."""
    targets, bad = find_targets()
    given = Settings.parse(settings or ())
    findings = [*find_all(given), *bad]
    given.check_taken()
    if as_json:
        found = {"machine": machine_facts(), "findings": [asdict(one) for one in findings], "targets": targets}
        print(json.dumps(found, indent=2))
    else:
        _show(Console(), findings, targets)
    raise typer.Exit(0 if all(one.usable for one in findings if one.kind == "run") else 1)


def main() -> None:
    """Run the command."""
    run_command(doctor)
