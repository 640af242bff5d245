"""Take a network that exists already, an ONNX file or a torch module, onto a microcontroller."""

import re
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from automcu_ray.commands.options import group_option
from automcu_ray.core.errors import ConfigError
from automcu_ray.deploy.pixels import KNOWN, parse
from automcu_ray.problem.target import BYTES_PER_KB
from automcu_ray.runtime.command import run_command
from automcu_ray.runtime.config import compose
from automcu_ray.runtime.run_folder import RunFolder

if TYPE_CHECKING:
    from automcu_ray.run.deployment import OnTarget

EPILOG = """
Examples:

  automcu deploy model.onnx --task cifar10 --target stm32f407

  automcu deploy model.onnx --task images --set dataset.folder=pictures --all-targets

  automcu deploy net.py --task digits

An ONNX file brings its weights: float, one image input, one row of logits or probabilities. A Python file is what the
code form of a search is: a class Net(nn.Module); it is trained first, in the jail. Limits are the board's own memory;
--set constraints.ram_kb=32 sets lower ones. Exit status: 0 it fits and runs, 1 it does not, 2 the input or the machine
needs fixing.
"""


def deploy(
    model: Annotated[Path, typer.Argument(help="The network: an .onnx file, or a .py file.")],
    task: Annotated[str | None, group_option("task", "Data set to calibrate and judge by, and a target")] = None,
    target: Annotated[str | None, group_option("target", "Microcontroller (automcu doctor tells more)")] = None,
    all_targets: Annotated[
        bool, typer.Option("--all-targets", help="Build for every known target, print a table, and stop.")
    ] = False,
    pixels: Annotated[
        str | None,
        typer.Option(
            metavar="FORM",
            help=f"What the network takes for a pixel of 0 to 255: {', '.join(KNOWN)}, or MEAN/STD of pixels from 0 to "
            "1, one number or one a channel. Left out: what is right most often on training images.",
        ),
    ] = None,
    dataset: Annotated[str | None, typer.Option(metavar="NAME", help="Data set in place of the task's.")] = None,
    backend: Annotated[str | None, group_option("backend", "Toolchain")] = None,
    precision: Annotated[str | None, typer.Option(help="int8 or float32.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other key; can be repeated.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run's folder; made up if left out.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder that holds the runs.")] = Path("runs"),
) -> None:
    """Quantise a network, compile it, run it on the emulated board, and package it.

    The same ladder as a search's candidates: int8 by your own training images, C, the linker's word on RAM and Flash,
    an emulated board whose outputs must equal onnxruntime's, the accuracy on the test set, a bundle and a report.
    """
    choices = dict(task=task, dataset=dataset, target=target, backend=backend, searcher="random")
    own = ["constraints.ram_kb=null", "constraints.flash_kb=null"]
    extra = [f"precision={precision}"] if precision else []
    config = compose(choices, [*own, *(settings or []), *extra])
    made_up = f"deploy-{re.sub(r'[^A-Za-z0-9_]+', '-', model.stem)[:40]}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = RunFolder.new(runs, name or made_up, config)
    form = parse(pixels) if pixels is not None else None
    from automcu_ray.reports.console import outcome, say
    from automcu_ray.run import deployment  # only now that the configuration is sound: torch takes seconds
    from automcu_ray.run.plan import prepare

    console = Console()
    given = deployment.Given.read(model)
    candidate, plan = given.candidate, prepare(config)
    if candidate.code:
        if (kind := plan.task.learning.kind) != "classification":
            raise ConfigError(
                f"a .py file is trained to tell classes apart, and task {config.task} is {kind}: give .onnx."
            )
        if all_targets:
            raise ConfigError("--all-targets wants a network with its weights: an .onnx file.")
        adopted = None
    else:
        adopted = deployment.adopt(given, plan, console, form)
    if all_targets and adopted is not None:
        _show(console, deployment.on_all_targets(adopted, plan, console))
        raise typer.Exit(0)
    finalist, manifest = deployment.deploy(
        plan, folder, console, given, adopted, command=shlex.join(["automcu", "deploy", *_typed()])
    )
    for change in adopted.changes if adopted else ():
        say(console, f"changed: {change}")
    if manifest is None:
        say(console, f"{model.name} is not deployed: {finalist.reason}\nreport: {folder.report}")
        raise typer.Exit(1)
    raise typer.Exit(outcome(console, folder, plan.task, manifest, interrupted=False))


def _show(console: Console, found: "list[OnTarget]") -> None:
    """Print what each target says, those that hold the network first, the cheapest of them first."""
    from automcu_ray.reports.console import say

    table = Table(box=box.SIMPLE_HEAD)
    for title in ("", "target", "core", "RAM KB", "Flash KB", "instructions"):
        table.add_column(title, justify="left" if title in ("", "target", "core") else "right", no_wrap=True)
    found = sorted(found, key=lambda one: (not one.holds, one.target.flash.size_kb, one.target.main_ram.size_kb))
    for one in found:
        report, target = one.report, one.target
        ram = _of(report.ram_bytes, target.main_ram.size_kb) if report else ""
        flash = _of(report.flash_bytes, target.flash.size_kb) if report else ""
        count = f"{report.instructions:,}" if report and report.instructions else ""
        table.add_row("yes" if one.holds else "no", target.name, target.core.removeprefix("cortex-"), ram, flash, count)
    console.print(table)
    for one in found:
        if not one.holds:
            say(console, f"{one.target.name}: {one.reason}")
    console.print(f"{sum(one.holds for one in found)} of {len(found)} targets hold it", highlight=False)


def _typed() -> list[str]:
    """Return the words after the command's name."""
    words = sys.argv[1:]
    return words[1:] if words[:1] == ["deploy"] else words


def _of(used: int | None, limit_kb: float) -> str:
    return "" if used is None else f"{used / BYTES_PER_KB:.1f} of {limit_kb:g}"


def main() -> None:
    """Run the command; errors of the user's input or machine are one line on stderr and exit status 2."""
    run_command(deploy, EPILOG)
