import asyncio
import socket

import pytest

from braidlog.client.errors import ClosedError, NoConnection, RequestTimeout, SettingError
from braidlog.client.network.nodes import Nodes, parse_servers
from braidlog.client.settings import ADMIN, Settings
from braidlog.core.protocol_errors import UnsupportedVersionError
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from braidlog.wire.generated.metadata import MetadataRequest, MetadataResponse
from braidlog.wire.message import Message
from support.scripted_broker import GARBAGE, HANG_UP, SILENCE, Answer, ScriptedBroker

FIND_COORDINATOR = 10
METADATA = 3
DELETE_TOPICS = 20


def _nodes(broker: ScriptedBroker, **settings: object) -> Nodes:
    given = {"bootstrap_servers": broker.address, "client_id": "me", "request_timeout_ms": 5000, **settings}
    return Nodes(Settings.of(ADMIN, None, given))


def _metadata(_: int, __: Message) -> Answer:
    return MetadataResponse(cluster_id="c")


async def _ask(nodes: Nodes, node_id: int = -1, lane: str = "", timeout_s: float = 5.0) -> str | None:
    connection = await nodes.connection(node_id, lane)
    return (await connection.call(METADATA, MetadataRequest(), MetadataResponse, timeout_s=timeout_s)).cluster_id


async def test_versions_and_features_are_learnt_first() -> None:
    async with ScriptedBroker(_metadata) as broker:
        nodes = _nodes(broker)
        connection = await nodes.connection(-1)
        assert connection.features == {"transaction.version": 2}
        assert connection.version_for(METADATA) == 12
        assert connection.version_for(METADATA, at_most=5) == 5
        assert not connection.offers(DELETE_TOPICS)
        with pytest.raises(UnsupportedVersionError, match="does not offer DeleteTopics"):
            connection.version_for(DELETE_TOPICS)
        assert await _ask(nodes) == "c"
        assert [(key, client) for key, _, client in broker.requests] == [(18, "me"), (METADATA, "me")]
        nodes.close()


async def test_one_connection_serves_all_who_ask_and_lanes_keep_apart() -> None:
    async with ScriptedBroker(_metadata) as broker:
        nodes = _nodes(broker)
        found = await asyncio.gather(*(nodes.connection(-1) for _ in range(5)))
        assert len(set(map(id, found))) == 1
        assert await nodes.connection(-1, "coordinator") is not found[0]
        assert broker.connections == 2
        assert nodes.ready(-1) is found[0]
        nodes.close()
        assert not found[0].is_open


async def test_requests_are_pipelined_and_answered_in_order() -> None:
    keys: list[str] = []

    def script(_: int, request: Message) -> Answer:
        assert isinstance(request, FindCoordinatorRequest)
        keys.append(request.key)
        return FindCoordinatorResponse(node_id=int(request.key))

    async with ScriptedBroker(script) as broker:
        nodes = _nodes(broker)
        connection = await nodes.connection(-1)
        waiting = [connection.post(FIND_COORDINATOR, 2, FindCoordinatorRequest(key=str(at)), 5.0) for at in range(50)]
        assert connection.in_flight == 50
        answers = await asyncio.gather(*waiting)
        assert [each.node_id for each in answers] == list(range(50))
        assert keys == [str(at) for at in range(50)]
        nodes.close()


async def test_a_request_without_answer_ends_the_connection_and_whoever_waits_on_it() -> None:
    async with ScriptedBroker(lambda *_: SILENCE) as broker:
        nodes = _nodes(broker)
        connection = await nodes.connection(-1)
        patient = connection.post(METADATA, 9, MetadataRequest(), 60.0)
        with pytest.raises(RequestTimeout, match="did not answer Metadata in time"):
            await connection.call(METADATA, MetadataRequest(), MetadataResponse, timeout_s=0.02)
        with pytest.raises(RequestTimeout):
            await patient
        assert not connection.is_open
        with pytest.raises(RequestTimeout):
            connection.post(METADATA, 9, MetadataRequest(), 1.0)
        nodes.close()


async def test_a_broker_that_hangs_up_is_called_again() -> None:
    answers: list[Answer] = [HANG_UP, MetadataResponse(cluster_id="again")]
    async with ScriptedBroker(lambda *_: answers.pop(0)) as broker:
        nodes = _nodes(broker, reconnect_backoff_ms=1)
        with pytest.raises(NoConnection, match="closed the connection"):
            await _ask(nodes)
        assert await _ask(nodes) == "again"
        assert broker.connections == 2
        nodes.close()


async def test_another_protocol_is_told_from_a_broker() -> None:
    async with ScriptedBroker(lambda *_: GARBAGE) as broker:
        nodes = _nodes(broker)
        with pytest.raises(NoConnection, match=r"does not speak the Kafka protocol.*TLS"):
            await _ask(nodes)
        nodes.close()


async def test_nobody_there_is_said_with_what_to_look_at() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        nodes = Nodes(Settings.of(ADMIN, None, {"bootstrap_servers": f"127.0.0.1:{port}"}))
        with pytest.raises(NoConnection, match=r"no broker answers at .*Connection refused.*bootstrap\.servers"):
            await nodes.any()
        assert not nodes.is_reachable(-1)
        nodes.close()
    with pytest.raises(ClosedError):
        await nodes.any()


async def test_any_takes_the_first_server_that_answers() -> None:
    async with ScriptedBroker(_metadata) as broker:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            dead = f"127.0.0.1:{unused.getsockname()[1]}"
            for order in ([dead, broker.address], [broker.address, dead]):
                nodes = Nodes(Settings.of(ADMIN, None, {"bootstrap_servers": order}))
                assert (await nodes.any()).address == broker.address
                assert (await nodes.any()) is (await nodes.any())
                nodes.close()


async def test_brokers_of_metadata_are_reached_by_id_and_dropped_when_they_move() -> None:
    async with ScriptedBroker(_metadata) as one, ScriptedBroker(_metadata) as two:
        nodes = _nodes(one)
        nodes.learn({7: ("127.0.0.1", two.port)})
        connection = await nodes.connection(7)
        assert connection.address == two.address
        nodes.learn({7: ("127.0.0.1", two.port), 8: ("127.0.0.1", one.port)})
        assert connection.is_open
        nodes.learn({7: ("127.0.0.1", one.port)})
        assert not connection.is_open
        assert (await nodes.connection(7)).address == one.address
        with pytest.raises(NoConnection, match="no broker 9"):
            await nodes.connection(9)
        nodes.close()


async def test_a_broker_that_advertises_the_wrong_address_is_explained() -> None:
    async with ScriptedBroker(_metadata) as broker:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            nodes = _nodes(broker)
            nodes.learn({1: ("127.0.0.1", unused.getsockname()[1])})
            with pytest.raises(NoConnection, match=r"advertised\.listeners"):
                await nodes.connection(1)
            nodes.close()


async def test_a_pause_that_the_broker_asks_for_is_kept() -> None:
    answers = [MetadataResponse(throttle_time_ms=80), MetadataResponse(cluster_id="later")]
    async with ScriptedBroker(lambda *_: answers.pop(0)) as broker:
        nodes = _nodes(broker)
        await _ask(nodes)
        before = asyncio.get_running_loop().time()
        assert await _ask(nodes) == "later"
        assert asyncio.get_running_loop().time() - before >= 0.07
        nodes.close()


async def test_idle_connections_are_closed() -> None:
    async with ScriptedBroker(_metadata) as broker:
        nodes = _nodes(broker, connections_max_idle_ms=20)
        connection = await nodes.connection(-1)
        closed = asyncio.Event()
        before, connection.on_closed = connection.on_closed, lambda _: closed.set()
        assert before is not None
        await asyncio.wait_for(closed.wait(), 5)
        nodes.close()


async def test_one_who_gives_up_does_not_take_the_connection_from_others() -> None:
    async with ScriptedBroker(_metadata) as broker:
        nodes = _nodes(broker)
        first = asyncio.ensure_future(nodes.connection(-1))
        second = asyncio.ensure_future(nodes.connection(-1))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).is_open
        nodes.close()


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        (("a",), [("a", 9092)]),
        (("a:1", " b:2 "), [("a", 1), ("b", 2)]),
        (("[::1]:5", "[::2]"), [("::1", 5), ("::2", 9092)]),
    ],
)
def test_servers_are_read_as_people_write_them(servers: tuple[str, ...], expected: list[tuple[str, int]]) -> None:
    assert parse_servers(servers) == expected


@pytest.mark.parametrize("servers", [(), ("",), ("a:b",), ("a:0",), ("a:70000",), (":9092",)])
def test_servers_that_are_none_are_refused(servers: tuple[str, ...]) -> None:
    with pytest.raises(SettingError, match=r"bootstrap\.servers"):
        parse_servers(servers)
