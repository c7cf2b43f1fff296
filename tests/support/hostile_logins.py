"""What is sent before a login by who will not log in: bytes that are no request, and halves of handshakes."""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from random import Random

from braidlog.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from braidlog.wire.generated.sasl_handshake import SaslHandshakeRequest
from support.attacks.target import frame
from support.hostile import every_version, framed, header

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# Connections that stay, with half of something sent, until as many newer ones do.
LOITERING = 300
# Whoever is not answered by then goes on to the next.
PATIENCE_S = 0.5


def client_hello(newest: ssl.TLSVersion) -> bytes:
    """The first message of a TLS client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = newest
    sent = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    return sent.read()


def plain_login(user: str, password: str) -> bytes:
    """A sound login, whose answers need not be waited for."""
    return frame("SaslHandshake", 1, SaslHandshakeRequest(mechanism="PLAIN")) + frame(
        "SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())
    )


class HostileLogins:
    """Draws what to send, from a seed; what stays open afterwards is marked by its kind's name: `half_…`."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._hellos = [client_hello(version) for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)]
        self.of_sasl: tuple[Callable[[], bytes], ...] = (
            self.noise,
            self.impossible_length,
            self.half_frame,
            self.request_before_login,
            self.unknown_mechanism,
            self.wrong_tokens,
            self.half_scram,
            self.wrong_token_of_old_clients,
            self.endless_api_versions,
        )
        self.of_tls: tuple[Callable[[], bytes], ...] = (
            self.noise,
            self.request_before_login,
            self.half_hello,
            self.half_handshake,
            self.changed_hello,
            self.hello_and_noise,
        )

    # In clear text

    def noise(self) -> bytes:
        return self.random.randbytes(self.random.randint(1, 300))

    def impossible_length(self) -> bytes:
        length = self.random.choice((-1, 0, -(2**31), 2**31 - 1, 524_289, 104_857_600))
        return struct.pack(">i", length) + self.noise()

    def half_frame(self) -> bytes:
        return struct.pack(">i", 524_288) + bytes(self.random.randint(0, 2000))

    def request_before_login(self) -> bytes:
        """Any api but the three that are for it."""
        key, version = self.random.choice([each for each in every_version() if each[0] not in (17, 18, 36)])
        return framed(header(key, version) + self.noise())

    def unknown_mechanism(self) -> bytes:
        name = self.random.choice(("", "plain", "GSSAPI", "X" * 1000, "\0"))
        return frame("SaslHandshake", 1, SaslHandshakeRequest(mechanism=name))

    def wrong_tokens(self) -> bytes:
        tokens = (self.random.choice((b"", b"\0\0", b"\0alice\0wr0ng", self.noise())) for _ in range(3))
        return self._handshake() + b"".join(self._token(token) for token in tokens)

    def half_scram(self) -> bytes:
        """The first message of a sound exchange; the second never comes."""
        mechanism = self.random.choice(MECHANISMS[1:])
        user = self.random.choice(("alice", "mallory", "u" * 1000))
        return self._handshake(mechanism) + self._token(f"n,,n={user},r={self.random.random()}".encode())

    def wrong_token_of_old_clients(self) -> bytes:
        return frame("SaslHandshake", 0, SaslHandshakeRequest(mechanism="PLAIN")) + framed(self.noise())

    def endless_api_versions(self) -> bytes:
        return framed(header(18, 0)) * self.random.randint(1, 40)

    def _handshake(self, mechanism: str | None = None) -> bytes:
        name = mechanism or self.random.choice(MECHANISMS)
        return frame("SaslHandshake", 1, SaslHandshakeRequest(mechanism=name))

    def _token(self, token: bytes) -> bytes:
        return frame("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=token))

    # In TLS

    def half_hello(self) -> bytes:
        hello = self.random.choice(self._hellos)
        return hello[: self.random.randrange(1, len(hello))]

    def half_handshake(self) -> bytes:
        """A sound first message; the broker has done its costly part, and waits."""
        return self.random.choice(self._hellos)

    def changed_hello(self) -> bytes:
        hello = bytearray(self.random.choice(self._hellos))
        for _ in range(self.random.randint(1, 8)):
            hello[self.random.randrange(len(hello))] = self.random.randrange(256)
        return bytes(hello)

    def hello_and_noise(self) -> bytes:
        return self.random.choice(self._hellos) + b"\x16\x03\x03" + struct.pack(">H", 100) + self.random.randbytes(100)


class LoginSender:
    """One connection for each exchange, some at a time; half of them to either port."""

    def __init__(self, sasl_port: int, tls_port: int, hostile: HostileLogins, lines: int = 16) -> None:
        self._ports = ((sasl_port, hostile.of_sasl), (tls_port, hostile.of_tls))
        self._random = hostile.random
        self._most_lines = lines
        self._selector = selectors.DefaultSelector()
        self._loitering: deque[socket.socket] = deque()
        self._hosts = [f"127.0.0.{number}" for number in range(2, 10)]
        self.sent: Counter[str] = Counter()
        self.answered = 0
        self.closed_by_broker = 0
        self.given_up = 0

    @property
    def exchanges(self) -> int:
        return self.sent.total()

    def run(self, exchanges: int) -> None:
        end = self.exchanges + exchanges
        lines = self._selector.get_map()
        while self.exchanges < end or lines:
            now = time.monotonic()
            while len(lines) < self._most_lines and self.exchanges < end:
                self._begin(now)
            for key, _ in self._selector.select(0.05):
                self._receive(key.fileobj)  # type: ignore[arg-type]
            for key in [key for key in lines.values() if key.data < now]:
                self.given_up += 1
                self._end(key.fileobj)  # type: ignore[arg-type]

    def _begin(self, now: float) -> None:
        port, kinds = self._ports[self.exchanges % 2]
        kind = self._random.choice(kinds)
        line = socket.socket()
        # Many addresses of this machine, and no waiting states: thousands of connections a second need ports.
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line.bind((self._hosts[self.exchanges % len(self._hosts)], 0))
        line.connect(("127.0.0.1", port))
        self.sent[kind.__name__] += 1
        with suppress(ConnectionResetError, BrokenPipeError):
            line.sendall(kind())
        line.setblocking(False)
        if kind.__name__.startswith("half_"):
            self._loitering.append(line)
            if len(self._loitering) > LOITERING:
                self._loitering.popleft().close()
        else:
            self._selector.register(line, selectors.EVENT_READ, now + PATIENCE_S)

    def _receive(self, line: socket.socket) -> None:
        try:
            data = line.recv(1 << 16)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if data:
            self.answered += 1
        else:
            self.closed_by_broker += 1
        self._end(line)

    def _end(self, line: socket.socket) -> None:
        self._selector.unregister(line)
        line.close()

    def close(self) -> None:
        for line in self._loitering:
            line.close()
        self._selector.close()
