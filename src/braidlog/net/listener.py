"""Accepts connections on one address, within the limits, and closes the idle ones."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from braidlog.core.errors import UserError
from braidlog.core.types import Endpoint
from braidlog.net.channel import ANONYMOUS, FrameHandler
from braidlog.net.connection import Connection, ConnectionLimits, StreamSocket, Warm
from braidlog.net.connection_quotas import UNTIL_ROOM, ConnectionQuotas
from braidlog.net.round import Round

if TYPE_CHECKING:
    from braidlog.net.tls_socket import TlsAcceptor, TlsHandshake, TlsSocket

log = logging.getLogger("braidlog.net")

# Accepting pauses this long when the process has no descriptors left, instead of spinning.
_ACCEPT_PAUSE_S = 0.1
_ACCEPTS_A_ROUND = 64


def bind(endpoint: Endpoint, receive_buffer: int = -1) -> socket.socket:
    """A socket that owns the address but does not listen yet; a clear error when that cannot be had."""
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer > 0:
            # Before listen: accepted sockets inherit it, and the TCP window is agreed at the handshake.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.bind((endpoint.host, endpoint.port))
    except OSError as problem:
        sock.close()
        raise UserError(_bind_advice(endpoint, problem)) from problem
    sock.setblocking(False)
    return sock


def _bind_advice(endpoint: Endpoint, problem: OSError) -> str:
    where = f"{endpoint.host}:{endpoint.port}"
    if problem.errno == errno.EADDRINUSE:
        return (
            f"port {endpoint.port} on {endpoint.host} is taken by another program; "
            "stop it or choose another port with --listen HOST:PORT"
        )
    if problem.errno == errno.EADDRNOTAVAIL:
        return f"{endpoint.host} is not an address of this machine; set listeners to one that is, or to 0.0.0.0"
    if problem.errno == errno.EACCES:
        return f"no permission to listen on {where}; ports below 1024 need privileges, choose a higher one"
    return f"cannot listen on {where}: {problem.strerror}"


class Listener:
    def __init__(
        self,
        name: str,
        sock: socket.socket,
        handler: FrameHandler,
        round_: Round,
        loop: asyncio.AbstractEventLoop,
        quotas: ConnectionQuotas,
        limits: ConnectionLimits,
        warm: Warm,
        *,
        backlog: int = 50,
        send_buffer: int = -1,
        max_idle_s: float = 600.0,
        tls: TlsAcceptor | None = None,
        authenticate: Callable[[Connection], None] | None = None,
    ) -> None:
        """`authenticate` has a new connection ask who is there, where the listener wants to know."""
        self.name = name
        self._sock = sock
        self._handler = handler
        self._round = round_
        self._loop = loop
        self._quotas = quotas
        self._limits = limits
        self._warm = warm
        self._backlog = backlog
        self._send_buffer = send_buffer
        self._max_idle_s = max_idle_s
        self.tls = tls
        self._authenticate = authenticate
        # Connections that are not in TLS yet; a dict as an ordered set.
        self._handshakes: dict[int, TlsHandshake] = {}
        # Whose handshake failed, or that came too fast from their address, until they are closed.
        self._refused: dict[int, TlsSocket | socket.socket] = {}
        self._connections: dict[int, Connection] = {}
        self._accepting = False
        # Accepting goes on when another connection has left.
        self._waits_for_room = False
        quotas.on_room.append(self._room_made)
        quotas.on_excess.append(self._close_excess)
        self._timer: asyncio.TimerHandle | None = None
        self.accepted = 0
        self.closed_idle = 0

    @property
    def port(self) -> int:
        return int(self._sock.getsockname()[1])

    @property
    def connections(self) -> int:
        return len(self._connections) + len(self._handshakes)

    def start(self) -> None:
        """From here on clients can connect; the broker calls it when it can answer them."""
        self._sock.listen(self._backlog)
        self._accepting = True
        self._loop.add_reader(self._sock.fileno(), self._on_acceptable)
        self._schedule_sweep()

    def _on_acceptable(self) -> None:
        for _ in range(_ACCEPTS_A_ROUND):
            delay = self._quotas.delay_s(self.name)
            if delay:
                self._delay_accepting(delay)
                return
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                log.error(
                    "cannot accept connections on %s: %s; raise the open file limit (ulimit -n)", self.name, problem
                )
                self._delay_accepting(_ACCEPT_PAUSE_S)
                return
            self._admit(sock, str(address[0]))

    def _delay_accepting(self, delay_s: float) -> None:
        """Connections wait in the kernel's queue meanwhile, so many as socket.listen.backlog.size says."""
        self._loop.remove_reader(self._sock.fileno())
        self._accepting = False
        if delay_s == UNTIL_ROOM:
            self._waits_for_room = True
            log.info("%s accepts no more connections until others leave: max.connections is reached", self.name)
        else:
            self._loop.call_later(delay_s, self._resume_accepting)

    def _room_made(self) -> None:
        if self._waits_for_room and self._quotas.delay_s(self.name) != UNTIL_ROOM:
            self._waits_for_room = False
            self._resume_accepting()

    def _resume_accepting(self) -> None:
        if not self._accepting and self._sock.fileno() >= 0:
            self._accepting = True
            self._loop.add_reader(self._sock.fileno(), self._on_acceptable)

    def _admit(self, sock: socket.socket, host: str) -> None:
        delay = self._quotas.host_delay_s(self.name, host)
        if delay > 0:
            # It looks like a slow accept to the client, which tries again no sooner.
            fd = sock.fileno()
            self._refused[fd] = sock
            self._loop.call_later(delay, self._close_refused, fd)
            return
        if not self._quotas.admit(self.name, host):
            log.info("refused a connection from %s: it has as many as max.connections.per.ip allows", host)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._send_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
        self.accepted += 1
        if self.tls is None:
            self._serve(sock, host)
        else:
            self._shake_hands(self.tls, sock, host)

    def _shake_hands(self, tls: TlsAcceptor, sock: socket.socket, host: str) -> None:
        fd = sock.fileno()

        def ended(problem: OSError | None) -> None:
            handshake = self._handshakes.pop(fd)
            secured = handshake.sock
            principal = tls.identify(secured, host) if problem is None else None
            if principal is not None:
                connection = self._serve(secured, host, principal, encrypts=True)
                # Requests may have come with the end of the handshake.
                connection.on_readable()
                return
            self._quotas.release(self.name, host)
            delay = tls.failure_delay_s if problem is None else tls.delay_s(host, problem)
            if delay > 0:
                self._refused[fd] = secured
                self._loop.call_later(delay, self._close_refused, fd)
            elif not handshake.in_thread:
                secured.close()

        self._handshakes[fd] = tls.shake_hands(sock, self._loop, ended)

    def _close_refused(self, fd: int) -> None:
        refused = self._refused.pop(fd, None)
        if refused is not None:
            refused.close()

    def _serve(
        self, sock: StreamSocket, host: str, principal: str = ANONYMOUS, *, encrypts: bool = False
    ) -> Connection:
        connection = Connection(
            sock,
            self._handler,
            self._round,
            self._loop,
            self._limits,
            self._warm,
            self.name,
            host,
            self._on_close,
            encrypts,
        )
        connection.principal = principal
        self._connections[connection.fd] = connection
        if self._authenticate is not None:
            self._authenticate(connection)
        connection.start()
        return connection

    def _on_close(self, connection: Connection, reason: str) -> None:
        log.debug("connection from %s closed: %s", connection.peer_host, reason)
        del self._connections[connection.fd]
        self._quotas.release(self.name, connection.peer_host)

    def _close_excess(self) -> None:
        """The broker has more connections than it may: those that were quiet for longest go."""
        if not self._quotas.is_exceeded(self.name):
            return
        quietest = sorted(self._connections.values(), key=lambda each: (each.open_exchanges > 0, each.last_active))
        for connection in quietest:
            if not self._quotas.is_exceeded(self.name):
                return
            connection.close("there are more connections than max.connections allows")

    # Idle connections

    def _schedule_sweep(self) -> None:
        if self._max_idle_s <= 0:
            return  # connections are kept for ever
        self._timer = self._loop.call_later(max(self._max_idle_s / 10, 0.05), self._sweep)

    def _sweep(self) -> None:
        oldest = time.monotonic() - self._max_idle_s
        for connection in list(self._connections.values()):
            if connection.last_active < oldest and (
                not connection.waits_for_broker or connection.was_left_while_throttled()
            ):
                self.closed_idle += 1
                connection.close("idle longer than connections.max.idle.ms")
        self._schedule_sweep()

    # Stopping

    def stop_accepting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._sock.fileno())
        self._sock.close()

    def busy(self) -> int:
        """How many connections still wait for a reply."""
        return sum(1 for connection in self._connections.values() if connection.open_exchanges)

    def close(self) -> None:
        self._quotas.on_room.remove(self._room_made)
        self._quotas.on_excess.remove(self._close_excess)
        for handshake in list(self._handshakes.values()):
            handshake.cancel()
        for fd in list(self._refused):
            self._close_refused(fd)
        for connection in list(self._connections.values()):
            connection.close("the broker is stopping")
