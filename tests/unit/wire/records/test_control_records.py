from __future__ import annotations

import pytest

from braidlog.core.protocol_errors import InvalidRecordError
from braidlog.wire.records.batch import read_header
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.control_records import (
    ABORT,
    COMMIT,
    build_end_txn_marker,
    control_type,
    control_type_of_key,
    end_txn_marker,
    read_end_txn_marker,
)
from braidlog.wire.records.reading import Record, read_records

NOW = 1_700_000_000_000
LEADER_CHANGE_KEY = b"\x00\x00\x00\x02"


@pytest.mark.parametrize(("commit", "kind"), [(True, COMMIT), (False, ABORT)])
def test_markers(commit: bool, kind: int) -> None:
    batch = build_end_txn_marker(commit=commit, producer_id=5, producer_epoch=2, timestamp=NOW, coordinator_epoch=7)
    header = read_header(batch, 0, len(batch))
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    (record,) = read_records(batch)
    assert control_type(record) == control_type_of_key(record.key) == kind
    marker = read_end_txn_marker(batch, header)
    assert marker is not None
    assert (marker.commits, marker.coordinator_epoch) == (commit, 7)


@pytest.mark.parametrize("key", [None, b"\x00\x00", b"\xff\xff\x00\x00"])
def test_a_key_without_a_version_and_type_is_refused(key: bytes | None) -> None:
    with pytest.raises(InvalidRecordError):
        control_type(Record(key=key))


def test_the_type_of_a_key_that_is_too_short_is_unknown() -> None:
    assert control_type_of_key(None) == control_type_of_key(b"\x00\x00") == -1


def test_control_records_that_end_no_transaction() -> None:
    assert end_txn_marker(Record(key=LEADER_CHANGE_KEY, value=bytes(6))) is None
    assert end_txn_marker(Record(key=b"\x00\x00\x00\x01", value=bytes(5))) is None
    assert end_txn_marker(Record(key=b"\x00\x00\x00\x01")) is None
    batch = build_batch([Record(key=LEADER_CHANGE_KEY, value=b"")], control=True)
    assert read_end_txn_marker(batch, read_header(batch, 0, len(batch))) is None


def test_a_batch_that_the_cleaner_emptied_has_no_marker() -> None:
    batch = build_batch([], control=True, transactional=True)
    assert read_end_txn_marker(batch, read_header(batch, 0, len(batch))) is None
