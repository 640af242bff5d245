"""What /proc and /sys show of the machine and of the server."""

ATTACKS = {
    "environment_of_the_server": "attempt('environ', lambda: read('/proc/1/environ'))",
    "memory_of_the_server": """
for name in ('mem', 'maps', 'auxv', 'stack', 'syscall', 'pagemap'):
    attempt(name, lambda: read('/proc/1/' + name))
attempt('write', lambda: os.open('/proc/1/mem', os.O_RDWR))
""",
    "files_of_the_server": """
attempt('fd', lambda: os.listdir('/proc/1/fd')[0])
for name in ('cwd', 'root', 'exe'):
    attempt(name, lambda: os.readlink('/proc/1/' + name))
""",
    "memory_of_the_parent": "attempt('mem', lambda: os.open('/proc/%d/mem' % os.getppid(), os.O_RDWR))",
    "other_processes": "pids = [p for p in os.listdir('/proc') if p.isdigit()]\nif len(pids) > 2: found.append(str(pids))",
    "kernel_settings": """
for name in ('kernel/core_pattern', 'kernel/hostname', 'vm/drop_caches', 'kernel/yama/ptrace_scope', 'vm/panic_on_oom'):
    attempt(name, lambda: write('/proc/sys/' + name))
""",
    "magic_keys": "attempt('sysrq', lambda: write('/proc/sysrq-trigger'))",
    "spares_itself_from_the_oom_killer": """
def spare():
    with open('/proc/self/oom_score_adj', 'w') as file:
        file.write('-1000')
attempt('oom', spare)
""",
    "oom_score_of_the_server": "attempt('oom', lambda: open('/proc/1/oom_score_adj', 'w').write('1000'))",
    "identity_maps": "for name in ('uid_map', 'gid_map', 'setgroups', 'projid_map'): attempt(name, lambda: write('/proc/self/' + name))",
    "kernel_memory": "attempt('kcore', lambda: read('/proc/kcore'))",
    "kernel_addresses": """
with open('/proc/kallsyms') as file:
    if any(int(line.split()[0], 16) for line in file.read(4000).splitlines()[:20] if line.split()):
        found.append('addresses')
""",
    "kernel_log": "call('syslog', 103, 3, ctypes.create_string_buffer(4096), 4096); attempt('kmsg', lambda: read('/proc/kmsg'))",
    "keyrings": "attempt('keys', lambda: open('/proc/keys').read(100) or 1 / 0)",
    "writes_sysfs": "attempt('sys', lambda: write('/sys/devices/system/cpu/cpu0/online')); attempt('ls', lambda: os.listdir('/sys/class'))",
    "control_groups": "attempt('cgroup', lambda: os.listdir('/sys/fs/cgroup')[0])",
    "name_of_the_server": "attempt('comm', lambda: open('/proc/1/comm', 'w').write('evil'))",
}
