"""Programs that read what strangers wrote see their own folder and the toolchain alone: bubblewrap's command lines.

Linux's namespaces do it: no network, no other process, no file but those that are named. Nothing is started here but
the probe that says whether this machine allows it.
"""

import functools
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

NAMESPACES = (
    *("bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL"),  # as 1: its CPU time counts as ours
)
SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
PRIVATE = "/tmp"
PROBE_S = 20
ALLOW = (
    "(sysctl kernel.unprivileged_userns_clone=1, on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0; in a "
    "container the runtime must permit them)"
)


@functools.cache
def obstacle() -> str:
    """Return why this machine cannot confine a program, as a line with the remedy; "" where it can.

    Asked once in a process. A confined call costs ten milliseconds of CPU (bubblewrap 0.8, two cores).
    """
    if shutil.which("bwrap") is None:
        return "bwrap is not on PATH. Install it: apt install bubblewrap."
    command = confined(["true"])
    try:
        probe = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not run here: {type(error).__name__}."
    if probe.returncode == 0:
        return ""
    told = " ".join(probe.stderr.split())[:200]
    return f"bwrap may not make namespaces here: {told}. Allow them {ALLOW}."


def confined(
    argv: Sequence[str], *, folder: Path | None = None, readable: Iterable[Path] = (), proc: bool = False
) -> list[str]:
    """Return the command that runs a program where only `folder` can be written; None: a /tmp that is gone with it.

    Visible are the system's libraries, the program's own installation, `readable`, and the folders of absolute paths
    among the arguments; with `proc` the program's own processes.
    """
    named = [Path(word).parent for word in argv[1:] if word.startswith("/")]
    binds = [word for path in (*SYSTEM, *_installation(argv[0])) for word in ("--ro-bind-try", path, path)]
    binds += [word for path in dict.fromkeys((*readable, *named)) for word in ("--ro-bind", str(path), str(path))]
    private, own = (["--tmpfs", PRIVATE], []) if folder is None else ([], ["--bind", str(folder), str(folder)])
    processes = ["--proc", "/proc"] if proc else []
    rest = ["--dev", "/dev", *own, "--remount-ro", "/", "--chdir", str(folder or PRIVATE)]
    return [*NAMESPACES, *private, *binds, *processes, *rest, *argv]


def environment(folder: Path | None = None) -> dict[str, str]:
    """Return all that a confined program learns of this process's environment."""
    path = os.environ.get("PATH", "/usr/bin:/bin")
    return {"PATH": path, "TMPDIR": str(folder or PRIVATE), "HOME": str(folder or PRIVATE), "LANG": "C.UTF-8"}


def _installation(program: str) -> list[str]:
    """Return the folders that hold a program, a link to it followed; those of the system are visible anyway."""
    found = shutil.which(program)
    if found is None:
        return []
    prefixes = {str(Path(path).parent.parent) for path in (found, os.path.realpath(found))}
    return sorted(path for path in prefixes if path != "/" and not path.startswith(SYSTEM))
