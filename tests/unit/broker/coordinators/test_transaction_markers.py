"""The manager of transaction markers, with a coordinator shard of its own and partitions that obey."""

from __future__ import annotations

import pytest

from braidlog.broker.coordinators.transaction_markers import error_code_for_version
from braidlog.coordinator.txn.transaction_metadata import TransactionState
from braidlog.core.protocol_errors import (
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    NotEnoughReplicasError,
    ProducerFencedError,
    ProtocolError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
)
from support.transaction_world import P0, P1, PRODUCER, TransactionWorld


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


def test_an_end_writes_every_marker_and_completes(world: TransactionWorld) -> None:
    world.check(P0, P1, add=True)
    world.end()
    assert world.partitions.written == [(P0, PRODUCER, 1, True, 5), (P1, PRODUCER, 1, True, 5)]
    assert world.state == TransactionState.CompleteCommit
    assert world.timers == []


def test_what_failed_is_tried_again_with_longer_and_longer_pauses(world: TransactionWorld) -> None:
    world.check(P0, P1, add=True)
    world.partitions.refusing[P1] = NotEnoughReplicasError()
    world.end()
    pauses = [world.pass_time() for _ in range(9)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.1, 5.0)
    assert world.state == TransactionState.PrepareCommit
    world.partitions.refusing.clear()
    world.pass_time()
    assert world.state == TransactionState.CompleteCommit
    assert [entry[0] for entry in world.partitions.written] == [P0, P1], "each once"


def test_what_goes_on_failing_is_said_again_and_again(
    world: TransactionWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.check(P0, add=True)
    world.partitions.refusing[P0] = NotEnoughReplicasError("too few replicas")
    world.end()
    for _ in range(25):
        world.pass_time()
    said = [record.getMessage() for record in caplog.records if "could not be marked yet" in record.getMessage()]
    assert [line.partition("yet")[2] for line in said] == [
        ": NOT_ENOUGH_REPLICAS: too few replicas",
        ", after 13 tries: NOT_ENOUGH_REPLICAS: too few replicas",
        ", after 25 tries: NOT_ENOUGH_REPLICAS: too few replicas",
    ]


def test_a_partition_that_is_gone_needs_no_marker(world: TransactionWorld) -> None:
    world.check(P0, P1, add=True)
    world.partitions.refusing[P1] = UnknownTopicOrPartitionError()
    world.gone = {P1}
    world.end()
    assert world.state == TransactionState.CompleteCommit


def test_a_partition_that_is_not_known_yet_gets_its_marker_later(world: TransactionWorld) -> None:
    world.check(P0, P1, add=True)
    world.partitions.refusing[P1] = UnknownTopicOrPartitionError()
    world.end()
    for _ in range(3):
        world.pass_time()
    assert world.state == TransactionState.PrepareCommit
    world.partitions.refusing.clear()
    world.pass_time()
    assert world.state == TransactionState.CompleteCommit
    assert [entry[0] for entry in world.partitions.written] == [P0, P1]


def test_a_partition_that_has_seen_a_newer_epoch_is_asked_until_it_is_gone(world: TransactionWorld) -> None:
    world.check(P0, P1, add=True)
    world.partitions.refusing[P1] = InvalidProducerEpochError()
    world.end()
    for _ in range(20):
        world.pass_time()
    assert world.state == TransactionState.PrepareCommit
    world.partitions.refusing[P1] = UnknownTopicOrPartitionError()
    world.gone = {P1}
    world.pass_time()
    assert world.state == TransactionState.CompleteCommit
    assert world.timers == []


def test_a_newer_coordinator_is_left_to_it(world: TransactionWorld) -> None:
    world.check(P0, P1, add=True)
    world.partitions.refusing[P1] = TransactionCoordinatorFencedError()
    world.end()
    assert world.state == TransactionState.PrepareCommit
    assert world.timers == []


def test_a_coordinator_that_lost_its_partition_stops_trying(world: TransactionWorld) -> None:
    world.check(P0, add=True)
    world.partitions.refusing[P0] = NotEnoughReplicasError()
    world.end()
    world.shards.gone = True
    world.pass_time()
    assert world.timers == []


@pytest.mark.parametrize(
    ("error", "version", "reported"),
    [
        (ProducerFencedError(), 2, 90),
        (ProducerFencedError(), 1, 47),
        (InvalidProducerIdMappingError(), 3, 49),
    ],
)
def test_clients_get_the_error_that_their_version_knows(error: ProtocolError, version: int, reported: int) -> None:
    assert error_code_for_version(error, version, 2) == reported


def test_a_topic_of_an_old_format_needs_no_marker(world: TransactionWorld) -> None:
    world.check(P0, P1, add=True)
    world.partitions.refusing[P1] = UnsupportedForMessageFormatError()
    world.end()
    assert world.state == TransactionState.CompleteCommit
    assert world.timers == []
