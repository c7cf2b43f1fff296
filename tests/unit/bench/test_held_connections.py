from __future__ import annotations

import resource
import socket
import struct
import threading

import pytest
from bench.held_connections import HeldConnections, allow_handles, half_handshake

from support.eventually import eventually


class Answering:
    """Answers whatever comes with a correlation id of 1, on as many connections as there are."""

    def __init__(self, most: int) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.server.getsockname()[1]
        self._most = most
        self.connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        for _ in range(self._most):
            line, _ = self.server.accept()
            self.connections.append(line)
            serving = threading.Thread(target=self._serve, args=(line,))
            self._threads.append(serving)
            serving.start()

    def _serve(self, line: socket.socket) -> None:
        while True:
            try:
                question = line.recv(4096)
            except OSError:
                return
            if not question:
                return
            if len(question) == 14:
                line.sendall(struct.pack(">iih", 6, 1, 0))

    def close(self) -> None:
        """All that were to come have come."""
        self._threads[0].join(60)
        self.server.close()
        for line in self.connections:
            line.close()
        for thread in self._threads[1:]:
            thread.join(60)


def test_idle_ones_are_asked_and_half_open_ones_are_counted() -> None:
    answering = Answering(7)
    held = HeldConnections(answering.port)
    try:
        held.open_idle(3)
        held.open_half_frames(2)
        held.open_half_handshakes(answering.port, 2)
        assert held.ask() == 3
        assert held.still_half_open() == 4
    finally:
        held.close()
        answering.close()


def test_those_that_the_broker_closed_are_not_counted() -> None:
    answering = Answering(3)
    held = HeldConnections(answering.port)
    try:
        held.open_idle(2)
        held.open_half_frames(1)
        # The last one has not been accepted for certain: nothing was asked on it.
        eventually(lambda: len(answering.connections) == 3)
        answering.connections[0].shutdown(socket.SHUT_RDWR)
        answering.connections[2].shutdown(socket.SHUT_RDWR)
        assert held.ask() == 1
        assert held.still_half_open() == 0
    finally:
        held.close()
        answering.close()


def test_the_limit_of_handles_is_raised_as_far_as_it_may_be() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        allow_handles(max(1, soft - 300))
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= soft
        if hard != resource.RLIM_INFINITY:
            with pytest.raises(RuntimeError, match="ulimit -Hn"):
                allow_handles(hard + 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_half_a_handshake_begins_as_tls_does() -> None:
    assert half_handshake()[:2] == b"\x16\x03"
