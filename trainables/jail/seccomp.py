"""System calls that a network never needs, refused for good: processes, sockets, namespaces, debugging, priorities."""

import ctypes
import errno
import os
import platform
import struct

# (x86-64, AArch64) numbers, from the kernel's arch/x86/entry/syscalls/syscall_64.tbl and uapi/asm-generic/unistd.h
_REFUSED = {
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "unshare": (272, 97),
    "setns": (308, 268),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "sched_setaffinity": (203, 122),  # these six reach other processes of the user: the server is one
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "socket": (41, 198),  # AF_VSOCK knows no network namespace
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
}
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of the table, AUDIT_ARCH
_CLONE, _CLONE3 = (56, 220), (435, 435)
_PRLIMIT = (302, 261)  # it is how libc sets our own limits, and it sets those of others
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000  # x86-64 kernels may take the same calls under these numbers
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _MACHINE_AT, _FIRST_AT = 0, 4, 16  # the first argument: its lower half
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER_MODE = 38, 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def refuse_dangerous_calls() -> bool:
    """Return whether this thread, and every later one, is now under the filter; False on an unknown processor.

    Threads may still be made, processes not: a refused call fails with EPERM and the candidate with it. Call it in a
    process of one thread.

    Raises:
        OSError: the kernel takes no filter.
    """
    if platform.machine() not in _MACHINES:
        return False
    column, machine = _MACHINES[platform.machine()]
    code = ctypes.create_string_buffer(_filter(column, machine))
    program = _Program((len(code) - 1) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program)):
        number = ctypes.get_errno()
        raise OSError(number, f"the kernel takes no seccomp filter: {os.strerror(number)}")
    return True


def _filter(column: int, machine: int) -> bytes:
    """Return classic BPF: a jump says how many instructions to skip if true, if false."""
    refuse, absent = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    numbers = [number for row in _REFUSED.values() if (number := row[column]) is not None]
    steps = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_EQUAL, 1, 0, machine),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, refuse),
        (_EQUAL, 0, 1, _CLONE3[column]),
        (_RETURN, 0, 0, absent),  # its flags are behind a pointer; told that it is absent, libc takes clone
    ]
    for number in numbers:
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, refuse)]
    steps += [
        (_EQUAL, 0, 3, _PRLIMIT[column]),
        (_LOAD, 0, 0, _FIRST_AT),
        (_EQUAL, 5, 0, 0),  # process 0 is the caller
        (_RETURN, 0, 0, refuse),
        (_EQUAL, 0, 3, _CLONE[column]),
        (_LOAD, 0, 0, _FIRST_AT),
        (_ANY_BIT, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, refuse),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
