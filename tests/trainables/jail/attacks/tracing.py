"""Debugging: other processes' memory, registers and files."""

ATTACKS = {
    "attaches": "for pid in (1, os.getppid()): call('attach', 101, 16, pid, 0, 0); call('seize', 101, 0x4206, pid, 0, 0)",
    "asks_to_be_traced": "call('traceme', 101, 0, 0, 0, 0)",
    "reads_the_server": """
vector = (ctypes.c_uint64 * 2)(ctypes.addressof(ctypes.create_string_buffer(64)), 64)
call('readv', 310, 1, vector, 1, (ctypes.c_uint64 * 2)(0x400000, 64), 1, 0)
call('writev', 311, 1, vector, 1, (ctypes.c_uint64 * 2)(0x400000, 64), 1, 0)
""",
    "compares_kernel_objects": "call('kcmp', 312, os.getpid(), 1, 0, 0, 0)",
    "watches_the_processor": "call('perf', 298, ctypes.create_string_buffer(128), -1, 0, -1, 0)",
    "loads_programs_into_the_kernel": "call('bpf', 321, 0, ctypes.create_string_buffer(128), 128)",
    "handles_page_faults": "call('userfaultfd', 323, 0); attempt('dev', lambda: os.open('/dev/userfaultfd', os.O_RDWR))",
    "loosens_its_filter": "call('strict', 317, 0, 0, None); call('prctl', 157, 22, 0, 0, 0, 0)",
    "advises_the_server": "file = libc.syscall(434, 1, 0); call('madvise', 440, file, (ctypes.c_uint64 * 2)(0, 4096), 1, 4, 0)",
    "moves_pages_of_the_server": "call('move', 279, 1, 1, (ctypes.c_uint64 * 1)(0x400000), (ctypes.c_int * 1)(0), (ctypes.c_int * 1)(), 2)",
}
