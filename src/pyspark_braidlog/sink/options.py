"""The options of a write: the topic, the delivery guarantee, and settings of the producer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

from braidlog.client.producer.guarantees import guarantees_of
from braidlog.client.settings import CONSUMER, PRODUCER, Settings, definitions
from braidlog.core.errors import UserError
from pyspark_braidlog.client_settings import client_settings

_ENCODE: Final = "are written as the bytes they are; cast or encode them with functions of the DataFrame"
_UNSUPPORTED: Final = {
    "key.serializer": f"keys {_ENCODE}",
    "value.serializer": f"values {_ENCODE}",
    "interceptor.classes": "records are built many at a time, and no interceptor would see them",
    "partitioner.class": "records are spread many at a time; give each row its partition in a column named partition",
    "transactional.id": "the writer chooses it by query and task; tell several sinks of a query apart with sinkName",
}
# As Kafka Connect names them.
PARTITIONS: Final = "topic.creation.default.partitions"
REPLICATION_FACTOR: Final = "topic.creation.default.replication.factor"
# As many as the protocol has numbers for.
_MOST: Final = {PARTITIONS: 2**31 - 1, REPLICATION_FACTOR: 2**15 - 1}
_ALLOW: Final = "kafka.allow.auto.create.topics"
# What fits into names of groups and transactional ids, and can be distinguished from their other parts.
_SINK_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
# A transaction is open from the task's first row to its last. Fifteen minutes is the most that brokers allow by
# default, a minute (the clients' default) less than a slow task may take.
TRANSACTION_TIMEOUT_MS: Final = "900000"


Choice = TypeVar("Choice", bound=Enum)


class Delivery(Enum):
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class Recomputed(Enum):
    """What to do when a batch that was written before comes again with other rows."""

    REFUSE = "refuse"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """What becomes of a topic that does not exist: with `partitions` it is created, else the brokers are asked to."""

    is_allowed: bool = True
    partitions: int | None = None
    # None: the brokers' default.
    replication_factor: int | None = None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    topic: str | None
    delivery: Delivery
    # Tells several sinks of one query apart; "" where there is one.
    sink_name: str
    recomputed: Recomputed
    creation: TopicCreation
    # A producer's, by Kafka's names; there may be passwords among them.
    client: dict[str, str] = field(repr=False)

    @classmethod
    def checked(cls, options: Mapping[str, str], default: Delivery) -> WriteOptions:
        """`options` as Spark hands them over: names in any case. Nothing is connected to."""
        given = {name.lower(): value for name, value in options.items()}
        delivery = _one_of(Delivery, "delivery", given.get("delivery", default.value))
        name = given.get("sinkname", "").strip()
        if name and not _SINK_NAME.fullmatch(name):
            raise UserError(f"option sinkName={name!r} has to be of letters, digits, - and _, at most 64 of them")
        topic = given.get("topic")
        if topic is not None and not topic.strip():
            raise UserError("option topic is empty; name a topic, or leave it out and have a column topic")
        return cls(
            topic=None if topic is None else topic.strip(),
            delivery=delivery,
            sink_name=name,
            recomputed=_one_of(Recomputed, "recomputed", given.get("recomputed", Recomputed.REFUSE.value)),
            creation=_topic_creation(given),
            client=_client_settings(given, delivery),
        )

    @property
    def servers(self) -> str:
        return self.client["bootstrap.servers"]


def _one_of(kind: type[Choice], name: str, text: str) -> Choice:
    try:
        return kind(text.strip().lower())
    except ValueError:
        known = " or ".join(each.value for each in kind)
        raise UserError(f"option {name}={text!r} is not known; give {known}") from None


def _topic_creation(options: Mapping[str, str]) -> TopicCreation:
    partitions, factor = (_count(options, name) for name in (PARTITIONS, REPLICATION_FACTOR))
    if factor is not None and partitions is None:
        raise UserError(f"option {REPLICATION_FACTOR} goes with {PARTITIONS}: give both, or leave both to the brokers")
    allowed = options.get(_ALLOW, "true").strip().lower()
    if allowed not in ("true", "false"):
        raise UserError(f"option {_ALLOW}={allowed!r} is neither true nor false")
    return TopicCreation(allowed == "true", partitions, factor)


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or not 1 <= int(text) <= _MOST[name]:
        raise UserError(f"option {name}={text!r} is no whole number from 1 to {_MOST[name]}")
    return int(text)


def _client_settings(options: Mapping[str, str], delivery: Delivery) -> dict[str, str]:
    found = client_settings(options, PRODUCER, _UNSUPPORTED)
    if delivery is Delivery.EXACTLY_ONCE:
        found.setdefault("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
        # Raises for what rules transactions out, such as acks=1.
        guarantees_of(Settings.of(PRODUCER, {**found, "transactional.id": "to be chosen"}))
    else:
        guarantees_of(Settings.of(PRODUCER, found))
    # A table and a view have options for reading too, of which the producer would only warn.
    own, reading = definitions(PRODUCER), definitions(CONSUMER)
    return {name: value for name, value in found.items() if name in own or name not in reading}
