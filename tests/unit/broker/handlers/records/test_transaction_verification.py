"""Transactional batches on their way into a partition: when the coordinator is asked, and what its answer does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.broker.handlers.records.transaction_verification import error_for_version
from braidlog.core.protocol_errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    ProtocolError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import TopicPartition
from braidlog.net.channel import ANONYMOUS
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from braidlog.wire.message import Message
from support.authorized_broker import CountingAuthorizer, allow
from support.data_path import TOPIC, TOPIC_ID, DataPath, Peer, batch, produce_request


@pytest.fixture
def world(tmp_path: Path) -> Iterator[DataPath]:
    made = DataPath(tmp_path)
    yield made
    made.close()


def codes(response: Message) -> list[int]:
    assert isinstance(response, ProduceResponse)
    return [partition.error_code for topic in response.responses for partition in topic.partition_responses]


# When the coordinator is asked


@pytest.mark.parametrize(("version", "adds"), [(3, False), (10, False), (11, False), (12, True), (13, True)])
def test_the_first_batch_asks_and_the_next_ones_do_not(world: DataPath, version: int, adds: bool) -> None:
    assert world.produce(batch(b"a"), version=version).error_code == 0
    assert world.coordinator.asked == [("t", 7, 0, [TopicPartition("orders", 0)], adds)]
    assert world.produce(batch(b"b", sequence=1), version=version).base_offset == 1
    assert len(world.coordinator.asked) == 1


def test_the_next_transaction_asks_again(world: DataPath) -> None:
    world.produce(batch(b"a"))
    world.end(7, 0, commits=True)
    world.produce(batch(b"b", sequence=1))
    assert len(world.coordinator.asked) == 2


def test_only_partitions_without_an_open_transaction_are_asked_about(world: DataPath) -> None:
    world.produce(batch(b"a"))
    response = Peer(world).call(0, 11, produce_request({0: batch(b"b", sequence=1), 1: batch(b"c")}))
    assert codes(response) == [0, 0]
    assert world.coordinator.asked[1][3] == [TopicPartition("orders", 1)]


def test_plain_batches_are_nobodys_business(world: DataPath) -> None:
    assert world.produce(batch(b"a", transactional=False), transactional_id=None).error_code == 0
    assert world.produce(batch(b"b", transactional=False, sequence=1), transactional_id="t").error_code == 0
    assert world.coordinator.asked == []


def test_without_verification_nobody_is_asked_but_adding_goes_on(world: DataPath) -> None:
    world.produce_handler.verifies = lambda: False
    world.coordinator.at_once = TransactionAbortableError()
    assert world.produce(batch(b"a"), version=11).error_code == 0
    assert world.coordinator.asked == []
    world.end(7, 0, commits=True)
    assert world.produce(batch(b"b", sequence=1), version=12).error_code == TransactionAbortableError.code


def test_a_batch_without_its_transactional_id_refuses_the_whole_request(world: DataPath) -> None:
    request = produce_request({0: batch(b"a"), 1: batch(b"b", transactional=False)}, transactional_id=None)
    assert codes(Peer(world).call(0, 11, request)) == [TransactionalIdAuthorizationFailedError.code] * 2
    assert world.log().log_end_offset == world.log(1).log_end_offset == 0


def test_two_producers_in_one_request_are_refused(world: DataPath) -> None:
    request = produce_request({0: batch(b"a", producer_id=7), 1: batch(b"b", producer_id=8)})
    assert codes(Peer(world).call(0, 11, request)) == [InvalidProducerIdMappingError.code] * 2
    assert world.coordinator.asked == []


def test_a_partition_that_is_not_here_says_so_itself(world: DataPath) -> None:
    request = produce_request({0: batch(b"a"), 9: batch(b"b")})
    assert codes(Peer(world).call(0, 11, request)) == [0, UnknownTopicOrPartitionError.code]
    assert world.coordinator.asked[0][3] == [TopicPartition("orders", 0)]


def test_a_broker_without_coordinators_asks_to_come_again(world: DataPath) -> None:
    world.produce_handler.add_or_verify = None
    assert world.produce(batch(b"a")).error_code == NotEnoughReplicasError.code


# What the answer does


@pytest.mark.parametrize(
    ("error", "version", "code"),
    [
        (TransactionAbortableError(), 10, InvalidTxnStateError.code),
        (TransactionAbortableError(), 11, TransactionAbortableError.code),
        (InvalidTxnStateError(), 11, InvalidTxnStateError.code),
        (ProducerFencedError(), 9, InvalidProducerEpochError.code),
        (InvalidProducerEpochError(), 9, InvalidProducerEpochError.code),
        (InvalidProducerIdMappingError(), 9, InvalidProducerIdMappingError.code),
        (ConcurrentTransactionsError(), 9, NotEnoughReplicasError.code),
        (CoordinatorLoadInProgressError(), 12, NotEnoughReplicasError.code),
        (NotCoordinatorError(), 3, NotEnoughReplicasError.code),
    ],
)
def test_errors_are_told_in_the_words_of_the_version(
    world: DataPath, error: ProtocolError, version: int, code: int
) -> None:
    assert error_for_version(error, version).code == code
    world.coordinator.at_once = error
    answer = world.produce(batch(b"a"), version=version)
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (code, -1, -1)
    assert world.log().log_end_offset == 0


def test_the_answer_may_take_its_time_and_the_connection_waits_for_it(world: DataPath) -> None:
    world.coordinator.waits = True
    peer = Peer(world)
    peer.ask(0, 11, produce_request({0: batch(b"a")}))
    peer.ask(0, 11, produce_request({0: batch(b"b", sequence=1)}))
    world.steps.run()
    assert peer.muted
    assert world.log().log_end_offset == 0
    world.coordinator.answer()
    world.steps.run()
    assert [codes(answer) for answer in peer.answers] == [[0], [0]]
    assert world.log().log_end_offset == 2
    # The second one found the transaction open.
    assert len(world.coordinator.asked) == 1
    assert not peer.muted


def test_a_peer_that_left_meanwhile_has_produced_all_the_same(world: DataPath) -> None:
    world.coordinator.waits = True
    peer = Peer(world)
    peer.ask(0, 11, produce_request({0: batch(b"a")}))
    peer.close("gone")
    world.coordinator.answer()
    world.steps.run()
    assert world.log().log_end_offset == 1


def test_a_topic_that_was_deleted_meanwhile_is_unknown(world: DataPath) -> None:
    world.coordinator.waits = True
    peer = Peer(world)
    peer.ask(0, 11, produce_request({0: batch(b"a")}))
    world.registry.remove("orders", 0)
    world.coordinator.answer()
    world.steps.run()
    assert codes(peer.answers[0]) == [UnknownTopicOrPartitionError.code]


def test_acks_of_0_get_no_answer_and_an_error_closes_the_connection(world: DataPath) -> None:
    peer = Peer(world)
    peer.ask(0, 11, produce_request({0: batch(b"a")}, acks=0))
    world.steps.run()
    assert world.log().log_end_offset == 1
    assert not peer.closed
    world.end(7, 0, commits=True)
    world.coordinator.at_once = TransactionAbortableError()
    peer.ask(0, 11, produce_request({0: batch(b"b", sequence=1)}, acks=0))
    world.steps.run()
    assert peer.closed


def test_who_waited_for_the_end_of_the_last_transaction_asks_once_more(world: DataPath) -> None:
    """Its marker came meanwhile, so what was held when the question was put is worth nothing any more."""
    world.produce(batch(b"a"), version=12)
    world.coordinator.waits = True
    peer = Peer(world)
    peer.ask(0, 12, produce_request({0: batch(b"b", epoch=1)}))
    world.end(7, 1, commits=True)
    world.coordinator.answer()
    world.steps.run()
    assert not peer.answers
    world.coordinator.answer()
    world.steps.run()
    assert codes(peer.answers[0]) == [0]
    assert not peer.muted


def test_markers_without_end_do_not_make_it_ask_for_ever(world: DataPath) -> None:
    world.coordinator.waits = True
    peer = Peer(world)
    peer.ask(0, 12, produce_request({0: batch(b"a")}))
    for _ in range(5):
        assert not peer.answers
        world.end(7, 0, commits=True)
        world.coordinator.answer()
        world.steps.run()
    assert codes(peer.answers[0]) == [InvalidTxnStateError.code]


# What must not happen while the coordinator is asked


def test_a_marker_in_between_refuses_the_batch(world: DataPath) -> None:
    """Else it would begin a transaction that nobody ends."""
    world.coordinator.waits = True
    peer = Peer(world)
    peer.ask(0, 11, produce_request({0: batch(b"late")}))
    assert world.end(7, 0, commits=False) == {0: 0}
    world.coordinator.answer()
    world.steps.run()
    assert codes(peer.answers[0]) == [InvalidTxnStateError.code]
    assert world.log().producer_state.first_unstable_offset() == -1


def test_a_marker_in_between_refuses_also_what_needed_no_answer(world: DataPath) -> None:
    world.produce(batch(b"a"))
    world.coordinator.waits = True
    peer = Peer(world)
    peer.ask(0, 11, produce_request({0: batch(b"late", sequence=1), 1: batch(b"new")}))
    world.end(7, 0, commits=True)
    world.coordinator.answer()
    world.steps.run()
    assert codes(peer.answers[0]) == [InvalidTxnStateError.code, 0]


def test_a_newer_epoch_in_between_fences_the_batch(world: DataPath) -> None:
    world.coordinator.waits = True
    peer = Peer(world)
    peer.ask(0, 11, produce_request({0: batch(b"zombie")}))
    world.end(7, 1, commits=False)
    world.coordinator.answer()
    world.steps.run()
    assert codes(peer.answers[0]) == [InvalidTxnStateError.code]


def test_a_later_batch_of_another_connection_does_not_overtake(world: DataPath) -> None:
    world.coordinator.waits = True
    first, second = Peer(world), Peer(world)
    first.ask(0, 11, produce_request({0: batch(b"a")}))
    second.ask(0, 11, produce_request({0: batch(b"b", sequence=1)}))
    world.coordinator.answer()
    first_done = list(first.answers)
    world.coordinator.answer()
    world.steps.run()
    assert first_done == []
    assert codes(first.answers[0]) == codes(second.answers[0]) == [0]


def test_a_later_batch_that_is_answered_first_is_out_of_order(world: DataPath) -> None:
    world.coordinator.waits = True
    first, second = Peer(world), Peer(world)
    second.ask(0, 11, produce_request({0: batch(b"b", sequence=1)}))
    first.ask(0, 11, produce_request({0: batch(b"a")}))
    world.coordinator.answer()
    world.steps.run()
    assert codes(second.answers[0]) == [OutOfOrderSequenceNumberError.code]
    world.coordinator.answer()
    world.steps.run()
    assert codes(first.answers[0]) == [0]


# Epochs and duplicates


def test_a_duplicate_gets_its_offset_and_begins_nothing(world: DataPath) -> None:
    """A retry of the first transaction that arrives while the second has the partition, but no data in it yet."""
    world.produce(batch(b"a"))
    world.end(7, 0, commits=True)
    assert world.produce(batch(b"a")).base_offset == 0
    assert world.log().producer_state.first_unstable_offset() == -1
    assert world.log().log_end_offset == 2


def test_epochs_that_rise_with_every_transaction(world: DataPath) -> None:
    """KIP-890: the marker carries the next epoch, with which the producer starts again at sequence 0."""
    world.produce(batch(b"a", epoch=0), version=12)
    world.end(7, 1, commits=True)
    # Late, and a retry: both are of an epoch that is over.
    for sequence in (0, 1):
        late = world.produce(batch(b"late", epoch=0, sequence=sequence), version=12)
        assert late.error_code == InvalidProducerEpochError.code
    assert world.produce(batch(b"b", epoch=1, sequence=3), version=12).error_code == OutOfOrderSequenceNumberError.code
    assert world.produce(batch(b"b", epoch=1), version=12).base_offset == 2
    world.end(7, 2, commits=False)
    assert world.log().producer_state.first_unstable_offset() == -1
    assert [txn.first_offset for txn in world.log().aborted_transactions(0, 10)] == [2]


def test_a_producer_that_skipped_an_epoch_here_starts_at_0(world: DataPath) -> None:
    world.produce(batch(b"a", epoch=0), version=12)
    world.end(7, 1, commits=True)
    assert world.produce(batch(b"b", epoch=5, sequence=1), version=12).error_code == OutOfOrderSequenceNumberError.code
    assert world.produce(batch(b"b", epoch=5), version=12).error_code == 0


# Access

OTHER_ID = b"p" * 16
MAY_USE_ID = allow(AclResourceType.TRANSACTIONAL_ID, "t", AclOperation.WRITE, ANONYMOUS)
MAY_WRITE = allow(AclResourceType.TOPIC, TOPIC, AclOperation.WRITE, ANONYMOUS)


def to_both() -> ProduceRequest:
    return ProduceRequest(
        transactional_id="t",
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=name, topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=batch(b"x"))]
            )
            for name, topic_id in ((TOPIC, TOPIC_ID), ("payments", OTHER_ID))
        ],
    )


def answered(peer: Peer) -> list[int]:
    response = peer.answers.popleft()
    assert isinstance(response, ProduceResponse)
    return [topic.partition_responses[0].error_code for topic in response.responses]


def test_partitions_of_topics_that_may_not_be_written_to_do_not_join_the_transaction(tmp_path: Path) -> None:
    world = DataPath(tmp_path, authorizer=CountingAuthorizer(MAY_USE_ID, MAY_WRITE))
    world.add_partition("payments", 0, OTHER_ID)
    peer = Peer(world)
    peer.ask(0, 12, to_both())
    world.steps.run()
    assert answered(peer) == [0, TopicAuthorizationFailedError.code]
    assert [asked[3] for asked in world.coordinator.asked] == [[TopicPartition(TOPIC, 0)]]
    world.close()


def test_who_may_not_use_the_id_is_refused_before_the_coordinator_is_asked(tmp_path: Path) -> None:
    world = DataPath(tmp_path, authorizer=CountingAuthorizer(MAY_WRITE))
    peer = Peer(world)
    peer.ask(0, 12, to_both())
    world.steps.run()
    assert answered(peer) == [TransactionalIdAuthorizationFailedError.code] * 2
    assert world.coordinator.asked == []
    world.close()


def test_a_topic_that_becomes_known_while_the_coordinator_is_asked_is_not_written_to(tmp_path: Path) -> None:
    world = DataPath(tmp_path, authorizer=CountingAuthorizer(MAY_USE_ID, MAY_WRITE))
    world.coordinator.waits = True
    peer = Peer(world)
    peer.ask(0, 13, to_both())
    world.steps.run()
    late = world.add_partition("payments", 0, OTHER_ID)
    world.coordinator.answer()
    world.steps.run()
    assert answered(peer) == [0, TopicAuthorizationFailedError.code]
    assert late.require_log().log_end_offset == 0
    world.close()
