"""Asks a broker who coordinates groups and transactional ids, and which offsets its partitions have.

One attempt each. Whether and when to ask again is up to the caller: a consumer goes on for as long as it lives, a
transaction until the error is definite, an admin call until its deadline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeVar

from braidlog.client.requests.find_coordinator import (
    FIND_COORDINATOR,
    CoordinatorType,
    find_coordinator_requests,
    found_coordinators,
)
from braidlog.client.requests.list_offsets import (
    LIST_OFFSETS,
    IsolationLevel,
    ListedOffset,
    OffsetQuery,
    list_offsets_request,
    listed_offsets,
)
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.find_coordinator import Coordinator, FindCoordinatorResponse
from braidlog.wire.generated.list_offsets import ListOffsetsResponse
from braidlog.wire.message import Message

Response = TypeVar("Response", bound=Message)

# Requests to a coordinator do not wait behind fetches and produces, which a broker answers in order and may hold back.
COORDINATOR_CONNECTION: Final = "coordinator"


class RequestConnection(Protocol):
    """What is used of a connection to a broker."""

    def version_for(self, api_key: int, at_most: int | None = None) -> int: ...

    async def call(
        self, api_key: int, request: Message, answer: type[Response], *, at_most: int | None = None, timeout_s: float
    ) -> Response: ...


async def find_coordinators(
    connection: RequestConnection, kind: CoordinatorType, keys: Sequence[str], timeout_s: float
) -> list[Coordinator]:
    """The coordinator of each key, or the error code that says why there is none; any broker can be asked."""
    found: list[Coordinator] = []
    for request in find_coordinator_requests(connection.version_for(FIND_COORDINATOR), kind, keys):
        response = await connection.call(FIND_COORDINATOR, request, FindCoordinatorResponse, timeout_s=timeout_s)
        found += found_coordinators(request, response)
    return found


async def list_offsets(
    leader: RequestConnection,
    queries: Mapping[TopicPartition, OffsetQuery],
    isolation: IsolationLevel,
    timeout_s: float,
    timeout_ms: int = 0,
) -> dict[TopicPartition, ListedOffset | ProtocolError]:
    """What the leader of partitions says of each; `timeout_ms` is how long the broker may take (tiered storage)."""
    request = list_offsets_request(queries, isolation, timeout_ms)
    return listed_offsets(await leader.call(LIST_OFFSETS, request, ListOffsetsResponse, timeout_s=timeout_s))
