"""Signals to the server, to neighbours, to itself."""

ATTACKS = {
    "kills_the_server": "for n in (1, 2, 3, 6, 9, 11, 15, 19, 31, 40):\n    try: os.kill(1, n)\n    except OSError: pass",
    "kills_the_parent": "for n in (2, 9, 15, 19):\n    try: os.kill(os.getppid(), n)\n    except OSError: pass",
    "kills_everybody": "os.kill(-1, 9)",
    "kills_its_group": "os.killpg(0, 15)",
    "kills_by_descriptor": "file = libc.syscall(434, 1, 0)\nfor n in (9, 19): libc.syscall(424, file, n, None, 0)",
    "kills_by_thread": "for n in (9, 19): libc.syscall(234, 1, 1, n)",
    "queues_signals": "info = ctypes.create_string_buffer(128)\nfor _ in range(100_000): libc.syscall(129, os.getpid(), 34, info)",
    "lets_the_channel_signal": "for command in (8, 10): attempt(str(command), lambda: fcntl.fcntl(3, command, 1))",
    "dies_of_each": "os.kill(os.getpid(), signal.SIGBUS)",
    "stops_itself": "os.kill(os.getpid(), signal.SIGSTOP)",
    "ignores_all": """
for n in set(range(1, 65)) - {9, 19, 32, 33}:
    try: signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
""",
    "leaves_its_session": "attempt('setsid', os.setsid)",
}
ENDS = {"stops_itself": ("time",), "ignores_all": ("time",), "dies_of_each": ("sandbox",)}
