"""Toolchains: what turns a deployed network into firmware and figures. One file a vendor."""

from typing import Any

from automcu_ray import plugins

BACKENDS = {
    "c_qemu": "backends.c_qemu:CQemuBackend",
}


def load(name: str) -> Any:
    """Return the backend class of that name.

    Raises:
        ConfigError: no such backend; the nearest one is offered.
    """
    return plugins.load("backend", BACKENDS, name)
