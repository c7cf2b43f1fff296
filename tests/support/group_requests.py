"""Members of classic groups, request by request."""

from __future__ import annotations

from braidlog.core.protocol_errors import MemberIdRequiredError
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from support.asked_broker import AskedBroker


async def join(broker: AskedBroker, group: str) -> JoinGroupResponse:
    """The first member of a group, which leads it."""
    await broker.await_coordinator(group)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=600_000,
        rebalance_timeout_ms=600_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")],
    )
    answer = await broker.ask(request, 9)
    assert answer.error_code == MemberIdRequiredError.code
    request.member_id = answer.member_id
    joined = await broker.ask(request, 9)
    assert isinstance(joined, JoinGroupResponse)
    assert joined.error_code == 0
    return joined
