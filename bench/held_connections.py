"""Connections that are there and do nothing: idle ones, and some that stop in the middle of what they began.

A program of its own (`python -m bench.held_connections`), so that it has its own limit of open handles:

    prints {"seconds": …} once all are open; for each line of its input it asks on every idle one and prints
    {"answered": …, "half_open": …}; at the end of its input it closes all
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import ssl
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

API_VERSIONS = 18
TIMEOUT_S = 120.0
# Beside the connections: files, pipes, libraries.
OTHER_HANDLES = 200
# No more than may wait to be accepted (socket.listen.backlog.size): others would come a second later.
_AT_A_TIME = 40
# A few thousand connections from one address use up its ports.
_HOSTS = [f"127.0.0.{number}" for number in range(2, 12)]
_QUESTION = struct.pack(">ihhih", 10, API_VERSIONS, 0, 1, -1)
# Half of a request of a megabyte.
_HALF_FRAME = struct.pack(">ihhih", 1 << 20, 0, 7, 1, -1) + bytes(500)


def allow_handles(count: int) -> None:
    """As many open handles as that, or a word about what to do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + OTHER_HANDLES
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise RuntimeError(f"{needed} handles are needed, and the limit is {hard}: raise it with `ulimit -Hn`")
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def half_handshake() -> bytes:
    """The first message of a TLS client, without the rest."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    sent = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    return sent.read()


class HeldConnections:
    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[socket.socket] = []
        self._half_open: list[socket.socket] = []

    def open_idle(self, count: int) -> None:
        """Each has asked something and has its answer, as a client that has nothing to do now."""
        for first in range(0, count, _AT_A_TIME):
            some = [self._connect(self._port) for _ in range(min(_AT_A_TIME, count - first))]
            self._idle += some
            if _answered(some) != len(some):
                raise RuntimeError(f"connections were closed after {len(self._idle)} had been opened")

    def open_half_frames(self, count: int) -> None:
        for _ in range(count):
            line = self._connect(self._port)
            line.sendall(_HALF_FRAME)
            self._half_open.append(line)

    def open_half_handshakes(self, tls_port: int, count: int) -> None:
        hello = half_handshake()
        for number in range(count):
            line = self._connect(tls_port)
            # Some wait for the broker's answer, some let the broker wait for the rest of theirs.
            line.sendall(hello if number % 2 else hello[: len(hello) // 2])
            self._half_open.append(line)

    def _connect(self, port: int) -> socket.socket:
        line = socket.socket()
        line.settimeout(TIMEOUT_S)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        line.bind((_HOSTS[(len(self._idle) + len(self._half_open)) % len(_HOSTS)], 0))
        line.connect(("127.0.0.1", port))
        return line

    def ask(self) -> int:
        """How many of the idle ones are answered."""
        return sum(_answered(self._idle[first : first + _AT_A_TIME]) for first in range(0, len(self._idle), _AT_A_TIME))

    def still_half_open(self) -> int:
        return sum(_is_open(line) for line in self._half_open)

    def close(self) -> None:
        for line in (*self._idle, *self._half_open):
            # Without a waiting state: the next round needs the ports.
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            line.close()
        self._idle, self._half_open = [], []


def _answered(lines: Sequence[socket.socket]) -> int:
    count = 0
    asked: list[socket.socket] = []
    for line in lines:
        with suppress(OSError):
            line.sendall(_QUESTION)
            asked.append(line)
    for line in asked:
        with suppress(OSError):
            size, correlation = struct.unpack(">ii", _receive(line, 8))
            _receive(line, size - 4)
            count += correlation == 1
    return count


def _receive(line: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = line.recv(size - len(received))
        if not piece:
            raise ConnectionResetError("closed by the broker")
        received += piece
    return received


def _is_open(line: socket.socket) -> bool:
    line.setblocking(False)
    try:
        while True:
            if not line.recv(1 << 16):
                return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.held_connections", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tls-port", type=int, default=0)
    parser.add_argument("--idle", type=int, default=0)
    parser.add_argument("--half-frames", type=int, default=0)
    parser.add_argument("--half-handshakes", type=int, default=0)
    options = parser.parse_args(arguments)
    allow_handles(options.idle + options.half_frames + options.half_handshakes)
    held = HeldConnections(options.port)
    began = time.monotonic()
    held.open_idle(options.idle)
    seconds = time.monotonic() - began
    held.open_half_frames(options.half_frames)
    held.open_half_handshakes(options.tls_port, options.half_handshakes)
    print(json.dumps({"seconds": seconds}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"answered": held.ask(), "half_open": held.still_half_open()}), flush=True)
    held.close()


if __name__ == "__main__":
    main()
