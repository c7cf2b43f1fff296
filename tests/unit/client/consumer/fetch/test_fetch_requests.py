"""Fetch requests from settings and session data, and the errors of partitions by what follows from them."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.client.consumer.fetch.completed_fetch import AbortedRange
from braidlog.client.consumer.fetch.fetch_requests import (
    FetchErrorKind,
    FetchRequests,
    aborted_of,
    error_kind,
    newest_version,
    records_of,
    uses_ids,
)
from braidlog.client.consumer.fetch.fetch_session_handler import FetchRequestData, RequestedPartition
from braidlog.client.settings import CONSUMER, Settings
from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.slices import ByteSlice
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.fetch import AbortedTransaction, PartitionData

A, B = b"a" * 16, b"b" * 16


def requests(**settings: Any) -> FetchRequests:
    return FetchRequests(Settings.of(CONSUMER, None, {"bootstrap_servers": "x:1", **settings}))


def test_partitions_are_grouped_by_topic_in_the_order_asked() -> None:
    asked = {
        TopicPartition("t", 1): RequestedPartition(A, 7, 3, 100),
        TopicPartition("u", 0): RequestedPartition(B, 0, -1, 100),
        TopicPartition("t", 0): RequestedPartition(A, 9, 3, 100),
    }
    request = requests().build(FetchRequestData(5, 2, asked, {}, True), 1_000)
    assert [(each.topic, each.topic_id) for each in request.topics] == [("t", A), ("u", B)]
    first = request.topics[0].partitions
    assert [(each.partition, each.fetch_offset, each.current_leader_epoch) for each in first] == [(1, 7, 3), (0, 9, 3)]
    assert (request.session_id, request.session_epoch, request.max_bytes) == (5, 2, 1_000)


def test_a_topic_that_was_made_anew_is_forgotten_under_each_id() -> None:
    gone = {TopicPartition("t", 0): A, TopicPartition("t", 1): A, TopicPartition("t", 2): B}
    request = requests().build(FetchRequestData(5, 2, {}, gone, True), 1)
    assert [(each.topic_id, each.partitions) for each in request.forgotten_topics_data] == [(A, [0, 1]), (B, [2])]


def test_settings_are_in_every_request() -> None:
    given = requests(fetch_min_bytes=9, fetch_max_wait_ms=77, client_rack="r1", isolation_level="read_committed")
    request = given.build(FetchRequestData(0, 0, {}, {}, True), 1)
    assert (request.min_bytes, request.max_wait_ms, request.rack_id, request.isolation_level) == (9, 77, "r1", 1)
    assert given.build(FetchRequestData(0, -1, {}, {}, True), 1, max_wait_ms=0).max_wait_ms == 0


def test_topics_without_ids_are_named() -> None:
    assert newest_version(by_id=True) is None
    newest = newest_version(by_id=False)
    assert newest is not None
    assert not uses_ids(newest)
    assert uses_ids(newest + 1)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.OffsetOutOfRangeError, FetchErrorKind.OUT_OF_RANGE),
        (errors.NotLeaderOrFollowerError, FetchErrorKind.STALE_METADATA),
        (errors.UnknownTopicIdError, FetchErrorKind.STALE_METADATA),
        (errors.UnknownLeaderEpochError, FetchErrorKind.RETRIABLE),
        (errors.OffsetNotAvailableError, FetchErrorKind.RETRIABLE),
        (errors.TopicAuthorizationFailedError, FetchErrorKind.FATAL),
    ],
)
def test_errors_by_what_follows_from_them(error: type[ProtocolError], kind: FetchErrorKind) -> None:
    assert error_kind(error.code) is kind


def test_what_a_response_holds() -> None:
    data = ByteSlice(b"batches", 0, 7)
    aborted = [AbortedTransaction(producer_id=4, first_offset=11)]
    assert records_of(PartitionData(records=data)) is data
    assert records_of(PartitionData(records=ByteSlice(b"", 0, 0))) is None
    assert records_of(PartitionData(records=None)) is None
    assert aborted_of(PartitionData(aborted_transactions=aborted)) == [AbortedRange(4, 11)]
    assert aborted_of(PartitionData(aborted_transactions=None)) == []
