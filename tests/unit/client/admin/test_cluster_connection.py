"""Where to connect, and what errors say."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import threading

import pytest

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_call import BrokerConnection
from braidlog.client.admin.cluster_connection import ClusterConnection, parse_bootstrap
from braidlog.client.admin.lookup_strategies import AnyBrokerStrategy
from braidlog.client.broker_errors import broker_error, check
from braidlog.client.errors import NoConnection
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from braidlog.wire.generated.metadata import MetadataResponse
from support.scripted_broker import ScriptedBroker


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:19092", [("::1", 19092)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_bootstrap_servers(text: str, servers: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == servers


@pytest.mark.parametrize("text", ["", " , ", "host:port", "host:0", "host:70000", ":9092"])
def test_what_is_no_bootstrap_server(text: str) -> None:
    with pytest.raises(UserError):
        parse_bootstrap(text)


def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(NoConnection, match=f"no broker answers at 127.0.0.1:{port}.*refused.*bootstrap.servers"):
            ClusterConnection(f"127.0.0.1:{port}", 1.0)


def _answer_once(listener: socket.socket, answer: bytes) -> None:
    connection, _ = listener.accept()
    # Nobody is there any more for who calls again.
    listener.close()
    with connection:
        connection.recv(65536)
        connection.sendall(answer)


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak the Kafka protocol"),
        (b"", "closed the connection"),
        (struct.pack(">ii", 8, 99) + b"\0\0\0\0", "out of order"),
        (struct.pack(">iihi", 10, 1, 0, 1 << 30), "answered ApiVersions with something else"),
    ],
)
def test_something_else_listens(answer: bytes, reported: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=_answer_once, args=(listener, answer), daemon=True)
        thread.start()
        with pytest.raises(UserError, match=reported):
            ClusterConnection(f"127.0.0.1:{port}", 5.0)
        thread.join()


def test_a_refusal_carries_the_brokers_words_or_our_advice() -> None:
    check(0, "topic x")
    with pytest.raises(UnknownTopicOrPartitionError, match=r"topic x: it does not exist; .*topics create"):
        check(UnknownTopicOrPartitionError.code, "topic x")
    error = broker_error(TopicAlreadyExistsError.code, "topic x", "Topic 'x' already exists.")
    assert error.message is not None
    assert error.message.startswith("topic x: Topic 'x' already exists")


def test_a_setting_of_a_file_that_is_wrong_is_named() -> None:
    with pytest.raises(UserError, match=r"socket\.connection\.setup\.timeout\.ms"):
        ClusterConnection("127.0.0.1:1", 1.0, {"socket.connection.setup.timeout.ms": "soon"})


async def test_closing_after_a_fork_is_no_error() -> None:
    """The child of a fork closes what it got from its parent: nothing to do there."""
    async with ScriptedBroker(lambda *_: MetadataResponse()) as broker:
        cluster = await asyncio.to_thread(ClusterConnection, broker.address, 5.0)
        engine = cluster._engine
        here, engine._process = engine._process, -1
        cluster.close()
        assert engine.is_closed
        engine._process, engine._closed = here, False
        await asyncio.to_thread(cluster.close)


async def test_one_that_is_forgotten_leaves_no_thread_behind() -> None:
    async with ScriptedBroker(lambda *_: MetadataResponse()) as broker:
        cluster = await asyncio.to_thread(ClusterConnection, broker.address, 5.0)
        thread = cluster._engine._thread
        assert thread.is_alive()
        del cluster
        # The loop has the future that it came with until its next turn, and the worker that made it for a moment that
        # nothing tells the end of; it and its nodes refer to each other.
        async with asyncio.timeout(30):
            while thread.is_alive():
                gc.collect()
                await asyncio.sleep(0.01)


async def test_questions_of_threads_take_turns() -> None:
    """A request that is given up ends its connection: it must not be that of another thread's request."""
    order: list[str] = []
    release = asyncio.Event()

    async def slow(node: BrokerConnection) -> None:
        order.append("slow began")
        await release.wait()
        order.append("slow ended")

    async def quick(node: BrokerConnection) -> None:
        order.append("quick")

    async with ScriptedBroker(lambda *_: MetadataResponse()) as broker, asyncio.timeout(30):
        cluster = await asyncio.to_thread(ClusterConnection, broker.address, 5.0)
        driver = AdminApiDriver(cluster)
        first = asyncio.ensure_future(asyncio.to_thread(driver.ask_one, AnyBrokerStrategy(), slow))
        while not order:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        second = asyncio.ensure_future(asyncio.to_thread(driver.within(9.0).ask_one, AnyBrokerStrategy(), quick))
        while len(cluster._engine._waiting) < 2 and not second.done():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        # Behind what the second thread handed over.
        cluster._engine.soon(release.set)
        await asyncio.gather(first, second)
        await asyncio.to_thread(cluster.close)
    assert order == ["slow began", "slow ended", "quick"]
