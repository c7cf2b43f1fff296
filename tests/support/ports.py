"""Ports that a broker can come back to after a crash."""

from __future__ import annotations

import socket
from contextlib import suppress

from braidlog.local_cluster.zookeeper import lasting_ports


def lasting_port() -> int:
    return lasting_ports(1)[0]


def lasting_port_range(count: int) -> int:
    """The first of so many ports in a row."""
    while True:
        first = lasting_port()
        with suppress(OSError):
            for port in range(first + 1, first + count):
                socket.create_server(("127.0.0.1", port)).close()
            return first
