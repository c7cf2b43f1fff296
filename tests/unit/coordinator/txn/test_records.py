"""Records of `__transaction_state`: what Kafka writes is read, what is written says everything."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.coordinator.shard import ReplayedRecord, UnknownRecordTypeError
from braidlog.coordinator.txn import records
from braidlog.coordinator.txn.transaction_metadata import TransactionMetadata, TransactionState
from braidlog.core.types import TopicPartition
from braidlog.wire.errors import MalformedError

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


def written(transaction: TransactionMetadata) -> ReplayedRecord:
    key = records.encode_key(transaction.transactional_id)
    return ReplayedRecord(0, 0, key, records.encode_value(transaction))


@given(
    st.builds(
        TransactionMetadata,
        NAMES,
        st.integers(0, 2**63 - 1),
        st.integers(0, 32_767),
        st.integers(1, 2**31 - 1),
        st.sampled_from([state for state in TransactionState if state != TransactionState.Empty]),
        st.frozensets(st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1)), max_size=6),
        st.integers(0, 2**62),
        st.integers(-1, 2**62),
        last_epoch=st.integers(-1, 32_767),
        next_id=st.integers(-1, 2**63 - 1),
        client_version=st.sampled_from([0, 1, 2]),
    )
)
def test_what_is_written_is_read_again(transaction: TransactionMetadata) -> None:
    assert records.decode(written(transaction)) == (transaction.transactional_id, transaction)


def test_an_empty_transaction_has_no_partitions_at_all() -> None:
    """Kafka's reader wants null there, not an empty list."""
    empty = TransactionMetadata("tx", 5, 3, 60_000, TransactionState.Empty, frozenset(), 1_700_000_000_000)
    expected = (
        "0001"  # version 1
        "0000000000000005" "0003" "0000ea60" "00"  # producer 5, epoch 3, one minute, Empty
        "00"  # null
        "0000018bcfe56800" "ffffffffffffffff"  # last update, no start
        "00"  # no tags
    )  # fmt: skip
    assert records.encode_value(empty).hex() == expected
    assert records.encode_key("tx").hex() == "000000027478"
    assert records.decode(written(empty)) == ("tx", empty)


def test_beside_older_brokers_a_value_is_as_they_write_it() -> None:
    begun = TransactionMetadata(
        "tx", 5, 3, 60_000, TransactionState.Ongoing, frozenset({TopicPartition("t", 1)}), 1_700_000_000_000,
        1_700_000_000_000, last_epoch=2, client_version=2,
    )  # fmt: skip
    value = records.encode_value(begun, records.OLDEST_VALUE_VERSION)
    assert value.hex() == (
        "0000"  # version 0
        "0000000000000005" "0003" "0000ea60" "01"  # producer 5, epoch 3, one minute, Ongoing
        "00000001" "0001" "74" "00000001" "00000001"  # topic t, partition 1
        "0000018bcfe56800" "0000018bcfe56800"  # last update, start
    )  # fmt: skip
    read = records.decode(ReplayedRecord(0, 0, records.encode_key("tx"), value))
    assert read == ("tx", dataclasses.replace(begun, last_epoch=-1, client_version=0))


def test_a_value_of_kafka_3_9_is_read() -> None:
    value = bytes.fromhex(
        "0000"  # version 0
        "0000000000000007" "0001" "0000ea60" "01"  # producer 7, epoch 1, one minute, Ongoing
        "00000001" "000174" "00000002" "00000000" "00000002"  # t: 0 and 2
        "0000018bcfe56800" "0000018bcfe56700"
    )  # fmt: skip
    decoded = records.decode(ReplayedRecord(0, 0, records.encode_key("tx"), value))
    partitions = frozenset([TopicPartition("t", 0), TopicPartition("t", 2)])
    expected = TransactionMetadata(
        "tx", 7, 1, 60_000, TransactionState.Ongoing, partitions, 1_700_000_000_000, 1_699_999_999_744
    )
    assert decoded == ("tx", expected)


def test_a_tombstone_forgets_and_an_unknown_kind_of_key_is_named() -> None:
    assert records.decode(ReplayedRecord(0, 0, records.encode_key("tx"), None)) == ("tx", None)
    with pytest.raises(UnknownRecordTypeError, match="kind 9"):
        records.decode(ReplayedRecord(0, 0, b"\0\x09whatever", b""))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"\0\x05", "'tx': value version 5"),
        (b"\0\0" + bytes(14) + b"\x2a" + bytes(20), "'tx': state 42"),
        (b"\0\0\0", "ends|bytes|short|byte"),
        (b"", "version"),
    ],
)
def test_bytes_that_make_no_sense_are_named(value: bytes, says: str) -> None:
    with pytest.raises(MalformedError, match=says):
        records.decode(ReplayedRecord(0, 0, records.encode_key("tx"), value))
