"""Boards: where firmware runs, emulated or on a desk."""

BOARDS = {
    "qemu": "backends.boards.qemu:QemuBoard",
}
