"""Every resource, as much of it as there is."""

ATTACKS = {
    "memory": "hoard = []\nwhile True: hoard.append(bytearray(1 << 26))",
    "memory_of_torch": "hoard = []\nwhile True: hoard.append(torch.ones(1 << 24))",
    "one_great_tensor": "torch.ones(1 << 42)",
    "mappings": "hoard = []\nwhile True: hoard.append(mmap.mmap(-1, 1 << 26))",
    "a_failed_mapping": "mmap.mmap(-1, 1 << 45)",
    "memory_in_threads": """
def eat():
    hoard = []
    while True: hoard.append(bytearray(1 << 25))
for _ in range(8): threading.Thread(target=eat, daemon=True).start()
while True: time.sleep(0.1)
""",
    "small_objects": "hoard = []\nwhile True: hoard = [hoard, [0] * 100_000]",
    "unpacks": """
import zlib
data = zlib.compress(bytes(1 << 28), 9)
hoard = [zlib.decompress(data) for _ in range(1000)]
""",
    "forks": "while True:\n    try: os.fork()\n    except OSError: pass",
    "forks_once": "os.fork()",
    "threads": """
made = 0
try:
    while made < 10_000:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        made += 1
except RuntimeError: pass
if made > 64: found.append(str(made))
""",
    "loops": "while True: pass",
    "sleeps": "time.sleep(10_000)",
    "loops_in_threads": """
def spin():
    while True: pass
for _ in range(8): threading.Thread(target=spin, daemon=True).start()
spin()
""",
    "loops_in_c": "torch.ones(3000, 3000).matrix_power(1 << 30)",
    "backtracks": "import re\nre.match('(a*)*b', 'a' * 64)",
    "great_numbers": "x = 9 ** 9 ** 9",
    "recursion": "def f(): return f()\nsys.setrecursionlimit(1 << 30)\nf()",
    "deep_objects": "x = []\nfor _ in range(10_000_000): x = [x]\nrepr(x)",
    "timers": """
made, timer = 0, ctypes.c_void_p()
while made < 100_000 and libc.syscall(222, 1, None, ctypes.byref(timer)) == 0: made += 1
if made > 1000: found.append(str(made))
""",
    "event_files": """
made = 0
try:
    while made < 1000: os.eventfd(0); made += 1
except OSError: pass
if made > 64: found.append(str(made))
""",
    "locks": """
with open(torch.__file__) as file:
    for at in range(0, 1000, 2): attempt('lock', lambda: fcntl.fcntl(file, 6, struct.pack('hhqqi4x', 0, 0, at, 1, 0)))
""",
    "messages": 'channel = socket.socket(fileno=os.dup(3))\nwhile True: channel.sendall(b\'{"event": "note"}\\n\')',
    "a_line_without_end": "channel = socket.socket(fileno=os.dup(3))\nwhile True: channel.sendall(b'x' * 65536)",
    "floods_the_screen": "for _ in range(100_000): print('x' * 1000); sys.stderr.write('y' * 1000)",
    "deep_network": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*(nn.Linear(64, 64) for _ in range(20_000)))
    def forward(self, x): return self.body(x.flatten(1))[:, :10]
torch.nn.Linear.forward = lambda self, x: x + 1
""",
    "shared_memory": "call('shmget', 29, 0, 1 << 30, 0o1600); call('msgget', 68, 0, 0o1600); call('semget', 64, 0, 100, 0o1600)",
}
ENDS = {
    "memory": ("memory",),
    "memory_of_torch": ("memory",),
    "one_great_tensor": ("memory",),
    "mappings": ("memory",),
    "a_failed_mapping": ("memory",),
    "memory_in_threads": ("memory", "time", "sandbox", "schema"),  # where no thread can be started any more
    "small_objects": ("memory", "time"),
    "unpacks": ("memory", "time"),
    "forks": ("time",),
    "forks_once": ("sandbox",),
    "loops": ("time",),
    "sleeps": ("time",),
    "loops_in_threads": ("time", "schema"),
    "loops_in_c": ("time", "ok"),
    "backtracks": ("time",),
    "great_numbers": ("time", "memory"),
    "recursion": ("sandbox", "memory", "schema", "time"),
    "deep_objects": ("sandbox", "memory", "schema", "time"),
    "messages": ("sandbox",),
    "a_line_without_end": ("sandbox",),
}
