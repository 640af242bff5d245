"""Marks for the next candidate: each program looks for its own, then leaves it; all are run twice."""

_FILE = """
try:
    read({path!r}); found.append('mark')
except OSError: pass
try:
    write({path!r})
except OSError: pass
"""
_PATHS = {
    "temporary": "/tmp/mark",
    "shared_memory": "/dev/shm/mark",
    "root": "/mark",
    "device": "/dev/mark",
    "runtime": "/run/mark",
}

ATTACKS = {f"file_{name}": _FILE.format(path=path) for name, path in _PATHS.items()} | {
    "module": "if hasattr(torch, 'mark'): found.append('mark')\ntorch.mark = 1",
    "builtin": "import builtins\nif hasattr(builtins, 'mark'): found.append('mark')\nbuiltins.mark = 1",
    "environment": "if 'MARK' in os.environ: found.append('mark')\nos.environ['MARK'] = '1'; libc.setenv(b'MARK', b'1', 1)",
    "patched_exporter": """
from trainables.jail import candidate
if candidate.trace.__name__ == 'lie': found.append('mark')
def lie(network, shape, training=False): return b'x'
candidate.trace = lie
""",
    "attribute": """
try:
    if os.getxattr(torch.__file__, 'user.mark'): found.append('mark')
except OSError: pass
attempt('set', lambda: os.setxattr(torch.__file__, 'user.mark', b'1'))
""",
    "time_of_a_file": "if os.stat(torch.__file__).st_mtime == 86400: found.append('mark')\nattempt('utime', lambda: os.utime(torch.__file__, (86400, 86400)))",
    "keyring": "call('add_key', 248, b'user', b'mark', b'1', 1, -4); call('request', 249, b'user', b'mark', None, -4); call('keyctl', 250, 0, -3, 1)",
    "message_queue": "call('mq_open', 240, b'mark', 0o102, 0o600, None); call('msgget', 68, 77, 0o1600)",
    "shared_segment": "call('shmget', 29, 77, 4096, 0o1600)",
    "hostname": "if os.uname().nodename != 'jail': found.append(os.uname().nodename)\nlibc.sethostname(b'mark', 4)",
    "umask": "if os.umask(0o123) == 0o123: found.append('mark')",
    "priority": "if os.getpriority(os.PRIO_PROCESS, 0) == 19: found.append('mark')\nattempt('nice', lambda: os.setpriority(os.PRIO_PROCESS, 0, 19))",
    "limits_of_the_parent": "if resource.getrlimit(resource.RLIMIT_STACK)[0] == 12345 * 4096: found.append('mark')\nresource.setrlimit(resource.RLIMIT_STACK, (12345 * 4096, -1))",
    "a_thread_that_stays": "threading.Thread(target=lambda: (time.sleep(30), os._exit(0))).start()",
    "at_exit": "import atexit\natexit.register(lambda: write('CANARY/mark'))",
    "a_daemon": "if os.fork() == 0:\n    os.setsid()\n    while True: time.sleep(1)",
    "random_state": "if torch.initial_seed() == 4711: found.append('mark')\ntorch.manual_seed(4711)",
    "address_space": """
with open('/proc/self/maps') as file:
    if '3ff000000000' in file.read(): found.append('mark')
libc.mmap.restype = ctypes.c_void_p
libc.mmap(ctypes.c_void_p(0x3FF000000000), ctypes.c_size_t(4096), 3, 0x32, -1, ctypes.c_size_t(0))
""",
}
