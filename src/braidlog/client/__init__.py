"""Clients for any Kafka-compatible cluster: nothing in here is needed to serve one."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from braidlog.client.admin.admin import Admin as Admin
    from braidlog.client.consumer.async_consumer import AsyncConsumer as AsyncConsumer
    from braidlog.client.consumer.consumer import Consumer as Consumer
    from braidlog.client.consumer.listener import RebalanceListener as RebalanceListener
    from braidlog.client.consumer.offsets import OffsetAndMetadata as OffsetAndMetadata
    from braidlog.client.consumer.parallel import ParallelConsumer as ParallelConsumer
    from braidlog.client.consumer.record import ConsumerRecord as ConsumerRecord
    from braidlog.client.producer.delivery import Delivery as Delivery
    from braidlog.client.producer.delivery import RecordMetadata as RecordMetadata
    from braidlog.client.producer.producer import Producer as Producer
    from braidlog.core.types import TopicPartition as TopicPartition

# Public name -> the module that has it, imported when it is first asked for.
NAMES: Final = {
    "Admin": "braidlog.client.admin.admin",
    "AsyncConsumer": "braidlog.client.consumer.async_consumer",
    "Consumer": "braidlog.client.consumer.consumer",
    "ConsumerRecord": "braidlog.client.consumer.record",
    "Delivery": "braidlog.client.producer.delivery",
    "OffsetAndMetadata": "braidlog.client.consumer.offsets",
    "ParallelConsumer": "braidlog.client.consumer.parallel",
    "Producer": "braidlog.client.producer.producer",
    "RebalanceListener": "braidlog.client.consumer.listener",
    "RecordMetadata": "braidlog.client.producer.delivery",
    "TopicPartition": "braidlog.core.types",
}


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(NAMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *NAMES])
