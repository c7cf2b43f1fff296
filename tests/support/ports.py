"""A port that a broker can come back to after a crash."""

from __future__ import annotations

import os
import random
import socket


def lasting_port() -> int:
    """Free, and below the range from which the system takes the ports of outgoing connections.

    In that range a client that knocks at a dead broker's port may be given that very port, and answer itself.
    """
    chooser = random.Random(os.urandom(8))
    while True:
        port = chooser.randrange(14_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
