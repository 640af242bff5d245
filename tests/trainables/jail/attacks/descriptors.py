"""Open files: those of others, and what can be hung on one's own."""

ATTACKS = {
    "inherits_files": """
kinds = []
for file in range(3, 1024):
    try:
        kinds.append(stat.S_ISSOCK(os.fstat(file).st_mode))
    except OSError:
        pass
if kinds != [True]: found.append('files %s' % kinds)
""",
    "standard_streams": "for n in (0, 1, 2):\\n    if os.readlink('/proc/self/fd/%d' % n) != '/dev/null': found.append(str(n))".replace(
        "\\n", "\n"
    ),
    "attributes_of_a_file": """
for p in (torch.__file__, '/dev/null', '/'):
    attempt('set', lambda: os.setxattr(p, 'user.note', b'x')); attempt('list', lambda: os.listxattr(p))
""",
    "attributes_by_number": """
path, name = torch.__file__.encode(), b'user.note'
for number in (188, 189): call('setxattr', number, path, name, b'x', 1, 0)
with open(torch.__file__) as file:
    call('fsetxattr', 190, file.fileno(), name, b'x', 1, 0); call('flistxattr', 196, file.fileno(), None, 0)
call('setxattrat', 463, -100, path, 0, name, b'x' * 16, 16)
call('file_setattr', 469, -100, path, b'x' * 32, 32, 0)
""",
    "locks": """
with open(torch.__file__) as file:
    attempt('flock', lambda: fcntl.flock(file, fcntl.LOCK_SH)); attempt('lockf', lambda: fcntl.fcntl(file, 6, bytes(32)))
    attempt('ofd', lambda: fcntl.fcntl(file, 37, struct.pack('hhqqi4x', 0, 0, 0, 0, 0)))
""",
    "leases_and_hints": """
with open(torch.__file__) as file:
    for command in (1024, 1026, 1036, 1038, 10, 8):
        attempt(str(command), lambda: fcntl.fcntl(file, command, struct.pack('q', 1)))
""",
    "anonymous_files": "attempt('memfd', lambda: os.memfd_create('x')); call('memfd_secret', 447, 0)",
    "pipes": "attempt('pipe', os.pipe); call('pipe2', 293, (ctypes.c_int * 2)(), 0)",
    "files_of_the_server_by_pidfd": """
file = libc.syscall(434, 1, 0)
for n in range(8): call('pidfd_getfd', 438, file, n, 0)
""",
    "watches": "call('inotify', 294, 0); call('inotify', 253); call('fanotify', 300, 0, 0)",
    "many_files": """
files = []
try:
    while len(files) < 1000: files.append(os.open('/dev/null', os.O_RDONLY))
except OSError: pass
if len(files) > 64: found.append(str(len(files)))
for file in files: os.close(file)
""",
    "sends_files_out": """
channel = socket.socket(fileno=os.dup(3))
for _ in range(20): socket.send_fds(channel, [b'{"event": "note"}\\n'], [0, 1, 2])
""",
}
