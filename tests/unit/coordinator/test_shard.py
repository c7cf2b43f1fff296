from __future__ import annotations

from braidlog.coordinator.shard import ReplayedRecord, UnknownRecordTypeError


def test_an_unknown_kind_is_named() -> None:
    assert UnknownRecordTypeError(42).version == 42
    assert "42" in str(UnknownRecordTypeError(42))


def test_a_record_outside_of_a_transaction_has_no_producer() -> None:
    record = ReplayedRecord(1, 2, b"k", None)
    assert (record.producer_id, record.producer_epoch) == (-1, -1)
