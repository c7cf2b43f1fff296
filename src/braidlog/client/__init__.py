"""Clients for any Kafka-compatible cluster: nothing in here is needed to serve one."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from braidlog.client.admin.admin import Admin
    from braidlog.client.admin.topics import NewTopic
    from braidlog.client.consumer.async_consumer import AsyncConsumer
    from braidlog.client.consumer.consumer import Consumer
    from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata, OffsetAndTimestamp
    from braidlog.client.consumer.parallel.parallel_consumer import ParallelConsumer
    from braidlog.client.consumer.rebalance_listener import RebalanceListener
    from braidlog.client.consumer.record import ConsumerRecord
    from braidlog.client.producer.delivery import Delivery, RecordMetadata
    from braidlog.client.producer.producer import Producer
    from braidlog.core.types import TopicPartition
    from braidlog.errors import (
        AbortableError,
        ArgumentError,
        AuthenticationFailed,
        BraidlogError,
        BufferFullError,
        ClientError,
        ClosedError,
        CommitFailedError,
        ConcurrentUseError,
        DeliveryTimeoutError,
        FencedProducerError,
        HandlerFailedError,
        LogTruncatedError,
        NoConnection,
        NoOffsetError,
        PoisonRecordError,
        ProducerFailedError,
        ProtocolError,
        RecordTooLargeError,
        RequestTimeout,
        SerializationError,
        SettingError,
        TransactionStateError,
        UserError,
        WakeupError,
    )

# Public name -> the module that has it, imported when it is first asked for. Any other is an error.
_MODULE_OF: Final = {
    "Admin": "braidlog.client.admin.admin",
    "AsyncConsumer": "braidlog.client.consumer.async_consumer",
    "Consumer": "braidlog.client.consumer.consumer",
    "ConsumerRecord": "braidlog.client.consumer.record",
    "Delivery": "braidlog.client.producer.delivery",
    "NewTopic": "braidlog.client.admin.topics",
    "OffsetAndMetadata": "braidlog.client.consumer.offsets.offset_and_metadata",
    "OffsetAndTimestamp": "braidlog.client.consumer.offsets.offset_and_metadata",
    "ParallelConsumer": "braidlog.client.consumer.parallel.parallel_consumer",
    "Producer": "braidlog.client.producer.producer",
    "RebalanceListener": "braidlog.client.consumer.rebalance_listener",
    "RecordMetadata": "braidlog.client.producer.delivery",
    "TopicPartition": "braidlog.core.types",
}

__all__ = [
    "AbortableError", "Admin", "ArgumentError", "AsyncConsumer", "AuthenticationFailed", "BraidlogError",
    "BufferFullError", "ClientError", "ClosedError", "CommitFailedError", "ConcurrentUseError", "Consumer",
    "ConsumerRecord", "Delivery", "DeliveryTimeoutError", "FencedProducerError", "HandlerFailedError",
    "LogTruncatedError", "NewTopic", "NoConnection", "NoOffsetError", "OffsetAndMetadata", "OffsetAndTimestamp",
    "ParallelConsumer", "PoisonRecordError", "Producer", "ProducerFailedError", "ProtocolError", "RebalanceListener",
    "RecordMetadata", "RecordTooLargeError", "RequestTimeout", "SerializationError", "SettingError", "TopicPartition",
    "TransactionStateError", "UserError", "WakeupError",
]  # fmt: skip

# A type checker reads the imports above: to it, any other name is a mistake.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULE_OF.get(name, "braidlog.errors")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
