"""One training: its steps, augmentation, rounding, checkpoints."""
