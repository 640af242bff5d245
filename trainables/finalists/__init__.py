"""Finalists: full training, distillation, the toolchain with trained weights, the test set once."""
