"""Tests reach this machine and no other."""

import socket

import pytest


def test_nothing_beyond_this_machine_is_connected_to() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5):
        pass
    with pytest.raises(RuntimeError, match=r"without a network: 198\.51\.100\.1 is beyond"):
        socket.create_connection(("198.51.100.1", 80), 5)
