"""Markers into partitions, and the request that asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.config.log_settings import LogSettings
from braidlog.coordinator.effects import SendMarkers
from braidlog.core.protocol_errors import (
    InvalidProducerEpochError,
    InvalidRequestError,
    KafkaStorageError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
)
from braidlog.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from support.data_path import DataPath, Peer, batch

OFFSETS = "__consumer_offsets"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[DataPath]:
    made = DataPath(tmp_path)
    yield made
    made.close()


def marker(
    topics: dict[str, list[int]],
    *,
    producer_id: int = 7,
    epoch: int = 0,
    commits: bool = True,
    coordinator_epoch: int = 0,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commits,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
        coordinator_epoch=coordinator_epoch,
    )


def write(world: DataPath, *markers: WritableTxnMarker, version: int = 1) -> dict[tuple[int, str, int], int]:
    response = Peer(world).call(27, version, WriteTxnMarkersRequest(markers=list(markers)))
    assert isinstance(response, WriteTxnMarkersResponse)
    return {
        (result.producer_id, topic.name, partition.partition_index): partition.error_code
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_ends_the_transaction_in_each_partition(world: DataPath, version: int) -> None:
    world.produce(batch(b"a"))
    assert write(world, marker({"orders": [0, 1]}, commits=False), version=version) == {
        (7, "orders", 0): 0,
        (7, "orders", 1): 0,
    }
    assert world.log().producer_state.first_unstable_offset() == -1
    assert [txn.first_offset for txn in world.log().aborted_transactions(0, 10)] == [0]
    # Nothing was open there: the marker is written all the same, and nothing was aborted.
    assert world.log(1).log_end_offset == 1
    assert world.log(1).aborted_transactions(0, 10) == []


def test_producers_are_answered_one_by_one(world: DataPath) -> None:
    world.produce(batch(b"a"))
    assert write(world, marker({"orders": [0]}), marker({"orders": [0, 5]}, producer_id=8)) == {
        (7, "orders", 0): 0,
        (8, "orders", 0): 0,
        (8, "orders", 5): UnknownTopicOrPartitionError.code,
    }


def test_nothing_asked_is_nothing_answered(world: DataPath) -> None:
    assert write(world) == {}
    assert write(world, marker({})) == {}


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (-1, -1), (7, -1), (-(1 << 63), 0)])
def test_a_marker_of_nobody_is_refused(world: DataPath, producer_id: int, epoch: int) -> None:
    refused = write(world, marker({"orders": [0], OFFSETS: [3]}, producer_id=producer_id, epoch=epoch))
    assert set(refused.values()) == {InvalidRequestError.code}
    assert len(refused) == 2
    assert world.log().log_end_offset == 0
    assert world.offsets.written == []


def test_a_partition_that_is_named_often_gets_one_marker(world: DataPath) -> None:
    assert write(world, marker({"orders": [0] * 1000})) == {(7, "orders", 0): 0}
    assert world.log().log_end_offset == 1


def test_a_marker_of_an_old_epoch_is_refused(world: DataPath) -> None:
    world.produce(batch(b"a", epoch=2))
    assert write(world, marker({"orders": [0]}, epoch=1)) == {(7, "orders", 0): InvalidProducerEpochError.code}
    assert world.log().producer_state.first_unstable_offset() == 0


def test_a_marker_of_an_old_coordinator_is_refused(world: DataPath) -> None:
    world.end(7, 0, commits=True, coordinator_epoch=5)
    refused = write(world, marker({"orders": [0]}, coordinator_epoch=4))
    assert refused == {(7, "orders", 0): TransactionCoordinatorFencedError.code}
    assert world.log().log_end_offset == 1


def test_a_marker_that_comes_again_does_nothing(world: DataPath) -> None:
    world.produce(batch(b"a"))
    for _ in range(2):
        assert write(world, marker({"orders": [0]}, commits=False)) == {(7, "orders", 0): 0}
    assert len(world.log().aborted_transactions(0, 10)) == 1


def test_a_partition_that_is_led_elsewhere_or_nowhere(world: DataPath) -> None:
    world.partitions[0].leader = 2
    world.partitions[1].log, log = None, world.log(1)
    assert write(world, marker({"orders": [0, 1], "gone": [0]})) == {
        (7, "orders", 0): NotLeaderOrFollowerError.code,
        (7, "orders", 1): KafkaStorageError.code,
        (7, "gone", 0): UnknownTopicOrPartitionError.code,
    }
    world.partitions[1].log = log


def test_too_few_replicas_refuse_a_marker_as_they_refuse_data(tmp_path: Path) -> None:
    world = DataPath(tmp_path, LogSettings(min_insync_replicas=2))
    world.partitions[0].replicas = (1, 2)
    assert write(world, marker({"orders": [0]})) == {(7, "orders", 0): NotEnoughReplicasError.code}
    world.close()


def test_a_disk_that_fails_refuses_it(world: DataPath) -> None:
    world.produce(batch(b"a"))
    reported: list[int] = []
    markers = SendMarkers("", 7, 0, True, [world.log().topic_partition], 0)
    world.markers.write(markers, lambda _, error: reported.append(error.code if error else 0))
    world.partitions[0].log, log = None, world.log()
    world.steps.run()
    assert reported == [KafkaStorageError.code]
    world.partitions[0].log = log


def test_a_marker_that_is_not_committed_in_time_is_told_so_once(world: DataPath) -> None:
    reported: list[int] = []
    markers = SendMarkers("", 7, 0, True, [world.log().topic_partition], 0)
    world.markers.write(markers, lambda _, error: reported.append(error.code if error else 0))
    world.clock.advance(30)
    world.marker_timers.wait()
    assert reported == [RequestTimedOutError.code]
    world.steps.run()
    assert reported == [RequestTimedOutError.code]
    assert world.log().log_end_offset == 1, "it is written all the same"


def test_offsets_are_ended_by_their_coordinator(world: DataPath) -> None:
    partition = world.add_partition(OFFSETS, 3, b"o" * 16)
    assert write(world, marker({OFFSETS: [3, 4]}, epoch=2, coordinator_epoch=6)) == {
        (7, OFFSETS, 3): 0,
        (7, OFFSETS, 4): UnknownTopicOrPartitionError.code,
    }
    assert world.offsets.written == [(3, 7, 2, True, 6)]
    assert partition.require_log().log_end_offset == 0


def test_a_group_coordinator_that_is_not_ready_counts_as_no_leader(world: DataPath) -> None:
    world.add_partition(OFFSETS, 3, b"o" * 16)
    world.offsets.error = NotLeaderOrFollowerError("wait")
    assert write(world, marker({OFFSETS: [3]})) == {(7, OFFSETS, 3): NotLeaderOrFollowerError.code}


def test_markers_are_no_records_that_somebody_produced(world: DataPath) -> None:
    write(world, marker({"orders": [0]}))
    meter = world.partitions[0].meter
    assert (meter.messages_in, meter.bytes_in, meter.produces) == (0, 0, 0)
