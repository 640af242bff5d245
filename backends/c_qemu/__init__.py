"""The open default: C with planned memory, GCC, the linker's verdict."""
