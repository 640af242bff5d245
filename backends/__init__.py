"""Toolchains: what turns a deployed network into firmware and figures. One file a vendor."""

BACKENDS = {
    "ai8x": "backends.ai8x.backend:Ai8xBackend",
    "board": "backends.measured.backend:BoardBackend",
    "c_qemu": "backends.c_qemu.backend:CQemuBackend",
    "executorch": "backends.venvs.executorch:ExecutorchBackend",
    "stedgeai": "backends.stedgeai.backend:StEdgeAiBackend",
    "vela": "backends.venvs.vela:VelaBackend",
}

# Devices of targets that have an accelerator: the toolchain whose bounds hold there, also where it is not asked.
ACCELERATORS = {
    "MAX78000": BACKENDS["ai8x"],
    "MAX78002": BACKENDS["ai8x"],
}
