"""What a record passes before it is appended: interceptors, serializers and partitioners that a program brings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from braidlog.client import interceptors
from braidlog.client.errors import BufferFullError, RecordTooLargeError, RequestTimeout
from braidlog.client.producer.delivery import Delivery, OnDelivery, ProducerRecord
from braidlog.client.producer.partitioners import UNDECIDED, PartitionedTopic, Partitioner, partitioner_of
from braidlog.client.producer.send_path import Headers, SendPath, as_bytes
from braidlog.client.serialization import Serializer, serializer_of
from braidlog.client.settings import Settings
from braidlog.core.protocol_errors import ProtocolError

# A record that fails with one of these was meant for the transaction and is not in it.
FAILS_TRANSACTION: Final = (BufferFullError, RecordTooLargeError, RequestTimeout, ProtocolError)
# Waits for the topic's metadata; none when the caller must not wait.
FindTopic = Callable[[str], PartitionedTopic | None]


class ProducerInterceptors:
    """Interceptors (KIP-42), in the order of the settings; each sees what the one before it returned.

    An interceptor has one or both of

        on_send(record: ProducerRecord) -> ProducerRecord     in the caller's thread; `record._replace(…)` changes it
        on_acknowledgement(metadata, error)                   in the engine's thread: exactly one of the two is None,
                                                              but for failures whose partition was known

    and may have `configure(settings)` and `close()`.
    """

    def __init__(self, given: Sequence[object]) -> None:
        self._interceptors = given
        self._on_send = interceptors.methods(self._interceptors, "on_send")
        self._on_acknowledgement = interceptors.methods(self._interceptors, "on_acknowledgement")

    @classmethod
    def of(cls, settings: Settings) -> ProducerInterceptors | None:
        """None where `interceptor.classes` names none."""
        given = interceptors.interceptors_of(settings)
        return cls(given) if given else None

    @property
    def want_acknowledgements(self) -> bool:
        return bool(self._on_acknowledgement)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for on_send in self._on_send:
            try:
                record = on_send(record)
            except Exception:
                interceptors.complain(on_send, f"sending a record to topic {record.topic}")
        return record

    def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
        for on_acknowledgement in self._on_acknowledgement:
            try:
                on_acknowledgement(metadata, error)
            except Exception:
                interceptors.complain(on_acknowledgement, "handling an acknowledgement")

    def close(self) -> None:
        interceptors.close_all(self._interceptors)


class SendPipeline:
    def __init__(
        self,
        chain: ProducerInterceptors | None,
        key_serializer: Serializer | None,
        value_serializer: Serializer | None,
        partitioner: Partitioner | None,
        find_topic: FindTopic,
    ) -> None:
        self._interceptors = chain
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._partitioner = partitioner
        self._find_topic = find_topic

    @classmethod
    def of(cls, settings: Settings, find_topic: FindTopic) -> SendPipeline | None:
        """None where records go as they are."""
        parts = (
            ProducerInterceptors.of(settings),
            serializer_of(settings, "key.serializer"),
            serializer_of(settings, "value.serializer"),
            partitioner_of(settings),
        )
        return cls(*parts, find_topic) if any(part is not None for part in parts) else None

    @classmethod
    def plain(cls, find_topic: FindTopic) -> SendPipeline:
        return cls(None, None, None, None, find_topic)

    def send(
        self,
        send_path: SendPath,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
    ) -> Delivery:
        chain = self._interceptors
        if chain is None:
            return self._send(send_path, topic, value, key, partition, timestamp_ms, headers, on_delivery)
        pairs: tuple[Any, ...] = tuple(headers.items() if isinstance(headers, Mapping) else headers or ())
        record = chain.on_send(ProducerRecord(topic, value, key, partition, timestamp_ms, pairs))
        try:
            delivery = self._send(
                send_path, record.topic, record.value, record.key, record.partition, record.timestamp_ms,
                record.headers, on_delivery,
            )  # fmt: skip
        except Exception as problem:
            chain.on_acknowledgement(None, problem)
            raise
        if chain.want_acknowledgements:
            delivery.add_done_callback(self._acknowledged)
        return delivery

    def _acknowledged(self, delivery: Delivery) -> None:
        assert self._interceptors is not None
        self._interceptors.on_acknowledgement(*delivery.outcome())

    def _send(
        self,
        send_path: SendPath,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
    ) -> Delivery:
        make_key, make_value = self._key_serializer, self._value_serializer
        key_bytes = make_key(topic, key) if make_key is not None else as_bytes(key, "key")
        value_bytes = make_value(topic, value) if make_value is not None else as_bytes(value, "value")
        if partition is None and self._partitioner is not None:
            view = self._find_topic(topic)
            if view is not None:
                chosen = self._partitioner.partition(topic, key_bytes, value_bytes, view)
                partition = None if chosen == UNDECIDED else chosen
        return send_path._send_serialized(topic, value_bytes, key_bytes, partition, timestamp_ms, headers, on_delivery)

    @property
    def partitioner(self) -> Partitioner | None:
        return self._partitioner

    def close(self) -> None:
        for part in (self._key_serializer, self._value_serializer, self._partitioner, self._interceptors):
            if part is not None:
                part.close()


class TransactionalSendPipeline:
    """Reports each record that could not even be queued to the transaction: the rest must not be committed without it.

    What the program can correct by itself (a value without a serializer, a call at the wrong time) is only raised.
    """

    def __init__(self, inner: SendPipeline) -> None:
        self._inner = inner
        self.on_refused: Callable[[Exception], None] | None = None

    def send(
        self,
        send_path: SendPath,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
    ) -> Delivery:
        try:
            return self._inner.send(send_path, topic, value, key, partition, timestamp_ms, headers, on_delivery)
        except FAILS_TRANSACTION as problem:
            self.report(problem)
            raise

    def report(self, problem: Exception) -> None:
        if self.on_refused is not None:
            self.on_refused(problem)
