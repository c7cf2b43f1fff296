"""FindCoordinator (api 10): groups and transactions are not served yet, which clients are told as "try again"."""

from __future__ import annotations

from braidlog.core.protocol_errors import CoordinatorNotAvailableError, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse


def handle(request: FindCoordinatorRequest, exchange: Exchange) -> FindCoordinatorResponse:
    raise CoordinatorNotAvailableError("this broker does not coordinate groups or transactions yet")


def refuse(request: FindCoordinatorRequest, version: int, error: ProtocolError) -> FindCoordinatorResponse:
    if version < 4:
        return FindCoordinatorResponse(error_code=error.code, error_message=error.message, node_id=-1, port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message)
            for key in request.coordinator_keys
        ]
    )
