"""Where programs' records come in: one call a record, in the caller's thread (hot: compiled by mypyc).

The usual record (bytes or text, a topic that is known, memory to spare) is encoded into its partition's open batch and
that is all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from mypy_extensions import mypyc_attr

from braidlog.client.errors import SerializationError
from braidlog.client.producer.accumulator.record_accumulator import RecordAccumulator
from braidlog.client.producer.backpressure import Backpressure, MetadataWait
from braidlog.client.producer.delivery import Delivery, Header, OnDelivery
from braidlog.core.errors import UserError
from braidlog.wire.records.encoding import NO_HEADERS, encode_headers

Headers = Iterable[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None] | None


class Pipeline(Protocol):
    """Interceptors, serializers and a partitioner of the program's own, where there are any."""

    def send(
        self,
        intake: SendPath,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
    ) -> Delivery: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class SendPath:
    def __init__(self, accumulator: RecordAccumulator, metadata_wait: MetadataWait, pipeline: Pipeline | None) -> None:
        self._accumulator = accumulator
        self._metadata_wait = metadata_wait
        self._pipeline: Pipeline | None = pipeline
        self._backpressure = Backpressure(accumulator, metadata_wait)

    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Hand a record over; it is sent with others of its partition. The Delivery says where it went.

        `on_delivery(metadata, error)` is called on the engine's thread. Raises at once what can be told at once: a
        record too large, a topic that does not appear or memory that does not get free within `max.block.ms`.
        """
        if self._pipeline is not None:
            return self._pipeline.send(self, topic, value, key, partition, timestamp_ms, headers, on_delivery)
        return self._backpressure.append(
            topic,
            value if isinstance(value, bytes) else as_bytes(value, "value"),
            key if isinstance(key, bytes) else as_bytes(key, "key"),
            -1 if partition is None else checked(partition, "partition"),
            -1 if timestamp_ms is None else checked(timestamp_ms, "timestamp_ms"),
            NO_HEADERS if headers is None else encoded_headers(headers),
            on_delivery,
        )

    def _send_serialized(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
    ) -> Delivery:
        """What `send` does after interceptors and serializers had their turn."""
        return self._backpressure.append(
            topic,
            value,
            key,
            -1 if partition is None else checked(partition, "partition"),
            -1 if timestamp_ms is None else checked(timestamp_ms, "timestamp_ms"),
            NO_HEADERS if headers is None else encoded_headers(headers),
            on_delivery,
        )

    def _append_batch(
        self, topic: str, partition: int, body: bytes, count: int, base_timestamp: int, max_timestamp: int
    ) -> Delivery:
        """Hand over `count` records that are encoded already: v2 records with deltas from 0 and `base_timestamp` on.

        They are sent as one batch of their own, behind what the partition has; the Delivery is the first record's.
        """
        return self._backpressure.append_batch(topic, partition, body, count, base_timestamp, max_timestamp)


def as_bytes(given: object, what: str) -> bytes | None:
    """What needs no serializer: bytes, text, nothing."""
    if given is None:
        return None
    if isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, (bytearray, memoryview)):
        return bytes(given)
    raise SerializationError(
        f"a {what} of type {type(given).__name__} needs a {what}.serializer: without one, give bytes, text or None"
    )


def checked(number: int, what: str) -> int:
    if number < 0:
        raise UserError(f"{what}={number}: give a number from 0 on, or None")
    return number


def encoded_headers(headers: Headers) -> bytes:
    if not headers:
        return NO_HEADERS
    pairs: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    plain: list[Header] = []
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            # Text of two letters would be a pair to Python.
            raise SerializationError(f"the header {pair!r} is no pair; give headers=[(name, value), ...] or a dict")
        name, value = pair
        if not isinstance(name, str):
            raise SerializationError(f"a header's name is text, not {type(name).__name__}")
        plain.append((name, as_bytes(value, "header value")))
    return encode_headers(tuple(plain))
