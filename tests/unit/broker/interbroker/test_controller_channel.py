from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from braidlog.broker.interbroker.controller_channel import (
    BrokerToControllerChannel,
    ControllerClient,
    alter_partition_request,
    move_leaders_away,
    read_alter_partition,
)
from braidlog.broker.interbroker.network import InterBrokerNetwork
from braidlog.cluster.image import BrokerInfo, ClusterImage
from braidlog.cluster.store import SessionLease
from braidlog.config.broker import BrokerSettings
from braidlog.controller.requests import PartitionChange
from braidlog.core.protocol_errors import InvalidUpdateVersionError, NotControllerError, UnsupportedVersionError
from braidlog.core.types import BrokerId, Endpoint, LeaderEpoch, TopicPartition
from braidlog.net.outbound.errors import NoConnection, RequestTimeout
from braidlog.wire.generated.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from braidlog.wire.generated.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer
from support.scripted_broker import HANG_UP, SILENCE, Answer, ScriptedBroker


def network() -> InterBrokerNetwork:
    return InterBrokerNetwork(BrokerId(0), "PLAINTEXT", lambda: BrokerSettings({}), Random(1))


async def allocate(channel: BrokerToControllerChannel, for_s: float) -> AllocateProducerIdsResponse:
    return await channel.request(
        67,
        lambda version: AllocateProducerIdsRequest(broker_id=0),
        AllocateProducerIdsResponse,
        error_of=lambda response: response.error_code,
        for_s=for_s,
    )


def test_it_looks_for_the_controller_until_one_answers() -> None:
    async def run() -> None:
        block = AllocateProducerIdsResponse(producer_id_start=7)
        first: list[Answer] = [HANG_UP, AllocateProducerIdsResponse(error_code=NotControllerError.code)]
        async with (
            ScriptedBroker(lambda key, request: first.pop(0), offered=(67, 18)) as old,
            ScriptedBroker(lambda key, request: block, offered=(67, 18)) as new,
        ):

            def controller() -> BrokerInfo | None:
                if not asked:
                    asked.append(1)
                    return None
                port = old.port if first else new.port
                return BrokerInfo(BrokerId(1), 1, (Endpoint("PLAINTEXT", "127.0.0.1", port),))

            asked: list[int] = []
            channel = BrokerToControllerChannel(network(), controller)
            assert (await allocate(channel, 20.0)).producer_id_start == 7
            channel.close()

    asyncio.run(run())


def test_it_gives_up_in_time() -> None:
    async def run() -> None:
        async with ScriptedBroker(lambda key, request: SILENCE, offered=(67, 18)) as broker:
            at = BrokerInfo(BrokerId(1), 1, (Endpoint("PLAINTEXT", "127.0.0.1", broker.port),))
            channel = BrokerToControllerChannel(network(), lambda: at)
            with pytest.raises(RequestTimeout, match="AllocateProducerIds"):
                await allocate(channel, 0.2)
            channel.close()
        with pytest.raises(RequestTimeout, match="knows of no controller"):
            await allocate(BrokerToControllerChannel(network(), lambda: None), 0.05)

    asyncio.run(run())


def test_a_controller_that_is_too_old_is_asked_once() -> None:
    """Whoever asks knows how things were done before."""

    async def run() -> None:
        async with ScriptedBroker(lambda key, request: SILENCE, offered=(18,)) as broker:
            at = BrokerInfo(BrokerId(1), 1, (Endpoint("PLAINTEXT", "127.0.0.1", broker.port),))
            channel = BrokerToControllerChannel(network(), lambda: at)
            with pytest.raises(UnsupportedVersionError, match="does not offer AllocateProducerIds"):
                await allocate(channel, 30.0)
            channel.close()

    asyncio.run(run())


def test_a_stop_does_not_wait_for_a_controller_that_nobody_knows() -> None:
    async def run() -> None:
        with pytest.raises(NoConnection, match="knows of no controller"):
            await ControllerClient(network(), ClusterImage).controlled_shutdown(BrokerId(0), 1)

    asyncio.run(run())


class AskedController:
    """A controller that answers as a test says; without an answer it is silent for ever."""

    def __init__(self, *answers: Sequence[TopicPartition] | Exception) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def ask(self) -> Sequence[TopicPartition]:
        self.asked += 1
        if not self._answers:
            await asyncio.Event().wait()
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


SETTINGS = BrokerSettings({"controlled.shutdown.retry.backoff.ms": "1"})
LEFT = [TopicPartition("orders", 0)]


def leave(controller: AskedController, lease_s: float) -> bool:
    async def run() -> bool:
        lease = SessionLease(asyncio.get_running_loop().time, lease_s)
        async with asyncio.timeout(30):
            return await move_leaders_away(SETTINGS, lambda: lease, controller.ask)

    return asyncio.run(run())


def test_leaders_are_moved_away_in_a_few_attempts() -> None:
    moved = AskedController(NoConnection("it went away"), LEFT, [])
    assert leave(moved, lease_s=60.0)
    assert moved.asked == 3
    stuck = AskedController(LEFT, LEFT, LEFT)
    assert not leave(stuck, lease_s=60.0)
    assert stuck.asked == 3


def test_the_last_broker_does_not_wait_for_others() -> None:
    asked = AskedController(LEFT, LEFT, LEFT)
    slow = BrokerSettings({"controlled.shutdown.retry.backoff.ms": "60000"})
    looks = iter([False, False, True, True])

    async def run() -> bool:
        lease = SessionLease(asyncio.get_running_loop().time, 60.0)
        async with asyncio.timeout(30):
            return await move_leaders_away(slow, lambda: lease, asked.ask, lambda: next(looks))

    assert not asyncio.run(run())
    assert asked.asked == 1


def test_a_stop_waits_no_longer_than_its_session_lasts(caplog: pytest.LogCaptureFixture) -> None:
    silent = AskedController()
    assert not leave(silent, lease_s=0.05)
    assert silent.asked == 1
    assert [record.getMessage() for record in caplog.records] == [
        "stopping without a controlled shutdown: the coordination store has not answered within the session timeout"
    ]
    unasked = AskedController([])
    assert not leave(unasked, lease_s=0.0)
    assert unasked.asked == 0


IDS = {"t": b"t" * 16, "u": b"u" * 16}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_isr_changes_in_every_version(version: int) -> None:
    def change(topic: str, index: int) -> PartitionChange:
        return PartitionChange(
            TopicPartition(topic, index), LeaderEpoch(4), ((BrokerId(1), -1), (BrokerId(2), 22)), 7, 0
        )

    changes = [change("t", 0), change("u", 1), change("t", 2), change("unknown", 0)]
    request = alter_partition_request(BrokerId(1), 11, changes, IDS, version)
    writer = Writer()
    request.encode(writer, version)
    encoded = writer.getvalue()
    decoded = AlterPartitionRequest.decode(Reader(encoded, 0, len(encoded)), version)
    named = [
        (topic.topic_id if version >= 2 else topic.topic_name, [each.partition_index for each in topic.partitions])
        for topic in decoded.topics
    ]
    by_name = [("t", [0, 2]), ("u", [1]), ("unknown", [0])]
    by_id = [(IDS["t"], [0, 2]), (IDS["u"], [1])]
    assert named == (by_id if version >= 2 else by_name)
    first = decoded.topics[0].partitions[0]
    assert (first.leader_epoch, first.partition_epoch) == (4, 7)
    assert [(each.broker_id, each.broker_epoch) for each in first.new_isr_with_epochs] == (
        [(1, -1), (2, 22)] if version >= 3 else []
    )
    assert first.new_isr == ([] if version >= 3 else [1, 2])


def test_what_the_controller_says_of_isr_changes() -> None:
    response = AlterPartitionResponse(
        topics=[
            ResponseTopicData(
                topic_id=IDS["t"],
                partitions=[
                    ResponsePartitionData(
                        partition_index=0, leader_id=1, leader_epoch=4, isr=[1, 2], partition_epoch=8
                    ),
                    ResponsePartitionData(partition_index=1, error_code=InvalidUpdateVersionError.code),
                ],
            ),
            ResponseTopicData(topic_id=b"?" * 16, partitions=[ResponsePartitionData(partition_index=0)]),
        ]
    )
    stored, refused = read_alter_partition(response, {IDS["t"]: "t"})
    assert stored.info is not None
    assert (stored.partition, stored.info.isr, stored.info.partition_epoch) == (TopicPartition("t", 0), (1, 2), 8)
    assert (refused.partition, type(refused.error)) == (TopicPartition("t", 1), InvalidUpdateVersionError)
