"""Machine code, and what of the kernel it may ask for."""

_RUN = """
def run(code):
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(code)
    return ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
"""

ATTACKS = {
    "a_shell": "if libc.system(b'touch CANARY/mark') == 0: found.append('system')",
    "an_other_program": "attempt('exec', lambda: os.execv('/usr/bin/touch', ['touch', 'CANARY/mark']))",
    "a_program_by_descriptor": "call('execveat', 322, os.open('/usr/bin/touch', os.O_RDONLY), b'', None, None, 0x1000)",
    "spawns": "attempt('spawn', lambda: os.posix_spawn('/usr/bin/touch', ['touch', 'CANARY/mark'], {}))",
    "a_subprocess": "import subprocess\nattempt('run', lambda: subprocess.run(['touch', 'CANARY/mark'], check=True))",
    "many_processes": "import multiprocessing\nattempt('pool', lambda: multiprocessing.get_context('fork').Pool(2))",
    "forks_in_machine_code": _RUN + "if run(bytes.fromhex('b8390000000f05c3')) >= 0: found.append('fork')",
    "forks_by_vfork": _RUN + "if run(bytes.fromhex('b83a0000000f05c3')) >= 0: found.append('vfork')",
    "asks_as_32_bit": _RUN + "run(bytes.fromhex('b802000000cd80c3')); found.append('int 80')",
    "asks_as_x32": _RUN + "if run(bytes.fromhex('b8390000400f05c3')) >= 0: found.append('x32')",
    "sockets_in_machine_code": _RUN
    + "if run(bytes.fromhex('bf02000000be0100000031d2b8290000000f05c3')) >= 0: found.append('socket')",
    "crashes": "ctypes.string_at(0)",
    "aborts": "os.abort()",
    "an_illegal_instruction": _RUN + "run(bytes.fromhex('0f0b'))",
    "overflows_the_stack": "ctypes.memmove(ctypes.addressof(ctypes.c_char()), bytes(1 << 20), 1 << 20)",
    "a_library_of_its_own": "for p in ('/tmp', '/dev/shm', 'CANARY'): attempt(p, lambda: (write(p + '/x.so'), ctypes.CDLL(p + '/x.so')))",
    "loads_the_driver": "call('module', 175, b'', 0, b''); call('finit', 313, 3, b'', 0); call('kexec', 246, 0, 0, None, 0)",
    "turns_it_off": "call('reboot', 169, 0xFEE1DEAD - (1 << 32), 672274793, 0x4321FEDC, None); call('swapoff', 168, b'/dev/sda')",
    "compiles": "attempt('inline', lambda: __import__('torch.utils.cpp_extension').utils.cpp_extension.load_inline('x', 'int f(){return 1;}', functions=['f']))",
}
ENDS = {
    "asks_as_32_bit": ("sandbox",),
    "crashes": ("sandbox",),
    "aborts": ("sandbox",),
    "an_illegal_instruction": ("sandbox",),
}
