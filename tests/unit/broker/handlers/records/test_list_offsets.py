from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.core.protocol_errors import (
    LeaderNotAvailableError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    TopicAuthorizationFailedError,
    UnsupportedForMessageFormatError,
)
from braidlog.security.acls import AclOperation
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from support.asked_broker import AskedBroker, on_broker
from support.authorized_broker import RestrictedBroker, allow_topic
from support.data_path import START_MS, DataPath, Peer, batch
from support.log_kit import as_slice


@pytest.fixture
def world(tmp_path: Path) -> Iterator[DataPath]:
    made = DataPath(tmp_path)
    yield made
    made.close()


def offset(
    world: DataPath, timestamp: int, *, committed: bool, version: int = 7, replica_id: int = -1
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=1 if committed else 0,
        topics=[ListOffsetsTopic(name="orders", partitions=[wanted])],
    )
    response = Peer(world).call(2, version, request)
    assert isinstance(response, ListOffsetsResponse)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 4, 7])
def test_the_latest_offset_by_isolation(world: DataPath, version: int) -> None:
    world.produce(batch(b"before", producer_id=3, transactional=False), transactional_id=None)
    world.produce(batch(b"open", timestamp=START_MS + 5))
    assert offset(world, -1, committed=True, version=version).offset == 1
    assert offset(world, -1, committed=False, version=version).offset == 2
    world.end(7, 0, commits=False)
    assert offset(world, -1, committed=True, version=version).offset == 3


def test_a_time_inside_an_open_transaction_is_not_there_yet(world: DataPath) -> None:
    world.produce(batch(b"before", producer_id=3, transactional=False), transactional_id=None)
    world.produce(batch(b"open", timestamp=START_MS + 5))
    assert offset(world, START_MS + 5, committed=True).offset == -1
    assert offset(world, START_MS + 5, committed=False).offset == 1
    # The newest record is the open one: there is none for those who read committed data.
    assert offset(world, -3, committed=True).offset == -1
    assert offset(world, -3, committed=False).offset == 1
    world.end(7, 0, commits=True)
    assert offset(world, START_MS + 5, committed=True).offset == 1


def test_format_0_has_no_times_to_look_for(world: DataPath) -> None:
    log = world.partitions[0].require_log()
    log.update_settings(log.settings._replace(message_format_version="0.9.0"))
    for timestamp in (START_MS, -3):
        assert offset(world, timestamp, committed=False).error_code == UnsupportedForMessageFormatError.code
    world.partitions[0].leader_epoch = 5
    latest = offset(world, -1, committed=False)
    assert (latest.error_code, latest.offset, latest.leader_epoch) == (0, 0, 5)
    assert offset(world, -2, committed=False).leader_epoch == -1


def test_a_new_leader_does_not_say_what_is_latest_before_it_knows(world: DataPath) -> None:
    """KIP-207: what the leader before it had committed, and shown, is at most where its epoch began."""
    world.produce(batch(b"a", b"b", producer_id=3, transactional=False), transactional_id=None)
    partition = world.partitions[0]
    log = partition.require_log()
    log.append_as_leader(as_slice(batch(b"c", producer_id=3, sequence=2, transactional=False)), 0, now_ms=START_MS)
    log.write_staged()
    partition.update_leader_and_isr(1, 1, (1, 2), (1, 2))
    assert (log.high_watermark, log.log_end_offset) == (2, 3)
    assert offset(world, -1, committed=False).error_code == OffsetNotAvailableError.code
    assert offset(world, -1, committed=True, version=4).error_code == LeaderNotAvailableError.code
    assert offset(world, START_MS + 9, committed=False).error_code == OffsetNotAvailableError.code
    assert offset(world, START_MS, committed=False).offset == 0, "this one stays where it is"
    assert offset(world, -2, committed=False).offset == 0
    partition.follower_fetched(partition.remote_replica(2, 1), 3, 0, -1, partition.context.clock.monotonic())
    assert offset(world, -1, committed=False).offset == 3


@pytest.mark.parametrize("version", [0, 1, 7])
def test_only_who_compares_replicas_is_answered_by_a_follower(world: DataPath, version: int) -> None:
    world.produce(batch(b"a", b"b", producer_id=3, transactional=False), transactional_id=None)
    world.partitions[0].update_leader_and_isr(2, 1, (1, 2), (1, 2))
    for replica_id in (-1, 2):
        answer = offset(world, -1, committed=False, version=version, replica_id=replica_id)
        assert answer.error_code == NotLeaderOrFollowerError.code
    answer = offset(world, -1, committed=False, version=version, replica_id=-2)
    assert (answer.error_code, (answer.old_style_offsets or [answer.offset])[0]) == (0, 2)


@on_broker
async def test_topics_that_may_not_be_described_come_last(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    await restricted.admin.create("hidden")
    await restricted.admin.create("shown")
    restricted.rules(allow_topic("shown", AclOperation.DESCRIBE))
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
            for name in ("hidden", "shown", "unknown")
        ],
    )
    answer = await restricted.alice.ask(request, 7)
    found = [(topic.name, topic.partitions[0].error_code, topic.partitions[0].offset) for topic in answer.topics]
    refused = TopicAuthorizationFailedError.code
    assert found == [("shown", 0, 0), ("hidden", refused, -1), ("unknown", refused, -1)], "not even that it is unknown"
