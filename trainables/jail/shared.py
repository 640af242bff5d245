"""Training data as sealed anonymous memory: a jail can map it, and the kernel refuses to write it, whoever asks.

A fresh copy for every training (0.08 CPU s for CIFAR-10): what a file carries beside its bytes, such as its offset,
times and extended attributes, is never what another candidate has left there.
"""

import fcntl
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class SharedArrays:
    """Arrays as files that are open for reading: `files` go into the jail, `about` says each one's type and shape.

    They hold memory, not disk, and are gone with this process however it ends.
    """

    def __init__(self, *arrays: NDArray[Any]) -> None:
        self.about = [(array.dtype.str, array.shape) for array in arrays]
        self.files: list[int] = []
        for array in map(np.ascontiguousarray, arrays):
            file = os.memfd_create("split", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            with open(file, "wb", closefd=False) as memory:
                memory.write(array.reshape(-1).view(np.uint8).data)
            os.fchmod(file, 0o444)
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
            self.files.append(os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC))
            os.close(file)

    def close(self) -> None:
        """Give the memory back, once no jail maps it any more."""
        for file in self.files:
            os.close(file)
        self.files = []
