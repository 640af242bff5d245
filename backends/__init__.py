"""Toolchains: what turns a deployed network into firmware and figures. One file a vendor."""

BACKENDS = {
    "c_qemu": "backends.c_qemu:CQemuBackend",
}
