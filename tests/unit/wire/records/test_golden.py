"""Bytes and verdicts of Apache Kafka 3.9.1 (made by tools/golden/Records.java) against ours."""

from __future__ import annotations

import pytest

from braidlog.core.protocol_errors import InvalidRecordError, InvalidTimestampError, ProtocolError
from braidlog.core.slices import ByteSlice
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.conversion import down_convert
from braidlog.wire.records.filtering import record_summaries, retain
from braidlog.wire.records.reading import Record, read_records
from braidlog.wire.records.record_errors import record_errors_of
from braidlog.wire.records.validation import (
    ORIGIN_CLIENT,
    ORIGIN_COORDINATOR,
    AppendPolicy,
    ValidatedRecords,
    validate_for_append,
)
from support.record_cases import NOW, describe, describe_headers, golden, names

ERRORS: dict[str, type[ProtocolError]] = {
    "InvalidRecordException": InvalidRecordError,
    "InvalidTimestampException": InvalidTimestampError,
}


def cases(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", golden(kind), ids=names(kind))


@cases("batch")
def test_batches_read_as_kafka_reads_them(case: list[str]) -> None:
    name, data, headers, records = case
    batch = bytes.fromhex(data)
    found = iterate_headers(batch, 0, len(batch))
    assert describe(read_records(batch)) == records
    if name.startswith(("v0", "v1")):
        # Kafka derives base offset, count and sequence of an old message from its inner ones; we keep the header.
        assert [header.last_offset for header in found] == [int(h.split("/")[1]) for h in headers.split(";")]
        assert [header.size for header in found] == [int(h.split("/")[2]) for h in headers.split(";")]
    else:
        assert describe_headers(found) == headers


@pytest.mark.parametrize("case", [c for c in golden("batch") if "-none-" in c[0]], ids=lambda c: c[0])
def test_uncompressed_batches_are_built_byte_for_byte(case: list[str]) -> None:
    name, data, _, _ = case
    batch = bytes.fromhex(data)
    records = read_records(batch)
    stamp = NOW + 99 if "LogAppendTime" in name else None
    if name.startswith("v2"):
        first = iterate_headers(batch, 0, len(batch))[0]
        built = build_batch(records, base_offset=42, log_append_time_ms=stamp)
        if stamp is None:
            assert built == batch
        # Kafka counts deltas from the append time's first record, which the stored batch no longer says.
        assert describe(read_records(built)) == case[3]
        assert iterate_headers(built, 0, len(built))[0].attributes == first.attributes
    else:
        assert build_message_set(records, magic=int(name[1]), base_offset=42, log_append_time_ms=stamp) == batch


@pytest.mark.parametrize("name", ["commit", "abort"])
def test_markers_are_built_byte_for_byte(name: str) -> None:
    (data,) = [case[1] for case in golden("batch") if case[0] == name]
    built = build_end_txn_marker(
        commit=name == "commit",
        producer_id=4000,
        producer_epoch=2,
        timestamp=NOW,
        coordinator_epoch=9,
        base_offset=12,
        leader_epoch=3,
    )
    assert built.hex() == data


def append(name: str, data: str, policy: str) -> ValidatedRecords:
    codec, compacted, appended, before, after, client = policy.split("/")
    frame = b"head" + bytes.fromhex(data) + b"tail"
    return validate_for_append(
        ByteSlice(frame, 4, len(frame) - 4),
        first_offset=1000,
        leader_epoch=8,
        now_ms=NOW,
        policy=AppendPolicy(
            compacted=compacted == "true",
            log_append_time=appended == "true",
            timestamp_before_max_ms=int(before),
            timestamp_after_max_ms=int(after),
            codec=None if codec == "-1" else int(codec),
        ),
        origin=ORIGIN_CLIENT if client == "true" else ORIGIN_COORDINATOR,
        produce_version=2 if name.startswith(("v0", "v1")) else 11,
    )


@cases("append")
def test_appends_are_stored_as_kafka_stores_them(case: list[str]) -> None:
    name, data, policy, stored, headers, records, max_timestamp = case
    validated = append(name, data, policy)
    written = b"".join(validated.parts)
    assert len(written) == validated.size
    found = iterate_headers(written, 0, len(written))
    assert describe_headers(found) == describe_headers(validated.headers)
    assert describe(read_records(written)) == records
    assert validated.max_timestamp == int(max_timestamp)
    assert (validated.first_offset, validated.last_offset) == (1000, 999 + len(records.split(";")))
    source_codec, target_codec = int(headers.split("/")[10]), validated.source_codec
    if not validated.converted or (source_codec == target_codec == 0 and "producer-stamped" not in name):
        assert written.hex() == stored
    else:
        # Another compressor's bytes may differ, not what the header says beyond their size.
        assert without_size(describe_headers(found)) == without_size(headers)


def without_size(headers: str) -> list[str]:
    fields = headers.split("/")
    return fields[:2] + fields[3:]


@cases("refuse")
def test_appends_are_refused_as_kafka_refuses_them(case: list[str]) -> None:
    name, data, policy, error, indexes = case
    with pytest.raises(ERRORS[error]) as refused:
        append(name, data, policy)
    found = [index for index, _ in record_errors_of(refused.value)]
    if name.startswith(("v0-none", "v1-none")):
        # Kafka counts within each message, where every one is record 0; we count within the set.
        assert len(found) == 1
    else:
        assert found == [int(index) for index in indexes.split(",") if index]


@cases("down")
def test_down_conversion_gives_what_kafka_gives(case: list[str]) -> None:
    name, data, arguments, converted, records = case
    magic, first = (int(number) for number in arguments.split("/"))
    batch = bytes.fromhex(data)
    ours = down_convert(batch, 0, len(batch), magic=magic, first_offset=first)
    assert describe(read_records(ours)) == records
    if "-none-" in name:
        assert ours.hex() == converted


@cases("filter")
def test_cleaned_batches_keep_what_kafka_keeps(case: list[str]) -> None:
    _, data, arguments, _, headers, records = case
    mask, keep_empty = arguments.split("/")
    batch = bytes.fromhex(data)
    (header,) = iterate_headers(batch, 0, len(batch))
    summaries = record_summaries(batch, header)
    keep = [int(mask) >> (offset - 42) & 1 == 1 for _, offset, _, _ in summaries]
    tombstones = any(kept and not has_value for kept, (_, _, _, has_value) in zip(keep, summaries, strict=True))
    horizon = NOW + 5000 if tombstones else None
    kept = retain(batch, header, keep, delete_horizon_ms=horizon, keep_empty=keep_empty == "true")
    assert describe(read_records(kept or b"")) == records
    if header.magic == 2:
        found = iterate_headers(kept, 0, len(kept)) if kept is not None else []
        assert [without_size(describe_headers([h])) for h in found] == (
            [without_size(h) for h in headers.split(";")] if headers else []
        )


def test_every_kind_of_case_is_there() -> None:
    assert all(len(golden(kind)) > 30 for kind in ("batch", "append", "refuse", "down", "filter"))
    assert isinstance(read_records(bytes.fromhex(golden("batch")[0][1]))[0], Record)
