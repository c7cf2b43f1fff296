"""What handlers of group requests share: who asks, and answers about partitions that do not exist or are not theirs.

Offsets are kept for partitions that exist, for clients that may read them; what is asked about others is answered
without the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.coordinator.effects import Caller
from braidlog.coordinator.group.topics import Topics
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.message import Message


class OffsetTopic(Protocol):
    """A topic of a request or response that lists partitions by `partition_index`."""

    name: str
    partitions: Any


T = TypeVar("T", bound=OffsetTopic)
R = TypeVar("R", bound=Message)


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


def split_readable(authorizer: Authorizer, exchange: Exchange, topics: list[T]) -> tuple[list[T], list[T]]:
    """The topics that the client may read, and the others."""
    if not authorizer.enabled:
        return topics, []
    names = [topic.name for topic in topics]
    allowed = authorizer.allowed(exchange, AclOperation.READ, AclResourceType.TOPIC, names)
    return [each for each in topics if each.name in allowed], [each for each in topics if each.name not in allowed]


class MergingResponder(Generic[R]):
    """Answers the exchange with the coordinator's response, into which `merge` puts what never reached it."""

    __slots__ = ("_error_response", "_exchange", "_merge", "_response_type")

    def __init__(
        self,
        exchange: Exchange,
        response_type: type[R],
        error_response: Callable[[Any, int, ProtocolError], R],
        merge: Callable[[R], None],
    ) -> None:
        self._exchange = exchange
        self._response_type = response_type
        self._error_response = error_response
        self._merge = merge
        exchange.error_response = self._merged_error_response

    def answer(self, response: Message) -> None:
        if not isinstance(response, self._response_type):
            raise TypeError(f"{response} is no {self._response_type.__name__}")
        self._merge(response)
        self._exchange.answer(response)

    def fail(self, error: ProtocolError) -> None:
        self._exchange.fail(error)

    def _merged_error_response(self, request: Any, version: int, error: ProtocolError) -> R:
        response = self._error_response(request, version, error)
        self._merge(response)
        return response


def merged_topics(refused: list[T], answered: list[T], identity: Callable[[T], object]) -> list[T]:
    """A topic of which some partitions were refused and some answered comes once."""
    if not refused:
        return answered
    topics = {identity(topic): topic for topic in refused}
    for topic in answered:
        before = topics.setdefault(identity(topic), topic)
        if before is not topic:
            before.partitions += topic.partitions
    return list(topics.values())


def caller_of(exchange: Exchange) -> Caller:
    return Caller(exchange.version, exchange.client_id or "", f"/{exchange.channel.peer_host}")
