"""The open default: C by emx-onnx-cgen, planned memory, GCC, the linker's verdict."""
