"""Show a run's report in a browser while the run goes on."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

EPILOG = """
Examples:

  automcu watch

  automcu watch runs/mine --port 9000 --open

Nothing can be changed there, and nobody but this machine can reach it; over ssh, forward the port:
ssh -L 8765:127.0.0.1:8765 HOST. Ctrl-C ends the page, not the run.
"""


def watch(
    run: Annotated[Path, typer.Argument(help="The run's folder.")] = Path("runs/latest"),
    port: Annotated[int, typer.Option(help="Port of 127.0.0.1; 0 takes a free one.")] = 8765,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve the report of a run, finished or not, on this machine; it is shown anew as results come."""
    from automcu_ray.reports.console import say  # these take a second, which the other commands need not wait for
    from automcu_ray.reports.server import ReportServer
    from automcu_ray.runtime.run_folder import RunFolder

    folder = RunFolder.begun(run)
    with ReportServer(folder.report, port) as server:
        say(Console(), f"{folder.path.name}: {server.url} (Ctrl-C ends this)")
        if open_:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
