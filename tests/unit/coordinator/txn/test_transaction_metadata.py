from __future__ import annotations

from typing import Any

import pytest

from braidlog.coordinator.effects import Moment
from braidlog.coordinator.txn.transaction_metadata import (
    LAST_EPOCH,
    NO_ID,
    TRANSITIONS,
    TV_0,
    TV_2,
    IllegalTransactionTransitionError,
    TransactionMetadata,
    TransactionState,
    check_transition,
)
from support.txn_shard import P0, P1


def test_an_illegal_move_is_named() -> None:
    with pytest.raises(IllegalTransactionTransitionError, match="tx: CompleteAbort cannot follow PrepareCommit"):
        check_transition("tx", TransactionState.PrepareCommit, TransactionState.CompleteAbort)


def transaction(state: TransactionState = TransactionState.Empty, **fields: Any) -> TransactionMetadata:
    values = {
        "producer_id": 5,
        "producer_epoch": 3,
        "timeout_ms": 60_000,
        "partitions": frozenset(),
        "updated_ms": 1_000,
    }
    return TransactionMetadata("tx", state=state, **{**values, **fields})


def test_a_transaction_begins_with_its_first_partitions() -> None:
    begun = transaction().with_partitions(frozenset({P0}), TV_2, 2_000)
    assert (begun.state, begun.started_ms, begun.partitions) == (TransactionState.Ongoing, 2_000, {P0})
    more = begun.with_partitions(frozenset({P1}), TV_2, 3_000)
    assert (more.started_ms, more.updated_ms, more.partitions) == (2_000, 3_000, {P0, P1})


@pytest.mark.parametrize(("version", "epoch", "last"), [(TV_0, 3, -1), (TV_2, 4, 3)])
def test_an_end_moves_the_epoch_in_the_second_version(version: int, epoch: int, last: int) -> None:
    decided = transaction(TransactionState.Ongoing).decided(True, version, NO_ID, 2_000)
    assert (decided.producer_epoch, decided.last_epoch) == (epoch, last)
    assert decided.completed(3_000).state == TransactionState.CompleteCommit


@pytest.mark.parametrize(("version", "may_return", "last"), [(TV_0, True, -1), (TV_2, True, 3), (TV_2, False, -1)])
def test_a_fenced_producer_may_return_where_ends_move_the_epoch(version: int, may_return: bool, last: int) -> None:
    fenced = transaction(TransactionState.Ongoing, client_version=version).fenced(2_000, may_return)
    assert (fenced.state, fenced.producer_epoch, fenced.last_epoch) == (TransactionState.PrepareAbort, 4, last)


def test_used_up_epochs_give_way_to_the_next_id_when_the_transaction_is_complete() -> None:
    decided = transaction(TransactionState.Ongoing, producer_epoch=LAST_EPOCH).decided(False, TV_2, 77, 2_000)
    done = decided.completed(3_000)
    assert (done.producer_id, done.producer_epoch, done.previous_id, done.next_id) == (77, 0, 5, NO_ID)


def test_when_a_transaction_times_out_and_an_id_is_forgotten() -> None:
    now = Moment(10_000, 100.0)
    ongoing = transaction(TransactionState.Ongoing, started_ms=4_000)
    assert ongoing.times_out_at(now) == 100 + 54
    assert ongoing.expires_at(1, now) is None
    assert transaction(TransactionState.Ongoing, started_ms=4_000, timeout_ms=0x7FFF_FFFF).times_out_at(now) is None
    assert transaction().times_out_at(now) is None
    assert transaction(updated_ms=9_000).expires_at(3_000, now) == 102
    # A clock that was set back makes a transaction last no longer than its timeout.
    assert transaction(TransactionState.Ongoing, started_ms=99_000).times_out_at(now) == 160


def test_every_state_of_the_table_is_reachable_or_never_written() -> None:
    reachable = {after for successors in TRANSITIONS.values() for after in successors}
    assert reachable == set(TransactionState)
