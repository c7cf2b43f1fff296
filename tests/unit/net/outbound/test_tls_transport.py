"""TLS on a real socket against a scripted broker, and its records in pieces of any size."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.client.errors import AuthenticationFailed, NoConnection
from braidlog.client.network.nodes import Nodes
from braidlog.client.settings import ADMIN, Settings
from braidlog.net.outbound.tls_transport import TlsTransport, explained
from braidlog.net.outbound.transport import ENDED, WOULD_BLOCK, Piece
from braidlog.wire.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from braidlog.wire.message import Message
from support.certificates import Authority
from support.scripted_broker import HANG_UP, Answer, ScriptedBroker

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")

METADATA = 3


class Papers:
    """Certificates of one authority, and what a broker shows of them."""

    def __init__(self, place: Path) -> None:
        self.authority = Authority(place)
        self.broker = self.authority.issue("broker", "localhost", "127.0.0.1")
        self.elsewhere = self.authority.issue("elsewhere")
        self.client = self.authority.issue("client")
        self.trust = {"security_protocol": "SSL", "ssl_truststore_location": str(self.authority.certificate)}

    def server(self, *, name: str = "broker", wants_clients: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain((self.broker if name == "broker" else self.elsewhere).bundle)
        if wants_clients:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.authority.certificate)
        return context

    def visitor(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.certificate))


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


def echo(_: int, request: Message) -> Answer:
    """As many topics as were asked for, with the names turned round."""
    assert isinstance(request, MetadataRequest)
    return MetadataResponse(
        topics=[MetadataResponseTopic(name=(each.name or "")[::-1]) for each in request.topics or ()]
    )


async def ask(broker: ScriptedBroker, names: Sequence[str] = ("abc",), **settings: Any) -> list[str | None]:
    given = {"bootstrap_servers": broker.address, "request_timeout_ms": 5000, **settings}
    nodes = Nodes(Settings.of(ADMIN, None, given))
    try:
        connection = await nodes.any()
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        answer = await connection.call(METADATA, request, MetadataResponse, timeout_s=50.0)
        return [topic.name for topic in answer.topics]
    finally:
        nodes.close()
        await asyncio.sleep(0)


async def test_a_request_and_its_answer(papers: Papers) -> None:
    async with ScriptedBroker(echo, tls=papers.server()) as broker:
        assert await ask(broker, **papers.trust) == ["cba"]


async def test_large_ones_both_ways(papers: Papers) -> None:
    names = [f"{number:05d}" + "x" * 200 for number in range(10_000)]
    async with ScriptedBroker(echo, tls=papers.server()) as broker:
        assert await ask(broker, names, **papers.trust) == [name[::-1] for name in names]


async def test_a_client_shows_its_certificate(papers: Papers) -> None:
    async with ScriptedBroker(echo, tls=papers.server(wants_clients=True)) as broker:
        assert await ask(broker, **papers.trust, ssl_keystore_location=str(papers.client.bundle)) == ["cba"]


async def test_a_handshake_that_ends_without_a_word(papers: Papers) -> None:
    async with ScriptedBroker(echo, tls=papers.server(wants_clients=True)) as broker:
        with pytest.raises(NoConnection, match=r"its log says why.*ssl\.keystore\.location"):
            await ask(broker, **papers.trust, ssl_enabled_protocols="TLSv1.2")


async def test_a_certificate_that_is_not_trusted(papers: Papers) -> None:
    async with ScriptedBroker(echo, tls=papers.server()) as broker:
        with pytest.raises(AuthenticationFailed, match=r"is not to be trusted.*set ssl\.truststore\.location"):
            await ask(broker, security_protocol="SSL")


async def test_a_certificate_for_another_host(papers: Papers) -> None:
    async with ScriptedBroker(echo, tls=papers.server(name="elsewhere")) as broker:
        with pytest.raises(AuthenticationFailed, match=r"is for another host.*identification\.algorithm"):
            await ask(broker, **papers.trust)
        assert await ask(broker, **papers.trust, ssl_endpoint_identification_algorithm="") == ["cba"]


async def test_clear_text_where_tls_is_spoken(papers: Papers) -> None:
    async with ScriptedBroker(echo, tls=papers.server()) as broker:
        with pytest.raises(AuthenticationFailed, match=r"speaks TLS here; set security\.protocol=SSL"):
            await ask(broker)


async def test_tls_where_clear_text_is_spoken(papers: Papers) -> None:
    async with ScriptedBroker(echo) as broker:
        with pytest.raises(AuthenticationFailed, match="speaks clear text here, not TLS"):
            await ask(broker, **papers.trust, socket_connection_setup_timeout_ms=300)


async def test_a_broker_that_hangs_up(papers: Papers) -> None:
    async with ScriptedBroker(lambda _, __: HANG_UP, tls=papers.server()) as broker:
        with pytest.raises(NoConnection, match="closed the connection"):
            await ask(broker, **papers.trust)


# Records in pieces


class Wire:
    """The plain transport of a test: gives ciphertext in pieces of the sizes asked for, keeps what is sent."""

    def __init__(self, data: bytes, sizes: Sequence[int]) -> None:
        self.data = data
        self.sizes = list(sizes)
        self.at = 0
        self.sent = b""
        self.unsent = 0
        self.peer = "127.0.0.1"

    def start(self, *_: Any) -> None:
        pass

    def expect(self, size: int) -> None:
        raise AssertionError("how much ciphertext there will be is not known")

    def receive_into(self, view: memoryview) -> int:
        size = self.sizes.pop(0) if self.sizes else len(self.data)
        if size == 0:
            return WOULD_BLOCK
        piece = self.data[self.at : self.at + min(size, len(view))]
        self.at += len(piece)
        view[: len(piece)] = piece
        return len(piece) or ENDED

    def send(self, pieces: Sequence[Piece]) -> None:
        self.sent += b"".join(pieces)

    def close(self) -> None:
        pass


class Pair:
    """Both ends in memory, after the handshake unless the server is a test's own."""

    def __init__(
        self, papers: Papers, server: ssl.SSLContext | None = None, client: ssl.SSLContext | None = None
    ) -> None:
        self.to_client, self.to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        from_client, from_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = client or papers.visitor()
        self.client = context.wrap_bio(self.to_client, from_client, server_hostname="localhost")
        self.server = (server or papers.server()).wrap_bio(self.to_server, from_server, server_side=True)
        self.from_client, self.from_server = from_client, from_server
        if server is not None:
            return
        for end in (self.client, self.server, self.client, self.server):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
            self.to_server.write(from_client.read())
            self.to_client.write(from_server.read())

    def transport(self, wire: Any) -> TlsTransport:
        return TlsTransport(wire, self.client, self.to_client, self.from_client, "broker:1", False)


@settings(max_examples=30)
@given(st.binary(max_size=70_000), st.lists(st.integers(0, 20_000), max_size=40), st.integers(1, 40_000))
def test_records_in_pieces_of_any_size(papers: Papers, text: bytes, sizes: list[int], room: int) -> None:
    pair = Pair(papers)
    for at in range(0, len(text), 10_000):
        pair.server.write(text[at : at + 10_000])
    transport = pair.transport(Wire(pair.from_server.read(), sizes))
    got = b""
    buffer = bytearray(room)
    for _ in range(len(sizes) + len(text) // room + 10):
        count = transport.receive_into(memoryview(buffer))
        if count == ENDED:
            break
        if count != WOULD_BLOCK:
            got += buffer[:count]
    assert got == text


def test_the_end_comes_after_what_was_received(papers: Papers) -> None:
    pair = Pair(papers)
    pair.server.write(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        pair.server.unwrap()
    transport = pair.transport(Wire(pair.from_server.read(), []))
    buffer = memoryview(bytearray(100))
    assert transport.receive_into(buffer) == 10
    assert transport.receive_into(buffer) == ENDED
    assert transport.receive_into(buffer) == ENDED


@given(st.lists(st.binary(max_size=40_000), max_size=6))
@settings(max_examples=20)
def test_what_is_sent_arrives_in_order(papers: Papers, pieces: list[bytes]) -> None:
    pair = Pair(papers)
    wire = Wire(b"", [])
    pair.transport(wire).send(pieces)
    pair.to_server.write(wire.sent)
    got = b""
    while len(got) < sum(map(len, pieces)):
        got += pair.server.read(100_000)
    assert got == b"".join(pieces)


# Alerts


def _alert(papers: Papers, server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLError:
    """What the client's side of a handshake that the server refuses comes to."""
    pair = Pair(papers, server, client)
    for _ in range(4):
        try:
            pair.client.do_handshake()
            pair.client.read()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as problem:
            return problem
        pair.to_server.write(pair.from_client.read())
        with suppress(ssl.SSLError):
            pair.server.do_handshake()
        pair.to_client.write(pair.from_server.read())
    raise AssertionError("the handshake went well")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_without_a_certificate(papers: Papers, version: ssl.TLSVersion) -> None:
    client = papers.visitor()
    client.maximum_version = version
    reported = explained(_alert(papers, papers.server(wants_clients=True), client), "broker:1", False)
    assert isinstance(reported, AuthenticationFailed)
    assert "ssl.keystore.location" in str(reported)


def test_a_client_with_a_strangers_certificate(papers: Papers, tmp_path: Path) -> None:
    client = papers.visitor()
    client.load_cert_chain(Authority(tmp_path, "somebody else").issue("stranger").bundle)
    reported = explained(_alert(papers, papers.server(wants_clients=True), client), "broker:1", True)
    assert isinstance(reported, AuthenticationFailed)
    assert "does not accept this client's certificate" in str(reported)


def test_no_version_in_common(papers: Papers) -> None:
    server = papers.server()
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    client = papers.visitor()
    client.minimum_version = ssl.TLSVersion.TLSv1_3
    reported = explained(_alert(papers, server, client), "broker:1", False)
    assert isinstance(reported, AuthenticationFailed)
    assert "ssl.enabled.protocols" in str(reported)


def test_sending_after_tls_ended_is_a_connection_lost_and_no_error_of_tls(papers: Papers) -> None:
    pair = Pair(papers)
    lost: list[OSError] = []
    transport = pair.transport(Wire(b"", []))
    transport.start(lambda: None, lost.append)
    with suppress(ssl.SSLError):
        pair.client.unwrap()
    transport.send([b"more"])
    assert [type(each) for each in lost] == [ConnectionResetError]
