"""Offsets are kept for partitions that exist: what is asked about others is answered without the coordinator."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from braidlog.broker.requests.dispatch import MakeErrorResponse
from braidlog.broker.requests.responders import ExchangeResponder
from braidlog.coordinator.group.topics import Topics
from braidlog.core.protocol_errors import NONE
from braidlog.net.exchange import Exchange
from braidlog.wire.message import Message


class WantedTopic(Protocol):
    """A topic of a request that lists partitions by `partition_index`."""

    name: str
    partitions: Any


T = TypeVar("T", bound=WantedTopic)


def split_existing(topics: list[T], cluster: Topics) -> tuple[list[T], list[tuple[T, list[Any]]]]:
    """The topics with those of their partitions that exist, and for each the ones that do not."""
    known: list[T] = []
    unknown: list[tuple[T, list[Any]]] = []
    for topic in topics:
        facts = cluster.get(topic.name)
        count = 0 if facts is None else facts.partitions
        missing = [wanted for wanted in topic.partitions if not 0 <= wanted.partition_index < count]
        if missing:
            unknown.append((topic, missing))
            topic.partitions = [wanted for wanted in topic.partitions if 0 <= wanted.partition_index < count]
        if topic.partitions:
            known.append(topic)
    return known, unknown


class MergingResponder(ExchangeResponder):
    """Adds to the coordinator's answer the topics that never reached it, unless it is about the group as a whole."""

    __slots__ = ("_refused",)

    def __init__(self, exchange: Exchange, request: Any, error_response: MakeErrorResponse, refused: list[Any]) -> None:
        super().__init__(exchange, request, error_response)
        self._refused = refused

    def answer(self, response: Message) -> None:
        if self._refused and getattr(response, "error_code", NONE) == NONE:
            self._merge(response)
        super().answer(response)

    def _merge(self, response: Any) -> None:
        topics = {_identity(topic): topic for topic in self._refused}
        for topic in response.topics:
            before = topics.setdefault(_identity(topic), topic)
            if before is not topic:
                before.partitions += topic.partitions
        response.topics = list(topics.values())


def _identity(topic: Any) -> tuple[str, bytes | None]:
    return topic.name, getattr(topic, "topic_id", None)
