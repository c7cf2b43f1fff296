"""braidlog: a commit log that speaks the Kafka wire protocol, and clients for it."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if os.environ.get("BRAIDLOG_PURE") == "1":
    from braidlog._pure import prefer_source

    prefer_source()

if TYPE_CHECKING:
    from braidlog import errors as errors
    from braidlog.client import (
        AbortableError,
        Admin,
        ArgumentError,
        AsyncConsumer,
        AuthenticationFailed,
        BraidlogError,
        BufferFullError,
        ClientError,
        ClosedError,
        CommitFailedError,
        ConcurrentUseError,
        Consumer,
        ConsumerRecord,
        Delivery,
        DeliveryTimeoutError,
        FencedProducerError,
        HandlerFailedError,
        LogTruncatedError,
        NewTopic,
        NoConnection,
        NoOffsetError,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        ParallelConsumer,
        PoisonRecordError,
        Producer,
        ProducerFailedError,
        ProtocolError,
        RebalanceListener,
        RecordMetadata,
        RecordTooLargeError,
        RequestTimeout,
        SerializationError,
        SettingError,
        TopicPartition,
        TransactionStateError,
        UserError,
        WakeupError,
    )
    from braidlog.core.version import VERSION as __version__

__all__ = [
    "AbortableError", "Admin", "ArgumentError", "AsyncConsumer", "AuthenticationFailed", "BraidlogError",
    "BufferFullError", "ClientError", "ClosedError", "CommitFailedError", "ConcurrentUseError", "Consumer",
    "ConsumerRecord", "Delivery", "DeliveryTimeoutError", "FencedProducerError", "HandlerFailedError",
    "LogTruncatedError", "NewTopic", "NoConnection", "NoOffsetError", "OffsetAndMetadata", "OffsetAndTimestamp",
    "ParallelConsumer", "PoisonRecordError", "Producer", "ProducerFailedError", "ProtocolError", "RebalanceListener",
    "RecordMetadata", "RecordTooLargeError", "RequestTimeout", "SerializationError", "SettingError", "TopicPartition",
    "TransactionStateError", "UserError", "WakeupError",
    "__version__",
]  # fmt: skip

# A type checker reads the imports above: to it, any other name is a mistake.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The clients and the rest, imported when first asked for: a broker never pays for them."""
        if name == "errors":
            return import_module("braidlog.errors")
        if name == "__version__":
            return import_module("braidlog.core.version").VERSION
        if name not in __all__:
            raise AttributeError(f"module 'braidlog' has no attribute {name!r}")
        return getattr(import_module("braidlog.client"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
