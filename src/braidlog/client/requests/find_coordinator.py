"""FindCoordinator: which broker coordinates a group or a transactional id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from braidlog.core.protocol_errors import CoordinatorNotAvailableError
from braidlog.wire.generated.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

FIND_COORDINATOR: Final = 10
# The first version that takes several keys at once.
_BATCHED: Final = 4


class CoordinatorType(NamedTuple):
    """What is coordinated: the protocol's number for it and how a person calls it."""

    key_type: int
    noun: str


GROUP: Final = CoordinatorType(0, "group")
TRANSACTION: Final = CoordinatorType(1, "transactional id")


def find_coordinator_requests(version: int, kind: CoordinatorType, keys: Sequence[str]) -> list[FindCoordinatorRequest]:
    """One request for all keys, or one for each where the broker takes no more."""
    if version >= _BATCHED:
        return [FindCoordinatorRequest(key_type=kind.key_type, coordinator_keys=list(keys))]
    return [FindCoordinatorRequest(key=key, key_type=kind.key_type) for key in keys]


def found_coordinators(request: FindCoordinatorRequest, response: FindCoordinatorResponse) -> list[Coordinator]:
    """The coordinator of each key, or the error code that says why there is none."""
    if not request.coordinator_keys:
        return [_single(request.key, response, response.error_code)]
    found = {each.key: each for each in response.coordinators}
    # A response that leaves a key out says at best what is wrong with the request as a whole.
    error_code = response.error_code or CoordinatorNotAvailableError.code
    return [found.get(key) or _single(key, response, error_code) for key in request.coordinator_keys]


def _single(key: str, response: FindCoordinatorResponse, error_code: int) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=error_code,
        error_message=response.error_message,
    )
