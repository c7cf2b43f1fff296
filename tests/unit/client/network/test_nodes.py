import asyncio
import socket
from random import Random

import pytest

from braidlog.client.errors import AuthenticationFailed, ClosedError, NoConnection, RequestTimeout, SettingError
from braidlog.client.network.nodes import Nodes, parse_servers
from braidlog.client.settings import ADMIN, Settings
from braidlog.core.protocol_errors import UnsupportedVersionError
from braidlog.net.outbound import connector
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from braidlog.wire.generated.metadata import MetadataRequest, MetadataResponse
from braidlog.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from braidlog.wire.message import Message
from support.ports import lasting_port
from support.scripted_broker import GARBAGE, HANG_UP, SILENCE, Answer, ScriptedBroker

FIND_COORDINATOR = 10
METADATA = 3
DELETE_TOPICS = 20


def _nodes(broker: ScriptedBroker, **settings: object) -> Nodes:
    given = {"bootstrap_servers": broker.address, "client_id": "me", "request_timeout_ms": 5000, **settings}
    return Nodes(Settings.of(ADMIN, None, given))


def _metadata(_: int, __: Message) -> Answer:
    return MetadataResponse(cluster_id="c")


async def _ask(nodes: Nodes, node_id: int = -1, purpose: str = "", timeout_s: float = 5.0) -> str | None:
    connection = await nodes.connection(node_id, purpose)
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


async def test_brokers_that_were_given_up_together_are_unreachable_not_unknown() -> None:
    async with ScriptedBroker(_metadata) as broker:
        nodes = _nodes(broker)
        nodes.learn({7: ("127.0.0.1", 1), 8: ("::1", 2)})
        nodes.rebootstrap()
        nodes.rebootstrap()
        with pytest.raises(NoConnection, match=r"broker 7 is unreachable at 127\.0\.0\.1:1; is it running"):
            await nodes.connection(7)
        with pytest.raises(NoConnection, match=r"broker 8 is unreachable at \[::1\]:2"):
            await nodes.connection(8)
        # Metadata says again who there is: then the other is gone for good.
        nodes.learn({8: ("127.0.0.1", 2)})
        with pytest.raises(NoConnection, match="there is no broker 7 in the cluster now"):
            await nodes.connection(7)
        nodes.close()


async def test_a_broker_that_takes_the_connection_and_is_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        nodes = Nodes(Settings.of(ADMIN, None, {"bootstrap_servers": address, "request_timeout_ms": 50}))
        with pytest.raises(RequestTimeout, match="takes connections but does not answer"):
            await nodes.connection(-1)
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


async def test_a_broker_that_moves_while_it_is_called_is_a_failure_and_no_cancellation() -> None:
    """A task that waits for a connection must not end as if somebody had cancelled it."""
    async with ScriptedBroker(_metadata) as broker:
        nodes = _nodes(broker)
        nodes.learn({7: ("127.0.0.1", broker.port)})
        waiting = asyncio.ensure_future(nodes.connection(7))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        nodes.learn({7: ("127.0.0.2", broker.port)})
        with pytest.raises(NoConnection, match="broker 7 moved"):
            await waiting
        late = asyncio.ensure_future(nodes.connection(-1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        nodes.close()
        with pytest.raises(ClosedError):
            await late


async def test_every_address_of_a_name_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first swallows what it gets: its queue of connections is full."""
    with socket.socket() as deaf, socket.socket() as caller:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        caller.setblocking(False)
        caller.connect_ex(deaf.getsockname())
        with socket.socket() as another:
            another.setblocking(False)
            another.connect_ex(deaf.getsockname())
            async with ScriptedBroker(_metadata) as broker:

                async def resolved(_: str, __: int) -> list[object]:
                    places = [deaf.getsockname(), ("127.0.0.1", broker.port)]
                    return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]

                monkeypatch.setattr(connector, "_resolved", resolved)
                nodes = _nodes(broker, socket_connection_setup_timeout_ms=300)
                assert await _ask(nodes) == "c"
                nodes.close()


async def test_an_address_that_leads_nowhere_makes_way_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedBroker(lambda *_: GARBAGE) as broker, ScriptedBroker(_metadata) as other:

        async def resolved(_: str, __: int) -> list[object]:
            places = [("127.0.0.1", port) for port in (wall.getsockname()[1], other.port)]
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]

        async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        wall_server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        wall = wall_server.sockets[0]
        monkeypatch.setattr(connector, "_resolved", resolved)
        nodes = _nodes(broker, reconnect_backoff_ms=1)
        with pytest.raises(NoConnection):
            await nodes.connection(-1)
        assert await _ask(nodes) == "c"
        nodes.close()
        wall_server.close()


@pytest.mark.parametrize("name", ["a..b", "x" * 70])
async def test_a_name_that_no_host_can_have(name: str) -> None:
    nodes = Nodes(Settings.of(ADMIN, None, {"bootstrap_servers": f"{name}:9092"}))
    with pytest.raises(NoConnection, match=r"bootstrap\.servers"):
        await nodes.any()
    nodes.close()


async def test_a_name_that_nobody_knows_is_told_with_where_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(host: str, _port: int) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(connector, "_resolved", unknown)
    nodes = Nodes(Settings.of(ADMIN, None, {"bootstrap_servers": "broker1:9092", "reconnect_backoff_ms": 1}))
    with pytest.raises(NoConnection) as given:
        await nodes.any()
    assert str(given.value) == (
        "the name broker1 (bootstrap.servers) cannot be resolved (Name or service not known); "
        "is it written right, and known to the resolver of this machine?"
    )
    nodes.learn({3: ("broker3", 9092)})
    with pytest.raises(NoConnection) as reported:
        await nodes.connection(3)
    assert "the name broker3 cannot be resolved (Name or service not known)" in str(reported.value)
    assert "Broker 3 tells clients to connect there" in str(reported.value)
    assert "advertised.listeners" in str(reported.value)
    nodes.close()


async def test_a_name_that_is_not_resolved_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(host: str, _port: int) -> list[object]:
        await asyncio.sleep(3600)
        return []

    monkeypatch.setattr(connector, "_resolved", slow)
    given = {"bootstrap_servers": "broker1:9092", "socket_connection_setup_timeout_ms": 10}
    nodes = Nodes(Settings.of(ADMIN, None, given))
    with pytest.raises(NoConnection, match=r"the name broker1 \(bootstrap.servers\) is not resolved within 0.01 s"):
        await nodes.any()
    nodes.close()


async def test_a_broker_that_refuses_elsewhere_casts_no_doubt_on_bootstrap_servers() -> None:
    nodes = Nodes(Settings.of(ADMIN, None, {"bootstrap_servers": "127.0.0.1:2"}))
    nodes.learn({3: ("127.0.0.1", 1)})
    with pytest.raises(NoConnection, match=r"no broker answers at 127\.0\.0\.1:1 .*is it running\? Broker 3 tells"):
        await nodes.connection(3)
    nodes.close()


def test_an_url_is_no_server() -> None:
    with pytest.raises(SettingError, match=r"'http://a:9092' is not HOST:PORT; leave http:// away"):
        parse_servers(("http://a:9092",))


async def test_a_listener_that_wants_a_login_is_found_out_with_the_second_call() -> None:
    def script(_: int, request: Message) -> Answer:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(error_code=33, mechanisms=["PLAIN"])
        return HANG_UP

    async with ScriptedBroker(script, offered=(3, 17, 18)) as broker:
        nodes = _nodes(broker, reconnect_backoff_ms=1)
        with pytest.raises(NoConnection, match="on the first request"):
            await _ask(nodes)
        with pytest.raises(AuthenticationFailed, match=r"wants clients to log in here \(PLAIN\); set sec"):
            await nodes.any()
        nodes.close()


async def test_a_broker_that_went_away_is_not_taken_for_one_that_wants_a_login() -> None:
    answers: list[Answer] = [
        HANG_UP,
        SaslHandshakeResponse(error_code=34),
        MetadataResponse(cluster_id="c"),
        HANG_UP,
        MetadataResponse(cluster_id="d"),
    ]
    async with ScriptedBroker(lambda *_: answers.pop(0), offered=(3, 17, 18)) as broker:
        nodes = _nodes(broker, reconnect_backoff_ms=1)
        with pytest.raises(NoConnection):
            await _ask(nodes)
        assert await _ask(nodes) == "c"
        with pytest.raises(NoConnection):
            await _ask(nodes)
        assert await _ask(nodes) == "d", "one that had answered before is not asked again"
        nodes.close()


async def test_no_broker_is_the_only_one_to_be_asked() -> None:
    async with ScriptedBroker(_metadata) as one, ScriptedBroker(_metadata) as two:
        settings = Settings.of(ADMIN, None, {"bootstrap_servers": [one.address, two.address]})
        nodes = Nodes(settings, random=Random(1))
        await nodes.connection(-1)
        await nodes.connection(-2)
        assert {(await nodes.any()).address for _ in range(30)} == {one.address, two.address}
        nodes.close()


async def test_an_idle_connection_is_closed_when_it_is_due_and_not_at_twice_the_time() -> None:
    """The broker's own limit is only a little longer."""
    async with ScriptedBroker(_metadata) as broker:
        nodes = _nodes(broker, connections_max_idle_ms=60_000)
        first, second = await nodes.connection(-1), await nodes.connection(-1, "other")
        first.last_used -= 61
        second.last_used -= 30
        nodes._close_idle()
        assert (first.is_open, second.is_open) == (False, True)
        assert nodes._sweep is not None
        assert nodes._sweep.when() == pytest.approx(second.last_used + 60)
        nodes.close()


async def test_whatever_fails_in_an_answer_reaches_who_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise IndexError("a bug")

    # Of a message that is not compiled, and so can be spoilt.
    monkeypatch.setattr(SaslHandshakeResponse, "decode", fail)
    async with ScriptedBroker(lambda *_: SaslHandshakeResponse(), offered=(17, 18)) as broker:
        nodes = _nodes(broker)
        connection = await nodes.connection(-1)
        asked = connection.call(
            17, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, at_most=1, timeout_s=50
        )
        with pytest.raises(NoConnection, match="could not be taken"):
            await asyncio.wait_for(asked, 50)
        assert not connection.is_open
        assert "a bug" in caplog.text
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


@pytest.mark.parametrize("servers", [(), ("",), ("a:b",), ("a:0",), ("a:70000",), (":9092",), ("a", 9092)])
def test_servers_that_are_none_are_refused(servers: tuple[str, ...]) -> None:
    with pytest.raises(SettingError, match=r"bootstrap\.servers"):
        parse_servers(servers)


async def test_a_broker_is_reached_over_ipv6() -> None:
    broker = ScriptedBroker(_metadata)
    server = await asyncio.start_server(broker._serve, "::1", 0)
    port = server.sockets[0].getsockname()[1]
    nodes = Nodes(Settings.of(ADMIN, None, {"bootstrap_servers": f"[::1]:{port}"}))
    assert (await nodes.connection(-1)).address == f"[::1]:{port}"
    assert await _ask(nodes) == "c"
    nodes.close()
    server.close()


async def test_a_coordinator_that_metadata_does_not_name_is_learnt_beside_the_others() -> None:
    async with ScriptedBroker(_metadata) as broker:
        nodes = _nodes(broker)
        nodes.learn({1: ("127.0.0.1", broker.port)})
        first = await nodes.connection(1)
        nodes.learn_one(2, ("127.0.0.1", broker.port))
        nodes.learn_one(1, ("elsewhere", 1))
        assert dict(nodes.addresses) == {1: ("127.0.0.1", broker.port), 2: ("127.0.0.1", broker.port)}
        assert nodes.ready(1) is first
        nodes.close()


async def test_a_coordinator_that_moved_is_called_where_it_is_now() -> None:
    async with ScriptedBroker(_metadata) as broker:
        nodes = _nodes(broker)
        nodes.learn({1: ("127.0.0.1", lasting_port())})
        with pytest.raises(NoConnection):
            await nodes.connection(1, "coordinator")
        nodes.learn_one(1, ("127.0.0.1", broker.port))
        assert (await nodes.connection(1, "coordinator")).address == broker.address
        nodes.close()


async def test_the_last_failure_is_known_until_there_is_a_connection() -> None:
    async with ScriptedBroker(_metadata) as broker:
        nodes = _nodes(broker, reconnect_backoff_ms=1)
        assert nodes.last_problem() is None
        await broker.stop()
        with pytest.raises(NoConnection):
            await nodes.any()
        assert "no broker answers" in str(nodes.last_problem())
        assert "no broker answers" in str(nodes.last_problem(-1))
        assert nodes.last_problem(5) is None
        await broker.start()
        await nodes.any()
        assert nodes.last_problem() is None
        nodes.close()
