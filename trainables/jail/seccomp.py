"""System calls that a network never needs, refused for good.

Processes, sockets, namespaces, debugging, priorities; what leaves a trace in a file or a kernel object that another
candidate could find (attributes, times, modes, locks); and what holds kernel memory that no limit counts.
"""

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
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "getxattr": (191, 8),
    "lgetxattr": (192, 9),
    "fgetxattr": (193, 10),
    "listxattr": (194, 11),
    "llistxattr": (195, 12),
    "flistxattr": (196, 13),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "getxattrat": (464, 464),
    "listxattrat": (465, 465),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "flock": (73, 32),
    "bind": (49, 200),  # the channel is a socket, too, and is connected already
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "connect": (42, 203),
    "socketpair": (53, 199),  # buffers of sockets, pipes and watches are the kernel's memory
    "pipe": (22, None),
    "pipe2": (293, 59),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "io_setup": (206, 0),
    "syslog": (103, 116),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "mount": (165, 40),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
}
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of the table, AUDIT_ARCH
_CLONE, _CLONE3 = (56, 220), (435, 435)
_PRLIMIT = (302, 261)  # it is how libc sets our own limits, and it sets those of others
_FCNTL = (72, 25)
_FCNTL_ALLOWED = (0, 1, 2, 3, 4, 1030)  # duplicates and flags: no locks, leases, hints, sizes of pipes
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000  # x86-64 kernels may take the same calls under these numbers
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _MACHINE_AT, _FIRST_AT, _SECOND_AT = 0, 4, 16, 24  # arguments: their lower halves
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
        (_EQUAL, 0, 2 + 2 * len(_FCNTL_ALLOWED), _FCNTL[column]),
        (_LOAD, 0, 0, _SECOND_AT),
        *(step for command in _FCNTL_ALLOWED for step in ((_EQUAL, 0, 1, command), (_RETURN, 0, 0, _ALLOW))),
        (_RETURN, 0, 0, refuse),
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
