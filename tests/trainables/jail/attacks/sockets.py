"""Networks: every family of sockets, and ways around `socket`."""

_FAMILIES = {
    "unix": 1, "inet": 2, "ax25": 3, "inet6": 10, "netlink": 16, "packet": 17, "rds": 21, "can": 29, "tipc": 30,
    "bluetooth": 31, "alg": 38, "nfc": 39, "vsock": 40, "kcm": 41, "qipcrtr": 42, "smc": 43, "xdp": 44, "mctp": 45,
}  # fmt: skip

ATTACKS = {
    f"family_{name}": f"for kind in range(1, 7): call('{name}', 41, {number}, kind, 0)"
    for name, number in _FAMILIES.items()
} | {
    "socket_pairs": "attempt('pair', socket.socketpair); call('pair', 53, 1, 1, 0, (ctypes.c_int * 2)())",
    "connects": "attempt('tcp', lambda: socket.create_connection(('1.1.1.1', 53), timeout=1))",
    "loopback": "for port in (22, 6379, 8265, 10001): attempt(str(port), lambda: socket.create_connection(('127.0.0.1', port), 1))",
    "names": "attempt('dns', lambda: socket.getaddrinfo('example.org', 80))",
    "the_channel_elsewhere": """
channel = socket.socket(fileno=os.dup(3))
attempt('connect', lambda: channel.connect(('127.0.0.1', 80))); attempt('bind', lambda: channel.bind('\\0abstract'))
attempt('accept', channel.accept)
""",
    "great_buffers": """
channel = socket.socket(fileno=os.dup(3))
for name in (7, 8, 32, 33):
    try: channel.setsockopt(socket.SOL_SOCKET, name, 1 << 30)
    except OSError: pass
if channel.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > 1 << 24: found.append('buffer')
""",
    "rings": "call('io_uring', 425, 8, ctypes.create_string_buffer(256)); call('aio', 206, 8, ctypes.byref(ctypes.c_ulong()))",
}
