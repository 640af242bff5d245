"""The console command `automcu`: all subcommands under one name."""

import typer

from automcu_ray.commands import ablate, arena, deploy, doctor, fidelity, mlperf, report, search, verify, watch
from automcu_ray.runtime.command import STYLE, run_app

HELP = """Find, train, verify and package neural networks for microcontrollers.

Every candidate network meets the toolchain before it is trained: what does not fit the board costs no training.
"""

EPILOG = """
Begin with:

  automcu doctor

  automcu search

The first says what this machine can run and how to install what is missing. The second searches for handwritten digits
on an STM32F405, which takes a few minutes on two cores and ends in runs/latest/bundle (C, ELF, ONNX) and
runs/latest/report.html, which `automcu watch` shows while the run goes on. Then a task and a board of your own choice:

  automcu search --task cifar10 --target stm32f407 --set constraints.ram_kb=96

A network that you have already:

  automcu deploy model.onnx --task cifar10 --target stm32f407

What comes out, checked again anywhere:

  automcu verify runs/latest/bundle

Runs lie in runs/ of the working directory. `automcu COMMAND --help` shows all options, with examples.
"""

app = typer.Typer(help=HELP, epilog=EPILOG, no_args_is_help=True, **STYLE)
app.command(epilog=search.EPILOG)(search.search)
app.command(epilog=watch.EPILOG)(watch.watch)
app.command(epilog=report.EPILOG)(report.report)
app.command(epilog=deploy.EPILOG)(deploy.deploy)
app.command(epilog=verify.EPILOG)(verify.verify)
app.command(epilog=ablate.EPILOG)(ablate.ablate)
app.command(epilog=fidelity.EPILOG)(fidelity.fidelity)
app.command(epilog=arena.EPILOG)(arena.arena)
app.command(epilog=mlperf.EPILOG)(mlperf.mlperf)
app.command()(doctor.doctor)


def main() -> None:
    """Run `automcu`; errors of the user's input or machine are one line on stderr and exit status 2."""
    run_app(app)
