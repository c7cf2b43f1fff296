from __future__ import annotations

import pytest

from braidlog.core.protocol_errors import InvalidProducerEpochError, OutOfOrderSequenceNumberError
from braidlog.storage.producers.producer_state_manager import ProducerStateManager
from braidlog.storage.producers.verification import VerificationGuards
from braidlog.wire.records.batch import CONTROL, TRANSACTIONAL, BatchHeader
from braidlog.wire.records.control_records import EndTxnMarker
from braidlog.wire.records.validation import ORIGIN_CLIENT, ORIGIN_COORDINATOR


@pytest.fixture
def state() -> ProducerStateManager:
    return ProducerStateManager("orders-0", expiration_ms=1000)


def header(offset: int, sequence: int, *, epoch: int = 0, attributes: int = TRANSACTIONAL) -> BatchHeader:
    return BatchHeader(0, 100, offset, 0, 2, 0, attributes, 0, 100, 100, 1, epoch, sequence, 1)


def send(state: ProducerStateManager, offset: int, sequence: int, *, epoch: int = 0) -> None:
    state.append(header(offset, sequence, epoch=epoch), None, ORIGIN_CLIENT)


def end(state: ProducerStateManager, offset: int, *, epoch: int = 0) -> None:
    marker = header(offset, -1, epoch=epoch, attributes=TRANSACTIONAL | CONTROL)
    completed = state.append(marker, EndTxnMarker(True, 0), ORIGIN_COORDINATOR)
    if completed is not None:
        state.complete(completed)


def test_the_first_batch_of_a_transaction_needs_one_and_the_next_do_not(state: ProducerStateManager) -> None:
    held = state.begin_verification(1, 0, 0, 0)
    assert held is not None
    assert state.may_write(1, 0, held)
    assert not state.may_write(1, 0, None)
    send(state, 0, 0)
    assert state.begin_verification(1, 0, 1, 0) is None
    assert state.may_write(1, 0, None)


def test_another_epoch_has_to_ask_for_itself(state: ProducerStateManager) -> None:
    send(state, 0, 0)
    assert state.begin_verification(1, 1, 0, 0) is not None
    assert not state.may_write(1, 1, None)


def test_a_marker_ends_it(state: ProducerStateManager) -> None:
    held = state.begin_verification(1, 0, 0, 0)
    end(state, 0)
    assert not state.may_write(1, 0, held)


def test_one_that_was_asked_for_anew_is_another(state: ProducerStateManager) -> None:
    """Asked, ended by a marker, asked again: the first answer is worth nothing for the second transaction."""
    first = state.begin_verification(1, 0, 0, 0)
    end(state, 0)
    second = state.begin_verification(1, 0, 0, 0)
    assert not state.may_write(1, 0, first)
    assert state.may_write(1, 0, second)


def test_batches_that_wait_together_share_it_and_the_first_of_them_goes_first(state: ProducerStateManager) -> None:
    later = state.begin_verification(1, 0, 5, 0)
    sooner = state.begin_verification(1, 0, 3, 0)
    assert later is sooner
    with pytest.raises(OutOfOrderSequenceNumberError, match=r"3 \(earliest seen"):
        send(state, 0, 5)
    assert state.may_write(1, 0, later)
    send(state, 0, 3)
    # The transaction is open now, and the usual rule of sequences holds.
    send(state, 1, 4)


def test_a_newer_epoch_starts_its_own_count(state: ProducerStateManager) -> None:
    state.begin_verification(1, 0, 0, 0)
    state.begin_verification(1, 1, 4, 0)
    state.begin_verification(1, 0, 2, 0)
    send(state, 0, 4, epoch=1)


def test_an_old_epoch_is_fenced_before_its_order_matters(state: ProducerStateManager) -> None:
    send(state, 0, 0, epoch=2)
    end(state, 1, epoch=2)
    state.begin_verification(1, 1, 0, 0)
    with pytest.raises(InvalidProducerEpochError):
        send(state, 2, 9, epoch=1)


def test_a_batch_that_was_refused_leaves_it(state: ProducerStateManager) -> None:
    held = state.begin_verification(1, 0, 0, 0)
    with pytest.raises(OutOfOrderSequenceNumberError):
        send(state, 0, 1)
    assert state.may_write(1, 0, held)


def test_forgotten_ones_expire(state: ProducerStateManager) -> None:
    held = state.begin_verification(1, 0, 0, 100)
    state.remove_expired(1099)
    assert state.may_write(1, 0, held)
    state.remove_expired(1100)
    assert not state.may_write(1, 0, held)


def test_a_log_that_was_cut_forgets_them(state: ProducerStateManager) -> None:
    held = state.begin_verification(1, 0, 0, 100)
    state.clear(0)
    assert not state.may_write(1, 0, held)


def test_others_are_not_concerned() -> None:
    open_ones = VerificationGuards("orders-0")
    mine = open_ones.begin(1, 0, 0, 0)
    open_ones.begin(2, 0, 0, 0)
    open_ones.end(2)
    assert open_ones.holds(1, mine)
    assert len(open_ones) == 1
