"""The shard of transactions, operation by operation."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.coordinator.effects import Effects, Moment, Responder, SendMarkers
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.coordinator.txn import records
from braidlog.coordinator.txn.shard import TransactionCoordinatorShard
from braidlog.coordinator.txn.transaction_metadata import (
    LAST_EPOCH,
    IllegalTransactionTransitionError,
    TransactionMetadata,
    TransactionState,
    TxnSettings,
    check_transition,
)
from braidlog.core.protocol_errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    NotCoordinatorError,
    ProducerFencedError,
    ProtocolError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    TransactionalIdNotFoundError,
    UnsupportedVersionError,
)
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from braidlog.wire.generated.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from braidlog.wire.generated.end_txn import EndTxnRequest
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from braidlog.wire.generated.list_transactions import ListTransactionsRequest
from support.responders import START_MS, RecordingResponder, ShardDriver

Producer = tuple[int, int]
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
FRESH_ID = 101


class World(ShardDriver[TransactionCoordinatorShard]):
    """A shard under the id "tx", with the requests in few words."""

    def __init__(self) -> None:
        self.settings = TxnSettings(id_expiration_ms=3_600_000)
        self.next_id = FRESH_ID
        self.no_ids = False
        super().__init__(lambda: TransactionCoordinatorShard(lambda: self.settings, self.take_id, 9))

    def take_id(self) -> int:
        if self.no_ids:
            raise CoordinatorLoadInProgressError
        self.next_id += 1
        return self.next_id - 1

    @property
    def transaction(self) -> TransactionMetadata:
        return self.shard.transactions["tx"]

    def init(self, claim: Producer = (-1, -1), **fields: Any) -> RecordingResponder:
        timeout_ms = fields.pop("timeout_ms", 60_000)
        name = fields.pop("name", "tx")
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=claim[0],
            producer_epoch=claim[1],
            **fields,
        )
        return self.submit(lambda shard, responder, now: shard.init_producer_id(request, responder, now))

    def started(self) -> Producer:
        response = self.init().response
        return response.producer_id, response.producer_epoch

    def add(self, producer: Producer, *partitions: TopicPartition, version: int = 0) -> RecordingResponder:
        wanted = wanted_of(producer, partitions or (P0, P1))
        return self.submit(lambda shard, responder, now: shard.add_partitions(wanted, version, responder, now))

    def verify(self, producer: Producer, *partitions: TopicPartition) -> RecordingResponder:
        wanted = wanted_of(producer, partitions)
        return self.submit(lambda shard, responder, now: shard.verify_partitions(wanted, responder, now))

    def end(self, producer: Producer, commits: bool = True, version: int = 0) -> RecordingResponder:
        request = EndTxnRequest(
            transactional_id="tx", producer_id=producer[0], producer_epoch=producer[1], committed=commits
        )
        return self.submit(lambda shard, responder, now: shard.end_txn(request, version == 2, responder, now))

    def sent(self) -> SendMarkers:
        """The one attempt that was asked for since the last look."""
        (action,) = self.actions
        self.actions = []
        assert isinstance(action, SendMarkers)
        return action

    def confirm(self, action: SendMarkers, *partitions: TopicPartition) -> None:
        done = list(partitions or action.partitions)
        self.apply(self.shard.markers_written(action, done, self.now))

    def preset(self, **fields: Any) -> Producer:
        """Begin with a record of another time."""
        given: dict[str, Any] = {
            "producer_id": 50,
            "producer_epoch": 0,
            "timeout_ms": 60_000,
            "state": TransactionState.Empty,
            "partitions": frozenset(),
            "updated_ms": START_MS + 1_000_000,
            **fields,
        }
        transaction = TransactionMetadata("tx", **given)
        record = ReplayedRecord(0, START_MS, records.encode_key("tx"), records.encode_value(transaction))
        self.log.append(record)
        self.crash()
        return transaction.producer_id, transaction.producer_epoch

    def preset_open(self, *transactions: frozenset[TopicPartition]) -> None:
        """Begin with open transactions over these partitions, all of them too old."""
        for number, partitions in enumerate(transactions):
            name = f"tx-{number}"
            value = TransactionMetadata(
                name, number, 0, 60_000, TransactionState.Ongoing, partitions, START_MS, started_ms=START_MS
            )
            self.log.append(ReplayedRecord(0, START_MS, records.encode_key(name), records.encode_value(value)))
        self.crash()


def large(count: int) -> frozenset[TopicPartition]:
    """Partitions whose names take up 20 KB each."""
    return frozenset(TopicPartition(f"{number}".rjust(20_000, "t"), 0) for number in range(count))


def wanted_of(producer: Producer, partitions: tuple[TopicPartition, ...]) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id="tx",
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[AddPartitionsToTxnTopic(name=p.topic, partitions=[p.partition]) for p in partitions],
    )


def size_of(effects: Effects) -> int:
    return sum(len(record.key) + len(record.value or b"") for record in effects.records)


def refusal(responder: RecordingResponder) -> type[ProtocolError] | None:
    return None if responder.error is None else type(responder.error)


def reported(responder: RecordingResponder) -> Producer:
    assert responder.error is None, responder.error
    return responder.response.producer_id, responder.response.producer_epoch


@pytest.fixture
def world() -> World:
    return World()


# InitProducerId


def test_each_start_of_a_producer_gets_the_next_epoch(world: World) -> None:
    assert reported(world.init()) == (FRESH_ID, 0)
    assert reported(world.init()) == (FRESH_ID, 1)
    assert reported(world.init(name="other")) == (FRESH_ID + 1, 0)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"timeout_ms": 0}, InvalidTransactionTimeoutError),
        ({"timeout_ms": -1}, InvalidTransactionTimeoutError),
        ({"timeout_ms": 900_001}, InvalidTransactionTimeoutError),
        ({"name": ""}, InvalidRequestError),
        ({"name": None}, InvalidRequestError),
        ({"enable_2pc": True}, TransactionalIdAuthorizationFailedError),
        ({"keep_prepared_txn": True}, UnsupportedVersionError),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_no_trace(
    world: World, fields: dict[str, Any], error: type[ProtocolError]
) -> None:
    assert refusal(world.init(**fields)) is error
    assert world.log == []


def test_the_longest_timeout_is_read_anew_each_time(world: World) -> None:
    assert refusal(world.init(timeout_ms=900_001)) is InvalidTransactionTimeoutError
    world.settings = TxnSettings(max_timeout_ms=1_000_000)
    assert refusal(world.init(timeout_ms=900_001)) is None


def test_without_a_producer_id_at_hand_the_client_tries_again(world: World) -> None:
    world.no_ids = True
    assert refusal(world.init()) is CoordinatorLoadInProgressError
    assert world.log == []


def test_a_producer_that_recovers_gets_the_next_epoch_and_a_lost_answer_again(world: World) -> None:
    first = world.started()
    second = reported(world.init(first))
    assert second == (FRESH_ID, 1)
    assert reported(world.init(first)) == second
    world.crash()
    assert reported(world.init(first)) == second, "a restart must not make a zombie of it"


def test_a_zombie_that_recovers_is_fenced(world: World) -> None:
    zombie = world.started()
    world.started()
    assert refusal(world.init(zombie)) is ProducerFencedError
    assert refusal(world.init((999, 0))) is ProducerFencedError


def test_a_zombie_that_recovers_does_not_touch_an_open_transaction(world: World) -> None:
    zombie = world.started()
    producer = world.started()
    world.add(producer)
    assert refusal(world.init(zombie)) is ProducerFencedError
    assert world.transaction.state == TransactionState.Ongoing


def test_a_late_copy_of_a_recovery_does_not_touch_the_transaction_that_followed(world: World) -> None:
    before = world.started()
    producer = reported(world.init(before))
    world.add(producer)
    assert reported(world.init(before)) == producer
    assert world.transaction.state == TransactionState.Ongoing


def test_a_new_producer_aborts_what_is_open_and_is_told_to_come_back(world: World) -> None:
    zombie = world.started()
    world.add(zombie)
    assert refusal(world.init()) is ConcurrentTransactionsError
    action = world.sent()
    assert (action.producer_id, action.producer_epoch, action.commits) == (FRESH_ID, 1, False)
    assert action.partitions == [P0, P1]
    assert action.coordinator_epoch == 9
    assert refusal(world.init()) is ConcurrentTransactionsError
    assert world.actions == [], "the markers are on their way already"
    world.confirm(action)
    assert reported(world.init()) == (FRESH_ID, 2)
    assert refusal(world.add(zombie)) is ProducerFencedError
    assert refusal(world.end(zombie)) is ProducerFencedError


@pytest.mark.parametrize("version", [0, 2])
def test_a_producer_that_was_replaced_has_no_way_back(world: World, version: int) -> None:
    """It would begin anew each time, and whoever takes its place would never be let in."""
    zombie = world.started()
    world.add(zombie, version=version)
    assert refusal(world.init()) is ConcurrentTransactionsError
    action = world.sent()
    assert refusal(world.end(zombie, commits=False, version=version)) is ProducerFencedError
    world.confirm(action)
    assert refusal(world.end(zombie, commits=False, version=version)) is ProducerFencedError
    assert refusal(world.end(zombie, commits=True, version=version)) is ProducerFencedError
    assert reported(world.init()) == (FRESH_ID, 2)


def test_a_producer_that_recovers_from_an_open_transaction_goes_on(world: World) -> None:
    producer = world.started()
    world.add(producer, version=2)
    assert refusal(world.init(producer)) is ConcurrentTransactionsError
    world.confirm(world.sent())
    assert reported(world.init(producer)) == (FRESH_ID, 1)


def test_used_up_epochs_lead_to_a_new_producer_id(world: World) -> None:
    last = world.preset(producer_epoch=LAST_EPOCH)
    renewed = reported(world.init(last))
    assert renewed == (FRESH_ID, 0)
    assert reported(world.init(last)) == renewed, "the answer was lost"
    assert reported(world.init(last)) == renewed, "and once more"
    world.add(renewed)
    assert refusal(world.init(last)) is ProducerFencedError
    assert world.transaction.state == TransactionState.Ongoing


def test_fencing_takes_the_epoch_that_no_producer_gets(world: World) -> None:
    last = world.preset(producer_epoch=LAST_EPOCH)
    world.add(last)
    world.init()
    action = world.sent()
    assert action.producer_epoch == LAST_EPOCH + 1
    world.confirm(action)
    assert refusal(world.add((last[0], LAST_EPOCH + 1))) is ProducerFencedError, "nor may one take it"
    assert reported(world.init()) == (FRESH_ID, 0)


# Partitions


def test_partitions_join_once(world: World) -> None:
    producer = world.started()
    responder = world.add(producer, P0, P1)
    assert [t.name for t in responder.response.topic_results] == ["t"]
    results = responder.response.topic_results[0].results_by_partition
    assert [(r.partition_index, r.partition_error_code) for r in results] == [(0, 0), (1, 0)]
    written = len(world.log)
    assert refusal(world.add(producer, P1)) is None
    assert len(world.log) == written
    world.add(producer, TopicPartition("u", 3))
    assert world.transaction.partitions == frozenset([P0, P1, TopicPartition("u", 3)])


def test_who_may_not_add_partitions(world: World) -> None:
    assert refusal(world.add((1, 0))) is InvalidProducerIdMappingError
    producer = world.started()
    assert refusal(world.add((999, 0))) is InvalidProducerIdMappingError
    assert refusal(world.add((FRESH_ID, 1))) is ProducerFencedError
    world.add(producer)
    world.end(producer)
    assert refusal(world.add(producer)) is ConcurrentTransactionsError


def test_the_offsets_of_a_group_join_by_their_partition(world: World) -> None:
    producer = world.started()
    request = AddOffsetsToTxnRequest(transactional_id="tx", producer_id=producer[0], group_id="g")
    responder = world.submit(lambda shard, responder, now: shard.add_offsets(request, 17, responder, now))
    assert responder.error_code == 0
    assert world.transaction.partitions == frozenset([TopicPartition("__consumer_offsets", 17)])


def test_verification_tells_what_is_in_the_transaction(world: World) -> None:
    producer = world.started()
    assert codes(world.verify(producer, P0)) == [TransactionAbortableError.code]
    world.add(producer, P0)
    assert codes(world.verify(producer, P0, P1)) == [0, TransactionAbortableError.code]
    assert refusal(world.verify((FRESH_ID, 5), P0)) is ProducerFencedError
    assert refusal(world.verify((7, 0), P0)) is InvalidProducerIdMappingError
    world.end(producer)
    assert refusal(world.verify(producer, P0)) is ConcurrentTransactionsError
    world.confirm(world.sent())
    assert codes(world.verify(producer, P0)) == [TransactionAbortableError.code]


def codes(responder: RecordingResponder) -> list[int]:
    topics = responder.response.topic_results
    return [result.partition_error_code for topic in topics for result in topic.results_by_partition]


# EndTxn, where the epoch stays


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_ends_in_two_steps(world: World, commits: bool) -> None:
    producer = world.started()
    world.add(producer)
    assert reported(world.end(producer, commits)) == (-1, -1)
    assert world.transaction.state == (TransactionState.PrepareCommit if commits else TransactionState.PrepareAbort)
    assert refusal(world.end(producer, commits)) is ConcurrentTransactionsError
    assert refusal(world.end(producer, not commits)) is InvalidTxnStateError
    action = world.sent()
    assert (action.producer_epoch, action.commits) == (0, commits)
    world.confirm(action, P1)
    assert world.transaction.prepared
    world.confirm(action, P0)
    assert world.transaction.state == (TransactionState.CompleteCommit if commits else TransactionState.CompleteAbort)
    assert world.transaction.partitions == frozenset()
    assert refusal(world.end(producer, commits)) is None
    assert refusal(world.end(producer, not commits)) is InvalidTxnStateError


def test_who_may_not_end_a_transaction(world: World) -> None:
    assert refusal(world.end((1, 0))) is InvalidProducerIdMappingError
    producer = world.started()
    assert refusal(world.end(producer)) is InvalidTxnStateError
    assert refusal(world.end(producer, commits=False)) is InvalidTxnStateError
    assert refusal(world.end((999, 0))) is InvalidProducerIdMappingError
    assert refusal(world.end((FRESH_ID, 1))) is ProducerFencedError


# EndTxn, where each end moves the epoch


def test_each_end_moves_the_epoch_and_a_retry_hears_the_same(world: World) -> None:
    producer = world.started()
    world.add(producer, version=2)
    following = reported(world.end(producer, version=2))
    assert following == (FRESH_ID, 1)
    assert refusal(world.end(producer, version=2)) is ConcurrentTransactionsError
    assert refusal(world.end(producer, commits=False, version=2)) is InvalidTxnStateError
    action = world.sent()
    assert action.producer_epoch == 1, "the marker fences what is late of the epoch before"
    assert refusal(world.add(following, version=2)) is ConcurrentTransactionsError
    world.confirm(action)
    assert reported(world.end(producer, version=2)) == following
    assert refusal(world.end(producer, commits=False, version=2)) is InvalidTxnStateError
    world.add(following, version=2)
    assert refusal(world.end(producer, version=2)) is ProducerFencedError
    assert refusal(world.add(producer, version=2)) is ProducerFencedError
    assert world.transaction.state == TransactionState.Ongoing


@pytest.mark.parametrize(
    "state", [TransactionState.Empty, TransactionState.CompleteCommit, TransactionState.CompleteAbort]
)
def test_an_abort_of_nothing_ends_at_once(world: World, state: TransactionState) -> None:
    producer = world.preset(
        state=state, producer_epoch=4, started_ms=-1 if state == TransactionState.Empty else START_MS
    )
    assert (
        refusal(world.end((50, 3), commits=state == TransactionState.CompleteCommit, version=2)) is ProducerFencedError
    )
    assert refusal(world.end(producer, commits=True, version=2)) is InvalidTxnStateError
    assert reported(world.end(producer, commits=False, version=2)) == (50, 5)
    assert world.transaction.state == TransactionState.CompleteAbort
    assert world.actions == []
    assert reported(world.end(producer, commits=False, version=2)) == (50, 5)


def test_a_retry_in_empty_is_fenced(world: World) -> None:
    world.preset(producer_epoch=4)
    assert refusal(world.end((50, 3), commits=False, version=2)) is ProducerFencedError
    assert refusal(world.end((50, 3), version=2)) is ProducerFencedError


def test_an_end_with_the_last_epoch_hands_out_a_new_producer_id(world: World) -> None:
    last = world.preset(producer_epoch=LAST_EPOCH)
    world.add(last, version=2)
    renewed = reported(world.end(last, version=2))
    assert renewed == (FRESH_ID, 0)
    action = world.sent()
    assert (action.producer_id, action.producer_epoch) == (50, LAST_EPOCH + 1)
    assert refusal(world.add(renewed, version=2)) is ConcurrentTransactionsError
    assert refusal(world.end(renewed, version=2)) is ConcurrentTransactionsError
    assert refusal(world.init(renewed)) is ConcurrentTransactionsError
    world.crash()
    world.confirm(world.sent())
    assert reported(world.end(last, version=2)) == renewed
    assert refusal(world.end((50, 3), version=2)) is InvalidProducerIdMappingError
    assert refusal(world.add(renewed, version=2)) is None
    assert refusal(world.end(last, version=2)) is InvalidProducerIdMappingError


def test_without_a_producer_id_at_hand_nothing_is_decided(world: World) -> None:
    last = world.preset(producer_epoch=LAST_EPOCH)
    world.add(last, version=2)
    world.no_ids = True
    assert refusal(world.end(last, version=2)) is CoordinatorLoadInProgressError
    assert world.transaction.state == TransactionState.Ongoing


def test_a_producer_that_was_timed_out_learns_of_the_abort_and_goes_on(world: World) -> None:
    producer = world.started()
    world.add(producer, version=2)
    world.advance(61)
    world.confirm(world.sent())
    assert refusal(world.end(producer, commits=True, version=2)) is InvalidTxnStateError
    assert reported(world.end(producer, commits=False, version=2)) == (FRESH_ID, 1)


def test_the_fencing_epoch_is_not_told_to_a_producer_that_was_timed_out(world: World) -> None:
    last = world.preset(producer_epoch=LAST_EPOCH)
    world.add(last, version=2)
    world.advance(61)
    world.confirm(world.sent())
    assert refusal(world.end(last, commits=False, version=2)) is ProducerFencedError
    assert reported(world.init(last)) == (FRESH_ID, 0)


# Markers


def test_what_comes_back_for_an_earlier_attempt_no_longer_counts(world: World) -> None:
    producer = world.started()
    world.add(producer)
    world.end(producer)
    old = world.sent()
    world.crash()
    new = world.sent()
    world.confirm(old)
    assert world.transaction.prepared
    world.confirm(new)
    world.add(producer)
    world.end(producer)
    world.confirm(new)
    assert world.transaction.state == TransactionState.PrepareCommit


def test_missing_markers_are_sent_again_and_only_those(world: World) -> None:
    producer = world.started()
    world.add(producer)
    world.end(producer)
    first = world.sent()
    world.confirm(first, P0)
    world.apply(world.shard.retry_markers(first, world.now))
    second = world.sent()
    assert (second.partitions, second.attempt) == ([P1], 1)
    world.confirm(first, P1)
    assert world.transaction.prepared, "the first attempt was given up"
    world.confirm(second)
    assert world.transaction.state == TransactionState.CompleteCommit
    world.apply(world.shard.retry_markers(second, world.now))
    assert world.actions == []


def test_complete_is_written_once_more_where_that_failed(world: World) -> None:
    producer = world.started()
    world.add(producer)
    world.end(producer)
    action = world.sent()
    lost = world.shard.markers_written(action, list(action.partitions), world.now)
    assert len(lost.records) == 1
    assert world.transaction.prepared
    world.advance(1.5)
    assert world.transaction.state == TransactionState.CompleteCommit
    assert world.shard.next_deadline() is not None


# Time


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(world: World) -> None:
    producer = world.started()
    world.advance(100)
    world.add(producer, P0)
    world.advance(30)
    world.add(producer, P1)
    world.advance(29.9)
    assert world.transaction.state == TransactionState.Ongoing
    world.advance(0.2)
    assert world.transaction.state == TransactionState.PrepareAbort
    action = world.sent()
    assert (action.producer_epoch, action.commits, action.partitions) == (1, False, [P0, P1])
    world.confirm(action)
    assert refusal(world.end(producer)) is ProducerFencedError
    assert refusal(world.init(producer)) is ProducerFencedError
    assert reported(world.init()) == (FRESH_ID, 2)


def test_the_timeout_counts_on_over_a_restart(world: World) -> None:
    producer = world.started()
    world.add(producer)
    world.advance(40)
    world.crash()
    world.advance(19)
    assert world.transaction.state == TransactionState.Ongoing
    world.advance(2)
    assert world.transaction.state == TransactionState.PrepareAbort


def test_an_abort_that_could_not_be_written_is_tried_again(world: World) -> None:
    world.add(world.started())
    world.seconds += 61
    assert len(world.shard.expire(world.now).records) == 1  # and lost
    assert world.transaction.state == TransactionState.Ongoing
    world.advance(1.1)
    assert world.transaction.state == TransactionState.PrepareAbort


def test_a_decided_transaction_does_not_time_out(world: World) -> None:
    producer = world.started()
    world.add(producer)
    world.end(producer)
    world.advance(1_000)
    assert world.transaction.state == TransactionState.PrepareCommit


def test_an_id_that_nobody_uses_is_forgotten(world: World) -> None:
    producer = world.started()
    world.advance(3_000)
    world.add(producer)
    world.end(producer)
    world.confirm(world.sent())
    world.advance(3_500)
    assert "tx" in world.shard.transactions
    world.advance(101)
    assert world.shard.transactions == {}
    assert world.rebuilt().transactions == {}
    assert world.shard.next_deadline() is None
    assert refusal(world.end(producer)) is InvalidProducerIdMappingError


@pytest.mark.parametrize("length", [10, 20_000])
def test_many_forgotten_ids_are_written_in_portions(world: World, length: int) -> None:
    for number in range(60_000 // length + 100):
        world.init(name=f"{number}".rjust(length))
    world.seconds += 3_601
    world.log.clear()
    sizes: list[int] = []
    while world.shard.transactions:
        effects = world.shard.expire(world.now)
        sizes.append(size_of(effects))
        world.apply(effects)
    assert len(sizes) > 1
    assert max(sizes) < 200_000
    assert len(world.log) == 60_000 // length + 100, "each once"


def test_transactions_that_time_out_together_are_aborted_in_portions(world: World) -> None:
    world.preset_open(*[large(1)] * 100)
    while any(transaction.state == TransactionState.Ongoing for transaction in world.shard.transactions.values()):
        effects = world.shard.expire(world.now)
        assert 0 < size_of(effects) < 200_000
        world.apply(effects)
    assert len(world.actions) == 100


def test_what_can_never_be_written_holds_up_nobody_else(world: World) -> None:
    """A record that the log finds too large is refused alone."""
    world.preset_open(frozenset([P0]), large(60), frozenset([P0]))
    for _ in range(10):
        effects = world.shard.expire(world.now)
        if size_of(effects) < 1_000_000:
            world.apply(effects)
    states = [transaction.state for transaction in world.shard.transactions.values()]
    assert states == [TransactionState.PrepareAbort, TransactionState.Ongoing, TransactionState.PrepareAbort]


# After a restart


def test_what_was_decided_is_completed_after_a_restart(world: World) -> None:
    producer = world.started()
    world.add(producer)
    world.end(producer)
    before = world.sent()
    world.crash()
    action = world.sent()
    assert (action.producer_id, action.producer_epoch, action.commits, action.partitions) == (
        before.producer_id,
        before.producer_epoch,
        before.commits,
        before.partitions,
    )
    world.confirm(action)
    assert world.transaction.state == TransactionState.CompleteCommit


def test_an_empty_abort_of_which_half_is_lost_is_completed_after_a_restart(world: World) -> None:
    world.preset(state=TransactionState.PrepareAbort, started_ms=START_MS, client_version=2)
    world.advance(0)
    assert world.transaction.state == TransactionState.CompleteAbort
    assert world.rebuilt().durable_state() == world.shard.durable_state()


# Questions


def test_describe(world: World) -> None:
    def describe(name: str) -> RecordingResponder:
        return world.submit(lambda shard, responder, now: shard.describe(name, responder, now))

    assert refusal(describe("tx")) is TransactionalIdNotFoundError
    assert refusal(describe("")) is InvalidRequestError
    world.add(world.started(), TopicPartition("u", 1), P1, P0)
    state = describe("tx").response
    assert (state.transaction_state, state.producer_id, state.producer_epoch) == ("Ongoing", FRESH_ID, 0)
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("t", [0, 1]), ("u", [1])]
    assert (state.transaction_timeout_ms, state.transaction_start_time_ms) == (60_000, world.now.wall_ms)


def test_list(world: World) -> None:
    def listed(**filters: Any) -> tuple[list[str], list[str]]:
        request = ListTransactionsRequest(**filters)

        def operation(shard: TransactionCoordinatorShard, responder: Responder, now: Moment) -> Effects:
            return shard.list_transactions(request, None, responder, now)

        response = world.submit(operation).response
        return [state.transactional_id for state in response.transaction_states], response.unknown_state_filters

    world.init(name="idle")
    world.add(world.started())
    world.advance(10)
    assert listed() == (["idle", "tx"], [])
    assert listed(state_filters=["Ongoing"]) == (["tx"], [])
    assert listed(state_filters=["Ongoing", "Empty", "Gone"]) == (["idle", "tx"], ["Gone"])
    assert listed(state_filters=["Gone"]) == ([], ["Gone"])
    assert listed(producer_id_filters=[FRESH_ID]) == (["idle"], [])
    assert listed(duration_filter=9_999) == (["idle", "tx"], [])
    assert listed(duration_filter=10_000) == (["idle"], [])


def test_nobody_is_left_waiting_when_the_shard_goes(world: World) -> None:
    world.add(world.started())
    assert world.shard.on_unloaded(NotCoordinatorError()).replies == []


def test_an_illegal_move_is_named() -> None:
    with pytest.raises(IllegalTransactionTransitionError, match="tx: CompleteAbort cannot follow PrepareCommit"):
        check_transition("tx", TransactionState.PrepareCommit, TransactionState.CompleteAbort)
