"""braidlog: a distributed, replicated commit log that speaks the Kafka wire protocol, and clients for it."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if os.environ.get("BRAIDLOG_PURE") == "1":
    from braidlog._pure import prefer_source

    prefer_source()

if TYPE_CHECKING:
    from braidlog.client import Admin as Admin
    from braidlog.client import AsyncConsumer as AsyncConsumer
    from braidlog.client import Consumer as Consumer
    from braidlog.client import ConsumerRecord as ConsumerRecord
    from braidlog.client import Delivery as Delivery
    from braidlog.client import OffsetAndMetadata as OffsetAndMetadata
    from braidlog.client import ParallelConsumer as ParallelConsumer
    from braidlog.client import Producer as Producer
    from braidlog.client import RebalanceListener as RebalanceListener
    from braidlog.client import RecordMetadata as RecordMetadata
    from braidlog.client import TopicPartition as TopicPartition


def __getattr__(name: str) -> Any:
    """The clients, imported when first asked for: a broker never pays for them."""
    # Submodules are asked for here first, too: only a capital letter can be a client's name.
    if not name[:1].isupper():
        raise AttributeError(f"module 'braidlog' has no attribute {name!r}")
    return getattr(import_module("braidlog.client"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *import_module("braidlog.client").NAMES])
