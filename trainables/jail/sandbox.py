"""The command that runs the jail's server: under bubblewrap, seeing its interpreter and little else, or bare."""

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from automcu_ray.core.confinement import ALLOW, NAMESPACES, SYSTEM
from automcu_ray.core.errors import ToolMissingError
from automcu_ray.runtime.config import JailConfig
from backends.programs import run_program, scratch_folder

CODE = Path(__file__).resolve().parents[2]
PACKAGES = ("automcu_ray", "trainables")
HIDDEN = ("sklearn",)  # installed packages that hold data sets, with the labels of their test images
FIRST_UID = 1 << 30  # far above any account; each process that keeps a jail has its own
WRITABLE = "/agent"  # inside, where no installation lies
PROBE_S = 20


def require_sandbox(config: JailConfig) -> None:
    """Return if this machine can run the jail as configured.

    Raises:
        ToolMissingError: bubblewrap is missing or may not make namespaces; says what to do.
    """
    if config.mode == "none":
        return
    instead = "--set jail.mode=none runs generated code WITHOUT isolation, under limits of memory and time only"
    try:
        probe = run_program([*sandbox(gpu=False), "true"], timeout_s=PROBE_S, cwd=scratch_folder())
    except ToolMissingError as error:
        raise ToolMissingError(f"generated code needs a sandbox: {error} Or else {instead}.") from error
    if probe.returncode:
        told = " ".join(probe.stderr.split())[:200]
        raise ToolMissingError(
            f"generated code needs a sandbox, and bwrap may not make one here: {told}. Allow user namespaces "
            f"{ALLOW}. Or else {instead}."
        )


def server_command(config: JailConfig, module: str, arguments: Sequence[str], *, gpu: bool) -> list[str]:
    """Return the command that runs a module of ours inside, with an environment of its own."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(CODE),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
        "USER": "jail",  # the uid has no name, and torch asks for one
        "TORCHINDUCTOR_CACHE_DIR": "/dev/shm",  # torch wants this folder to exist; nothing is compiled
        "OMP_NUM_THREADS": "1",  # the server must have one thread when it forks; a child sets its own number
        "OPENBLAS_NUM_THREADS": "1",
    }
    if gpu and "CUDA_VISIBLE_DEVICES" in os.environ:
        environment["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"]
    prefix = sandbox(gpu=gpu) if config.mode == "bubblewrap" else []
    settings = [f"{key}={value}" for key, value in environment.items()]
    return [*prefix, "env", "-i", *settings, sys.executable, "-s", "-m", module, *arguments]


def sandbox(*, gpu: bool, writable: Path | None = None) -> list[str]:
    """Return the command up to the program it is to run.

    Nothing inside can be written but the folder `writable`, as `WRITABLE`. The program is process 1 of its own
    namespace: no signal from inside reaches it, and with it everything inside ends. Root gives up its identity
    inside, because the kernel exempts root from the limit on processes; anyone else needs a user namespace, and so
    does the root of a container that has too few identities.
    """
    mounts = [word for path in _readable() for word in ("--ro-bind-try", path, path)]
    if gpu:
        devices = sorted(str(path) for path in Path("/dev").glob("nvidia*"))
        mounts += [word for path in devices for word in ("--dev-bind-try", path, path)]
        mounts += ["--ro-bind-try", "/sys", "/sys"]
    specs = [importlib.util.find_spec(package) for package in HIDDEN]
    secret = [str(Path(spec.origin).parent) for spec in specs if spec is not None and spec.origin is not None]
    hidden = [word for path in secret for word in ("--perms", "0555", "--tmpfs", path, "--remount-ro", path)]
    above = {str(parent) for path in _readable() for parent in Path(path).parents if parent != Path("/")}
    folders = [
        word for path in sorted(above) for word in ("--perms", "0755", "--dir", path)
    ]  # bwrap's are root's alone
    number = FIRST_UID + os.getpid()
    is_root, uid = os.geteuid() == 0 and _exists(number), str(number)
    rights = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if is_root else ["--unshare-user", "--uid", uid]
    drop = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "--inh-caps=-all"] if is_root else []
    return [
        *(*NAMESPACES, "--hostname", "jail", *rights),
        *("--setenv", "PATH", "/usr/bin:/bin"),  # what starts inside is looked for there, wherever the user's leads
        *folders,
        *("--proc", "/proc", "--dev", "/dev"),
        *mounts,
        *hidden,
        *(("--bind", str(writable), WRITABLE) if writable else ()),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WRITABLE if writable else "/"),
        *drop,
    ]


def _exists(uid: int) -> bool:
    """Return whether this process's user namespace has an identity of this number: a rootless container's has few."""
    spans = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return any(int(first) <= uid < int(first) + int(count) for first, _, count in spans)


def _readable() -> list[str]:
    """Return what is visible inside: system libraries, the interpreter with its packages, our own two packages."""
    system = [*SYSTEM, "/sys/devices/system/cpu"]
    return [*system, *dict.fromkeys([sys.base_prefix, sys.prefix]), *(str(CODE / package) for package in PACKAGES)]
