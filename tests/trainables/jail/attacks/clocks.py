"""Time: the machine's, and more of it than is due."""

ATTACKS = {
    "sets_the_clock": "attempt('settime', lambda: time.clock_settime(time.CLOCK_REALTIME, 0)); call('settimeofday', 164, (ctypes.c_long * 2)(), None)",
    "bends_the_clock": "call('adjtimex', 159, (ctypes.c_int * 64)(*[1] * 64)); call('adjtime', 305, 0, (ctypes.c_int * 64)(*[1] * 64))",
    "wakes_the_machine": "call('alarm', 283, 9, 0)",
    "sleeps_in_forward": "class Slow(nn.Module):\n    def __init__(self): time.sleep(10_000)\nSlow()",
    "ignores_the_end_of_its_time": "signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
    "gives_itself_time": "resource.setrlimit(resource.RLIMIT_CPU, (1 << 30, resource.getrlimit(resource.RLIMIT_CPU)[1]))",
    "sleeps_when_it_is_told": "import builtins\nclass Words(Exception):\n    def __str__(self): time.sleep(10_000)\nraise Words()",
    "sleeps_at_its_end": "import atexit\natexit.register(time.sleep, 10_000)\nraise SystemExit",
    "hangs_up_and_stays": "os.close(3)\nwhile True: time.sleep(1)",
}
ENDS = {
    "sleeps_in_forward": ("time",),
    "ignores_the_end_of_its_time": ("time",),
    "sleeps_when_it_is_told": ("time",),
    "hangs_up_and_stays": ("time", "sandbox"),
}
