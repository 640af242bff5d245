"""The arena's toolchain: what an agent submits is built against our harness, guarded by the MPU, and talked to."""
