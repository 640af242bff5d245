"""Toolchains: what turns a deployed network into firmware and figures. One file a vendor."""

BACKENDS = {
    "ai8x": "backends.ai8x.backend:Ai8xBackend",
    "c_qemu": "backends.c_qemu.backend:CQemuBackend",
    "executorch": "backends.venvs.executorch:ExecutorchBackend",
    "stedgeai": "backends.stedgeai.backend:StEdgeAiBackend",
    "vela": "backends.venvs.vela:VelaBackend",
}
