from __future__ import annotations

import pytest

from braidlog.core.protocol_errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from braidlog.storage.producers.producer_state_manager import CompletedTxn, ProducerStateManager
from braidlog.wire.records.batch import CONTROL, TRANSACTIONAL, BatchHeader
from braidlog.wire.records.control_records import EndTxnMarker
from braidlog.wire.records.validation import ORIGIN_CLIENT, ORIGIN_COORDINATOR, ORIGIN_REPLICATION

MAX_SEQUENCE = 2**31 - 1


@pytest.fixture
def state() -> ProducerStateManager:
    return ProducerStateManager("orders-0", expiration_ms=1000)


def header(
    offset: int,
    sequence: int,
    *,
    producer_id: int = 1,
    epoch: int = 0,
    count: int = 1,
    attributes: int = 0,
    timestamp: int = 100,
) -> BatchHeader:
    return BatchHeader(
        0, 100, offset, 0, 2, 0, attributes, count - 1, timestamp, timestamp, producer_id, epoch, sequence, count
    )


def send(state: ProducerStateManager, batch: BatchHeader, origin: int = ORIGIN_CLIENT) -> CompletedTxn | None:
    return state.append(batch, None, origin)


def end(
    state: ProducerStateManager,
    offset: int,
    *,
    producer_id: int = 1,
    epoch: int = 0,
    commits: bool = True,
    coordinator_epoch: int = 0,
    origin: int = ORIGIN_COORDINATOR,
) -> CompletedTxn | None:
    batch = header(offset, -1, producer_id=producer_id, epoch=epoch, attributes=CONTROL | TRANSACTIONAL)
    completed = state.append(batch, EndTxnMarker(commits, coordinator_epoch), origin)
    if completed is not None:
        state.complete(completed)
    return completed


# --- sequences


def test_sequences_follow_one_another(state: ProducerStateManager) -> None:
    send(state, header(0, 0, count=3))
    send(state, header(3, 3))
    for wrong in (0, 3, 5):
        with pytest.raises(OutOfOrderSequenceNumberError, match=r"producer 1 .*orders-0"):
            send(state, header(4, wrong))
    send(state, header(4, 4))
    assert state.producers[1].last_sequence == 4


def test_an_unknown_producer_may_start_anywhere(state: ProducerStateManager) -> None:
    send(state, header(0, 77))
    assert state.producers[1].last_sequence == 77


def test_a_new_epoch_starts_at_zero_and_an_old_one_is_fenced(state: ProducerStateManager) -> None:
    send(state, header(0, 0, epoch=1))
    with pytest.raises(OutOfOrderSequenceNumberError, match="new epoch"):
        send(state, header(1, 1, epoch=2))
    send(state, header(1, 0, epoch=2))
    with pytest.raises(InvalidProducerEpochError, match="last seen epoch 2"):
        send(state, header(2, 1, epoch=1))
    assert state.find_duplicate(header(9, 0, epoch=1)) is None
    assert [batch.last_offset for batch in state.producers[1].batches] == [1]


def test_sequences_wrap_around(state: ProducerStateManager) -> None:
    send(state, header(0, MAX_SEQUENCE - 1, count=4))
    assert state.producers[1].last_sequence == 1
    duplicate = state.find_duplicate(header(99, MAX_SEQUENCE - 1, count=4))
    assert duplicate is not None
    assert (duplicate.first_offset, duplicate.last_offset) == (0, 3)
    send(state, header(4, 2))
    send(state, header(5, 3, producer_id=2))
    send(state, header(6, MAX_SEQUENCE, producer_id=3))
    send(state, header(7, 0, producer_id=3))


def test_five_batches_are_remembered(state: ProducerStateManager) -> None:
    for number in range(8):
        send(state, header(10 * number, number))
    found = [state.find_duplicate(header(999, number)) for number in range(8)]
    assert [batch.last_offset if batch else None for batch in found] == [None, None, None, 30, 40, 50, 60, 70]
    assert state.find_duplicate(header(999, 6, count=2)) is None


def test_what_a_leader_accepted_is_not_judged_again(state: ProducerStateManager) -> None:
    send(state, header(0, 5, epoch=3), ORIGIN_REPLICATION)
    send(state, header(1, 99, epoch=3), ORIGIN_REPLICATION)
    send(state, header(2, 7, epoch=1), ORIGIN_REPLICATION)
    assert (state.producers[1].epoch, state.producers[1].last_sequence) == (1, 7)


# --- transactions


def test_a_transaction_is_unstable_until_its_end_is_replicated(state: ProducerStateManager) -> None:
    send(state, header(5, 0, attributes=TRANSACTIONAL))
    send(state, header(6, 0, producer_id=2, attributes=TRANSACTIONAL))
    send(state, header(7, 1, attributes=TRANSACTIONAL))
    assert state.first_unstable_offset() == 5
    completed = end(state, 8, commits=False)
    assert completed is not None
    assert (completed.first_offset, completed.last_offset, completed.aborted) == (5, 8, True)
    assert state.first_unstable_offset() == 5
    state.on_high_watermark(8)
    assert state.first_unstable_offset() == 5
    state.on_high_watermark(9)
    assert state.first_unstable_offset() == 6
    end(state, 9, producer_id=2)
    state.on_high_watermark(10)
    assert state.first_unstable_offset() == -1


def test_where_the_last_stable_offset_goes_when_a_transaction_is_aborted(state: ProducerStateManager) -> None:
    def last_stable_offset_after_abort() -> int:
        mark = state.mark()
        aborted = state.complete(CompletedTxn(1, 0, 9, True))
        assert aborted is not None
        assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (1, 0, 9)
        state.roll_back(mark)
        return aborted.last_stable_offset

    send(state, header(0, 0, attributes=TRANSACTIONAL))
    assert last_stable_offset_after_abort() == 10
    send(state, header(3, 0, producer_id=2, attributes=TRANSACTIONAL))
    assert last_stable_offset_after_abort() == 3
    assert state.complete(CompletedTxn(1, 0, 9, False)) is None


def test_a_marker_without_data_completes_nothing_but_fences(state: ProducerStateManager) -> None:
    assert end(state, 0, epoch=4, coordinator_epoch=7) is None
    assert (state.producers[1].epoch, state.producers[1].coordinator_epoch) == (4, 7)
    with pytest.raises(InvalidProducerEpochError):
        send(state, header(1, 0, epoch=3))
    with pytest.raises(OutOfOrderSequenceNumberError):
        send(state, header(1, 5, epoch=4))
    send(state, header(1, 0, epoch=4))


def test_a_marker_of_an_old_coordinator_is_fenced(state: ProducerStateManager) -> None:
    end(state, 0, coordinator_epoch=7)
    with pytest.raises(TransactionCoordinatorFencedError):
        end(state, 1, coordinator_epoch=6)
    assert end(state, 1, coordinator_epoch=6, origin=ORIGIN_REPLICATION) is None


def test_a_plain_write_inside_a_transaction_is_refused(state: ProducerStateManager) -> None:
    send(state, header(0, 0, attributes=TRANSACTIONAL))
    with pytest.raises(InvalidTxnStateError):
        send(state, header(1, 1))
    assert state.producers[1].last_sequence == 0


def test_an_emptied_control_batch_says_nothing(state: ProducerStateManager) -> None:
    send(state, header(0, 0, attributes=TRANSACTIONAL))
    assert state.append(header(1, -1, attributes=CONTROL | TRANSACTIONAL), None, ORIGIN_REPLICATION) is None
    assert state.first_unstable_offset() == 0


# --- staging


def test_rolling_back_restores_what_was_before(state: ProducerStateManager) -> None:
    send(state, header(0, 0))
    send(state, header(1, 0, producer_id=2, attributes=TRANSACTIONAL))
    state.on_staged_written()
    mark = state.mark()
    send(state, header(2, 1))
    send(state, header(3, 0, producer_id=3, attributes=TRANSACTIONAL))
    end(state, 4, producer_id=2, commits=False)
    send(state, header(5, 1, producer_id=2, attributes=TRANSACTIONAL))
    assert (state.ongoing, state.unreplicated) == ({3: 3, 5: 2}, {1: 4})
    middle = state.mark()
    send(state, header(6, 2))
    state.roll_back(middle)
    assert state.producers[1].last_sequence == 1
    state.roll_back(mark)
    assert {producer: entry.last_sequence for producer, entry in state.producers.items()} == {1: 0, 2: 0}
    assert state.producers[2].txn_first_offset == 1
    assert (state.ongoing, state.unreplicated) == ({1: 2}, {})


# --- expiry


def test_idle_producers_expire_but_not_in_a_transaction(state: ProducerStateManager) -> None:
    send(state, header(0, 0, timestamp=0))
    send(state, header(1, 0, producer_id=2, timestamp=0, attributes=TRANSACTIONAL))
    send(state, header(2, 0, producer_id=3, timestamp=500))
    assert state.remove_expired(999) == 0
    assert state.remove_expired(1000) == 1
    assert sorted(state.producers) == [2, 3]


def test_a_transaction_is_late_when_the_producer_of_the_earliest_is_silent(state: ProducerStateManager) -> None:
    def silent_since(last_ms: int) -> bool:
        return state.has_late_transaction(last_ms + 11, 10) and not state.has_late_transaction(last_ms + 10, 10)

    assert not state.has_late_transaction(1_000_000, 10)
    send(state, header(0, 0, attributes=TRANSACTIONAL, timestamp=500))
    send(state, header(1, 0, producer_id=2, attributes=TRANSACTIONAL, timestamp=100))
    assert silent_since(500)
    send(state, header(2, 1, attributes=TRANSACTIONAL, timestamp=700))
    assert silent_since(700)
    end(state, 3)
    assert silent_since(100)
    end(state, 4, producer_id=2)
    assert not state.has_late_transaction(1_000_000, 10)


def test_a_marker_of_the_next_epoch_ends_the_transaction_and_its_epoch(state: ProducerStateManager) -> None:
    """KIP-890: each transaction has an epoch of its own, and its marker carries the next."""
    send(state, header(0, 0, attributes=TRANSACTIONAL))
    completed = end(state, 1, epoch=1)
    assert completed is not None
    assert (completed.first_offset, completed.last_offset) == (0, 1)
    assert state.producers[1].last_sequence == -1
    with pytest.raises(InvalidProducerEpochError):
        send(state, header(2, 1, attributes=TRANSACTIONAL))
    with pytest.raises(OutOfOrderSequenceNumberError):
        send(state, header(2, 1, epoch=1, attributes=TRANSACTIONAL))
    send(state, header(2, 0, epoch=1, attributes=TRANSACTIONAL))
    assert state.ongoing == {2: 1}
