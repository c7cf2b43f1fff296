"""Control requests from a controller to a handler, over a real socket, in the version that the peer offers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from random import Random

import pytest

from braidlog.broker.handlers.interbroker.control_plane import (
    LeaderAndIsrHandler,
    StopReplicaHandler,
    UpdateMetadataHandler,
)
from braidlog.broker.interbroker.network import InterBrokerNetwork
from braidlog.broker.interbroker.remote_control_channel import RemoteControlChannel, UpdateMetadataEncoder
from braidlog.cluster import control_wire
from braidlog.cluster.control_requests import (
    ControlResponse,
    LeaderAndIsr,
    LeaderAndIsrPartition,
    MetadataPartition,
    StopReplica,
    StopReplicaPartition,
    UpdateMetadata,
)
from braidlog.cluster.image import BrokerInfo, PartitionInfo
from braidlog.config.broker import BrokerSettings
from braidlog.core.protocol_errors import ClusterAuthorizationFailedError
from braidlog.core.types import BrokerId, Endpoint, LeaderEpoch, TopicPartition
from braidlog.net.outbound.errors import NoConnection
from braidlog.wire.generated.leader_and_isr import LeaderAndIsrRequest
from braidlog.wire.generated.stop_replica import StopReplicaRequest
from braidlog.wire.generated.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from braidlog.wire.message import Message
from support.scripted_broker import HANG_UP, Answer, ScriptedBroker

LISTENER = "PLAINTEXT"
TOPIC_ID = bytes(range(16))
INFO = PartitionInfo(BrokerId(1), LeaderEpoch(3), (BrokerId(1),), (BrokerId(1),), controller_epoch=2, partition_epoch=4)
ORDERS = TopicPartition("orders", 0)
LEADER_AND_ISR = LeaderAndIsr(BrokerId(0), 2, 77, [LeaderAndIsrPartition("orders", TOPIC_ID, 0, INFO, is_new=True)])
STOP_REPLICA = StopReplica(BrokerId(0), 2, 77, [StopReplicaPartition("orders", 0, -2, delete=True)])
UPDATE_METADATA = UpdateMetadata(
    BrokerId(0),
    2,
    77,
    {BrokerId(1): BrokerInfo(BrokerId(1), -1, (Endpoint(LISTENER, "host", 9092),), {LISTENER: LISTENER})},
    [MetadataPartition("orders", TOPIC_ID, 0, INFO)],
)


class Receiver:
    """The other broker's way for control requests."""

    def __init__(self) -> None:
        self.requests: list[object] = []

    async def receive(self, request: object, connection: object) -> ControlResponse:
        assert connection is ExchangeOfVersion.channel
        self.requests.append(request)
        return ControlResponse(0, {} if isinstance(request, UpdateMetadata) else {ORDERS: 56})


class ExchangeOfVersion:
    channel = object()

    def __init__(self, version: int) -> None:
        self.version = version


def scripted(receiver: Receiver) -> Callable[[int, Message], Answer]:
    """Handlers as a broker has them; nothing in them waits here, so that a step runs each to its end."""

    def answer(api_key: int, request: Message) -> Answer:
        exchange = ExchangeOfVersion({4: 7, 5: 4, 6: 8}[api_key])
        work: Awaitable[Message]
        if isinstance(request, LeaderAndIsrRequest):
            work = LeaderAndIsrHandler(receiver, LISTENER).handle(request, exchange)  # type: ignore[arg-type]
        elif isinstance(request, StopReplicaRequest):
            work = StopReplicaHandler(receiver).handle(request, exchange)  # type: ignore[arg-type]
        else:
            assert isinstance(request, UpdateMetadataRequest)
            work = UpdateMetadataHandler(receiver).handle(request, exchange)  # type: ignore[arg-type]
        try:
            work.__await__().send(None)  # type: ignore[attr-defined]
        except StopIteration as end:
            response: Message = end.value
            return response
        raise AssertionError("it waits")

    return answer


def network(timeout_ms: int = 30000) -> InterBrokerNetwork:
    settings = BrokerSettings({"controller.socket.timeout.ms": str(timeout_ms)})
    return InterBrokerNetwork(BrokerId(0), LISTENER, lambda: settings, Random(1))


def peer(broker: ScriptedBroker) -> BrokerInfo:
    return BrokerInfo(BrokerId(1), 77, (Endpoint(LISTENER, "127.0.0.1", broker.port),))


def test_each_request_arrives_as_it_was_sent_and_its_answer_comes_back() -> None:
    async def run() -> None:
        receiver = Receiver()
        async with ScriptedBroker(scripted(receiver), offered=(4, 5, 6, 18)) as broker:
            channel = RemoteControlChannel(network(), peer(broker), UpdateMetadataEncoder())
            assert (await channel.send(LEADER_AND_ISR)).partitions == {ORDERS: 56}
            assert await channel.send(UPDATE_METADATA) == ControlResponse(0)
            assert (await channel.send(STOP_REPLICA)).partitions == {ORDERS: 56}
            await channel.close()
            assert receiver.requests == [LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA]
            assert [(key, version) for key, version, _ in broker.requests] == [(18, 3), (4, 7), (6, 8), (5, 4)]
            assert broker.connections == 1

    asyncio.run(run())


def test_a_peer_that_hangs_up_is_called_again_by_the_next_request() -> None:
    async def run() -> None:
        answers: list[Answer] = [HANG_UP, UpdateMetadataResponse()]
        async with ScriptedBroker(lambda key, request: answers.pop(0), offered=(6, 18)) as broker:
            channel = RemoteControlChannel(network(), peer(broker), UpdateMetadataEncoder())
            with pytest.raises(NoConnection):
                await channel.send(UPDATE_METADATA)
            assert await channel.send(UPDATE_METADATA) == ControlResponse(0)
            await channel.close()
            assert broker.connections == 2

    asyncio.run(run())


def test_a_connection_that_breaks_is_noticed_and_made_again() -> None:
    async def run() -> None:
        answers: list[Answer] = [HANG_UP]
        async with ScriptedBroker(lambda key, request: answers.pop(0), offered=(6, 18)) as broker:
            channel = RemoteControlChannel(network(), peer(broker), UpdateMetadataEncoder())
            broken = asyncio.Event()
            channel.when_broken(broken.set)
            with pytest.raises(NoConnection):
                await channel.send(UPDATE_METADATA)
            await broken.wait()
            await channel.reach()
            assert broker.connections == 2
            await channel.close()

    asyncio.run(run())


def test_a_peer_without_these_requests_is_a_failure_that_may_pass() -> None:
    async def run() -> None:
        async with ScriptedBroker(lambda key, request: HANG_UP) as broker:
            channel = RemoteControlChannel(network(), peer(broker), UpdateMetadataEncoder())
            with pytest.raises(NoConnection, match="takes no control requests"):
                await channel.send(UPDATE_METADATA)
            await channel.close()

    asyncio.run(run())


def test_a_peer_without_the_listener_is_named() -> None:
    async def run() -> None:
        other = BrokerInfo(BrokerId(1), 77, (Endpoint("INTERNAL", "127.0.0.1", 1),))
        channel = RemoteControlChannel(network(), other, UpdateMetadataEncoder())
        with pytest.raises(NoConnection, match=r"inter\.broker\.listener\.name"):
            await channel.send(UPDATE_METADATA)

    asyncio.run(run())


def test_the_same_update_is_encoded_once_for_all_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    encode = control_wire.encode_update_metadata

    def counted(request: UpdateMetadata, version: int) -> Generator[None, None, control_wire.EncodedUpdateMetadata]:
        encoded.append(version)
        return encode(request, version)

    monkeypatch.setattr(control_wire, "encode_update_metadata", counted)

    async def run() -> None:
        encoder = UpdateMetadataEncoder()
        one, two, old = await asyncio.gather(
            encoder.encode(UPDATE_METADATA, 8),
            encoder.encode(UPDATE_METADATA._replace(broker_epoch=78), 8),
            encoder.encode(UPDATE_METADATA, 5),
        )
        assert (one.broker_epoch, two.broker_epoch, old.version) == (77, 78, 5)
        await encoder.encode(UPDATE_METADATA._replace(controller_epoch=3), 8)
        assert encoded == [8, 5, 8]

    asyncio.run(run())


def test_a_refusal_names_every_partition() -> None:
    error = ClusterAuthorizationFailedError()
    for version in range(8):
        request = control_wire.leader_and_isr_message(LEADER_AND_ISR, version, LISTENER)
        response = LeaderAndIsrHandler.error_response(request, version, error)
        assert control_wire.read_leader_and_isr_response(LEADER_AND_ISR, response) == ControlResponse(31, {ORDERS: 31})
    for version in range(5):
        (stop,) = control_wire.stop_replica_messages(STOP_REPLICA, version)
        refusal = StopReplicaHandler.error_response(stop, version, error)
        assert control_wire.read_stop_replica_response(refusal) == ControlResponse(31, {ORDERS: 31})
