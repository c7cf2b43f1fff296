"""TLS on a socket pair: the peer is Python's own `ssl`, in a thread."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from braidlog.core.errors import BraidlogError
from braidlog.core.slices import FileSlice
from braidlog.core.types import Endpoint
from braidlog.net.channel import ANONYMOUS, Channel, FrameHandler
from braidlog.net.connection import ConnectionLimits
from braidlog.net.connection_quotas import ConnectionQuotas
from braidlog.net.exchange import Exchange, Part
from braidlog.net.fair_queue import FairQueue
from braidlog.net.listener import Listener, bind
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from braidlog.net.tls_context import TlsOptions, server_context
from braidlog.net.tls_socket import TlsAcceptor, TlsSocket, reason_of
from support.certificates import Authority, Identity
from support.connections import frame
from support.exchanges import reply


class Certificates:
    def __init__(self, place: Path) -> None:
        self.authority = Authority(place)
        self.server = self.authority.issue("localhost", "localhost", "127.0.0.1")
        self.client = self.authority.issue("alice")

    def server_context(self, client_auth: str = "none") -> ssl.SSLContext:
        options = TlsOptions(
            protocols=("TLSv1.2", "TLSv1.3"),
            newest_protocol="TLSv1.3",
            is_newest_given=False,
            cipher_suites=(),
            endpoint_identification="",
            truststore_location=str(self.authority.certificate),
            keystore_location=str(self.server.bundle),
        )
        return server_context(options, client_auth)

    def client_context(self, identity: Identity | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        if identity is not None:
            context.load_cert_chain(identity.bundle)
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Files(FrameHandler):
    """Echoes, or answers with the file whose name it is given."""

    def __init__(self) -> None:
        self.principals: list[str] = []

    def handle_frame(self, channel: Channel, buffer: bytes, start: int, end: int) -> None:
        self.principals.append(channel.principal)
        exchange = Exchange(channel, 0, 0, 1, None, 0.0)
        channel.begin(exchange)
        body = buffer[start:end]
        parts: list[Part] = [body]
        if body.startswith(b"file:"):
            parts = [b"head", FileSlice(OpenFile(body[5:].decode()), 0, os.path.getsize(body[5:])), b"tail"]
        reply(exchange, parts)


class OpenFile:
    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 - closed with the process's tests

    def fileno(self) -> int:
        return self._file.fileno()

    def pread(self, size: int, position: int) -> bytes:
        return os.pread(self._file.fileno(), size, position)

    def __del__(self) -> None:
        self._file.close()


class Running:
    def __init__(self, listener: Listener, tls: TlsAcceptor, handler: Files, quotas: ConnectionQuotas) -> None:
        self.listener = listener
        self.tls = tls
        self.handler = handler
        self.quotas = quotas


@asynccontextmanager
async def listening(
    context: ssl.SSLContext,
    principal_of: Callable[[Mapping[str, Any]], str] = lambda certificate: ANONYMOUS,
    timeout_s: float = 30.0,
) -> AsyncIterator[Running]:
    loop = asyncio.get_running_loop()

    def run(work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        future = loop.run_in_executor(None, work)
        future.add_done_callback(lambda each: done(each.exception()))  # type: ignore[arg-type]

    tls = TlsAcceptor("SSL", context, principal_of, run, 0.05, timeout_s)
    quotas = ConnectionQuotas()
    quotas.add_listener("SSL")
    handler = Files()
    limits = ConnectionLimits(8 << 20, MemoryBudget(1 << 30), FairQueue(loop))
    listener = Listener(
        "SSL", bind(Endpoint("SSL", "127.0.0.1", 0)), handler, Round(loop), loop, quotas, limits,
        lambda part, done: loop.call_soon(done), tls=tls,
    )  # fmt: skip
    listener.start()
    try:
        yield Running(listener, tls, handler, quotas)
    finally:
        listener.stop_accepting()
        listener.close()


@contextmanager
def connected(port: int, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        yield secured


def exchanged(port: int, context: ssl.SSLContext, message: bytes, expected: int) -> bytes:
    """What comes back, so many bytes of it; sent and read in turns, so that neither side waits for the other.

    Not in two threads: OpenSSL's connections are not made for that.
    """
    with connected(port, context) as secured:
        secured.setblocking(False)
        left = memoryview(message)
        got = bytearray()
        while len(got) < expected:
            select.select([secured], [secured] if left else [], [], 1.0)
            try:
                left = left[secured.send(left[: 1 << 14]) :] if left else left
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            except OSError:
                # Who is refused cannot send; reading tells why.
                left = memoryview(b"")
            try:
                piece = secured.recv(1 << 16)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                continue
            if not piece:
                break
            got += piece
        return bytes(got)


def test_requests_and_answers_of_any_size(certificates: Certificates, tmp_path: Path) -> None:
    large = os.urandom(3_000_000)
    path = tmp_path / "segment"
    path.write_bytes(large)

    async def main() -> None:
        async with listening(certificates.server_context()) as running:
            port = running.listener.port
            context = certificates.client_context()
            small = b"".join(frame(b"%d" % each) for each in range(1, 100))
            bodies = b"".join(b"%d" % each for each in range(1, 100))
            assert await asyncio.to_thread(exchanged, port, context, small, len(bodies)) == bodies
            assert await asyncio.to_thread(exchanged, port, context, frame(large), len(large)) == large
            asked = frame(b"file:" + str(path).encode())
            expected = b"head" + large + b"tail"
            assert await asyncio.to_thread(exchanged, port, context, asked * 3, 3 * len(expected)) == expected * 3
            assert running.tls.succeeded == 3
            assert set(running.handler.principals) == {ANONYMOUS}

    asyncio.run(asyncio.wait_for(main(), 120))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_clients_certificate_names_it(certificates: Certificates, version: ssl.TLSVersion) -> None:
    def named(certificate: Mapping[str, Any]) -> str:
        return str(certificate["subject"][0][0][1])

    async def main() -> None:
        async with listening(certificates.server_context("required"), named) as running:
            context = certificates.client_context(certificates.client)
            context.minimum_version = context.maximum_version = version
            assert await asyncio.to_thread(exchanged, running.listener.port, context, frame(b"hi"), 2) == b"hi"
            assert running.handler.principals == ["alice"]

    asyncio.run(asyncio.wait_for(main(), 60))


def refusal(port: int, context: ssl.SSLContext) -> str:
    """What the client sees, be it in the handshake or, with TLS 1.3, after it."""
    try:
        exchanged(port, context, frame(b"hi"), 2)
    except OSError as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_who_is_refused_is_told_by_an_alert(
    certificates: Certificates, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    async def main() -> None:
        async with listening(certificates.server_context("required")) as running:
            context = certificates.client_context()
            context.minimum_version = context.maximum_version = version
            assert "alert" in (await asyncio.to_thread(refusal, running.listener.port, context)).lower()
            stranger = certificates.client_context(Authority(tmp_path, "another").issue("mallory"))
            stranger.minimum_version = stranger.maximum_version = version
            assert "alert" in (await asyncio.to_thread(refusal, running.listener.port, stranger)).lower()
            assert (running.tls.failed, running.tls.succeeded) == (2, 0)
            assert running.handler.principals == []
            assert running.listener.connections == 0

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_certificate_that_no_rule_names(certificates: Certificates) -> None:
    def named(certificate: Mapping[str, Any]) -> str:
        raise BraidlogError("no rule")

    async def main() -> None:
        async with listening(certificates.server_context("requested"), named) as running:
            context = certificates.client_context(certificates.client)
            assert await asyncio.to_thread(exchanged, running.listener.port, context, frame(b"hi"), 2) == b""
            assert running.tls.failed == 1
            assert running.handler.principals == []

    asyncio.run(asyncio.wait_for(main(), 60))


def test_others_are_served_while_handshakes_hang(certificates: Certificates) -> None:
    async def main() -> None:
        async with listening(certificates.server_context(), timeout_s=30.0) as running:
            port = running.listener.port
            hanging = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
            for each in hanging[:10]:
                each.send(b"\x16\x03\x01")
            context = certificates.client_context()
            assert await asyncio.to_thread(exchanged, port, context, frame(b"hi"), 2) == b"hi"
            for each in hanging:
                each.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_handshake_has_an_end(certificates: Certificates) -> None:
    async def main() -> None:
        async with listening(certificates.server_context(), timeout_s=0.05) as running:
            with closing(socket.create_connection(("127.0.0.1", running.listener.port), timeout=30)) as silent:
                assert await asyncio.to_thread(silent.recv, 1) == b""
            with closing(socket.create_connection(("127.0.0.1", running.listener.port), timeout=30)) as clear:
                clear.send(frame(b"clear text, not TLS"))
                assert b"" in (await asyncio.to_thread(clear.recv, 100), await asyncio.to_thread(clear.recv, 100))

    asyncio.run(asyncio.wait_for(main(), 60))


def test_what_the_kernel_does_not_take_is_given_again(certificates: Certificates) -> None:
    """Without a loop: the accepting side is driven by hand, its peer reads late."""
    near, far = socket.socketpair()
    near.setblocking(False)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    server = TlsSocket(near, certificates.server_context())
    client = certificates.client_context().wrap_socket(far, server_hostname="localhost", do_handshake_on_connect=False)
    shaking = threading.Thread(target=client.do_handshake)
    shaking.start()
    done = False
    while not done:
        try:
            server.feed()
        except BlockingIOError:
            continue
        done = server.shake_hands()
        while not server.flush():
            pass
    shaking.join()
    content = os.urandom(1_000_000)
    sent = server.send(content)
    assert sent < len(content)
    got = bytearray()

    def read() -> None:
        while piece := client.recv(100_000):
            got.extend(piece)

    reading = threading.Thread(target=read)
    reading.start()
    while sent < len(content):
        select.select([], [near], [])
        sent += server.send(memoryview(content)[sent:])
    server.close()
    reading.join()
    client.close()
    assert bytes(got) == content


def test_reasons_are_words() -> None:
    assert reason_of(OSError(5, "input/output error")) == "input/output error"
    problem = ssl.SSLError(1, "x")
    problem.reason = "NO_SHARED_CIPHER"
    assert reason_of(problem) == "no shared cipher"
