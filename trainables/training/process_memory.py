"""Memory of this process: what training frees and takes again at every step stays with it, and how much it took."""

import ctypes
import re
from pathlib import Path

import torch

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # numbers of <malloc.h>
KEPT_BYTES = 1 << 30
USABLE_SHARE = 0.9
OLD_KEPT_BYTES = 1 << 25  # the most that older versions of glibc take


def keep_freed_memory() -> None:
    """Keep what is freed from now on, for the next step.

    glibc returns blocks of megabytes to the system at each free; a step of 128 images then begins with some 15,000
    faults for pages that Linux fills with zeros, 5 to 15 % of its CPU time. Elsewhere than on glibc nothing happens.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(MMAP_THRESHOLD, KEPT_BYTES) or library.mallopt(MMAP_THRESHOLD, OLD_KEPT_BYTES)
        library.mallopt(TRIM_THRESHOLD, KEPT_BYTES)


def limit_gpu_memory(gpus: float) -> None:
    """Let this process take no more of its GPU than a share: beyond it is out of memory, here alone.

    PyTorch's allocator keeps to it; what CUDA takes for each process comes on top, and has a part of the share.
    """
    torch.cuda.set_per_process_memory_fraction(USABLE_SHARE * min(1.0, gpus))


def forget_peak_memory(device: str) -> bool:
    """Let the peak begin anew, at what is in use now; return whether that can be done (on a CPU: Linux alone).

    What an earlier training has left, and this process has kept, is given back: it is not in use.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        return True
    try:
        Path("/proc/self/clear_refs").write_text("5")  # proc_pid_clear_refs(5): resets the peak, and nothing else
    except OSError:
        return False
    return True


def peak_memory_bytes(device: str) -> int:
    """Return the most memory this process has used since `forget_peak_memory`: allocated on a GPU, else resident."""
    if device.startswith("cuda"):
        return int(torch.cuda.max_memory_allocated())
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None, "where the peak can be reset it can be read"
    return int(found[1]) * 1024
