"""Files of the host: read, written, linked, mounted."""

ATTACKS = {
    "reads_accounts": "for p in ('/etc/passwd', '/etc/shadow', '/etc/sudoers'): attempt(p, lambda: read(p))",
    "reads_homes": """
for p in ('/root', '/home'):  # the interpreter's own folder may lie there
    attempt(p, lambda: [n for n in os.listdir(p) if not sys.base_prefix.startswith(p + '/' + n)][0])
""",
    "reads_keys": "for p in ('/root/.ssh/id_rsa', '/etc/ssh/ssh_host_ed25519_key'): attempt(p, lambda: read(p))",
    "reads_the_checkout": """
for p in ('pyproject.toml', 'tests/conftest.py', 'configs/default.yaml', 'backends/programs.py', '.git/HEAD'):
    attempt(p, lambda: read('CHECKOUT/' + p))
""",
    "reads_temporary_files": "for p in ('/tmp', '/var/tmp', '/run', '/var/log'): attempt(p, lambda: os.listdir(p)[0])",
    "reads_the_canary": "attempt('canary', lambda: os.listdir('CANARY'))",
    "climbs_by_dots": "attempt('dots', lambda: read('/usr/../../../../etc/shadow'))",
    "climbs_by_its_root": "attempt('root', lambda: read('/proc/self/root/../etc/shadow'))",
    "writes_everywhere": """
for p in ('/', '/usr', '/usr/lib', '/etc', '/dev', '/dev/shm', '/tmp', '/proc', 'CANARY', os.path.dirname(torch.__file__)):
    attempt(p, lambda: write(p + '/mark'))
""",
    "writes_its_own_packages": "attempt('torch', lambda: open(torch.__file__, 'a').write('evil'))",
    "removes_packages": "attempt('gone', lambda: os.unlink(torch.__file__)); attempt('away', lambda: os.rmdir('/usr/lib'))",
    "renames_packages": "attempt('moved', lambda: os.rename(torch.__file__, torch.__file__ + '.old'))",
    "links": """
for p in ('/dev/shm', '/tmp', '/', '/usr/lib'):
    attempt(p, lambda: os.symlink('/etc', p + '/mark'))
    attempt(p, lambda: os.link(torch.__file__, p + '/mark'))
""",
    "makes_nodes": """
for p in ('/dev', '/dev/shm', '/tmp', '/'):
    attempt(p, lambda: os.mkdir(p + '/mark'))
    attempt(p, lambda: os.mkfifo(p + '/mark'))
    attempt(p, lambda: os.mknod(p + '/mark', stat.S_IFBLK | 0o600, os.makedev(8, 0)))
""",
    "opens_devices": """
for p in ('mem', 'kmem', 'port', 'kmsg', 'sda', 'vda', 'nvme0n1', 'kvm', 'fuse', 'net/tun', 'loop-control', 'uinput'):
    attempt(p, lambda: os.open('/dev/' + p, os.O_RDWR))
""",
    "nameless_files": "for p in ('/', '/dev/shm', '/usr', '/dev'): attempt(p, lambda: os.open(p, os.O_TMPFILE | os.O_RDWR))",
    "truncates": "attempt('truncate', lambda: os.truncate(torch.__file__, 0))",
    "by_handle": "call('name_to_handle_at', 303, -100, b'/usr', None, None, 0); call('open_by_handle_at', 304, 3, None, 2)",
    "changes_modes": """
attempt('chmod', lambda: os.chmod(torch.__file__, 0o777))
attempt('chown', lambda: os.chown(torch.__file__, os.getuid(), -1))
attempt('utime', lambda: os.utime(torch.__file__))
""",
}
