"""Its own limits, and the server's."""

ATTACKS = {
    "raises_its_limits": """
for name in ('AS', 'CPU', 'FSIZE', 'NOFILE', 'NPROC', 'CORE', 'SIGPENDING', 'MSGQUEUE'):
    number = getattr(resource, 'RLIMIT_' + name)
    hard = resource.getrlimit(number)[1]
    if hard == resource.RLIM_INFINITY: found.append(name + ' has none')
    attempt(name, lambda: resource.setrlimit(number, (hard + 1, hard + 1)))
""",
    "changes_those_of_the_server": "for n in range(16): attempt(str(n), lambda: resource.prlimit(1, n, (1, 1)))",
    "reads_those_of_the_server": "call('prlimit', 302, 1, 7, None, ctypes.create_string_buffer(16))",
    "higher_priority": "attempt('nice', lambda: os.nice(-5)); attempt('setpriority', lambda: os.setpriority(os.PRIO_PROCESS, 0, -20))",
    "real_time": "attempt('fifo', lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))); call('deadline', 314, 0, ctypes.create_string_buffer(48), 0)",
    "slows_the_server": "attempt('renice', lambda: os.setpriority(os.PRIO_PROCESS, 1, 19)); call('ioprio', 251, 1, 1, 3 << 13)",
    "pins_the_server": "attempt('affinity', lambda: os.sched_setaffinity(1, {0}))",
    "pins_itself": "attempt('affinity', lambda: os.sched_setaffinity(0, {0}))",
    "ports": "call('iopl', 172, 3); call('ioperm', 173, 0, 1, 1)",
    "large_files": """
for p in ('/dev/shm', '/tmp', '/dev'): attempt(p, lambda: open(p + '/big', 'wb').write(bytes(1 << 20)))
""",
    "locks_memory": "attempt('mlock', lambda: libc.mlockall(3) and 1 / 0) if resource.getrlimit(resource.RLIMIT_AS)[1] < 0 else None",
}
