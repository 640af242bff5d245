"""Namespaces, mounts and identities."""

_KINDS = {"mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000,
          "net": 0x40000000, "time": 0x80}  # fmt: skip

ATTACKS = {f"unshares_{name}": f"call('{name}', 272, {flag})" for name, flag in _KINDS.items()} | {
    "enters_those_of_the_server": """
for name in os.listdir('/proc/self/ns'):
    attempt(name, lambda: libc.setns(os.open('/proc/1/ns/' + name, os.O_RDONLY), 0) and 1 / 0)
""",
    "clones_with_a_user_namespace": "call('clone', 56, 0x10000000 | 17, 0, 0, 0, 0)",
    "clones_anew": "call('clone3', 435, (ctypes.c_uint64 * 11)(0x10000000), 88)",
    "mounts": "call('mount', 165, b'proc', b'/dev/shm', b'proc', 0, 0); call('bind', 165, b'/', b'/dev/shm', b'', 4096, 0)",
    "mounts_anew": "call('fsopen', 430, b'tmpfs', 0); call('open_tree', 428, -100, b'/', 1); call('mount_setattr', 442, -100, b'/', 0, b'x' * 32, 32)",
    "remounts_for_writing": "call('remount', 165, b'/', b'/', b'', 32 | 4096, 0); call('umount', 166, b'/proc', 2)",
    "changes_root": "attempt('chroot', lambda: os.chroot('/usr')); call('pivot_root', 155, b'/', b'/')",
    "becomes_root": """
for change in (lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgid(0), lambda: os.setgroups([0])):
    attempt('root', change)
if os.getuid() == 0: found.append('root')
""",
    "takes_capabilities": """
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
call('capset', 126, header, data)
call('ambient', 157, 47, 2, 21, 0, 0)
with open('/proc/self/status') as file:
    if any(int(line.split()[1], 16) for line in file if line.startswith(('CapEff', 'CapPrm'))): found.append('caps')
""",
    "renames_the_host": "attempt('hostname', lambda: socket.sethostname('evil')); call('domain', 171, b'evil', 4)",
}
