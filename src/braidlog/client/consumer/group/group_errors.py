"""Errors of a group coordinator that do not pass, with what to do about them."""

from __future__ import annotations

from typing import Final

from braidlog.client.broker_errors import broker_error
from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import FencedInstanceIdError, ProtocolError

_ADVICE: Final[dict[int, str]] = {
    errors.InconsistentGroupProtocolError.code: "its members know no assignor in common, or use the group for "
    "something else than consuming; give all of them one assignor (partition.assignment.strategy), or choose another "
    "group.id",
    errors.InvalidSessionTimeoutError.code: "the broker does not allow this session.timeout.ms; stay between its "
    "group.min.session.timeout.ms and group.max.session.timeout.ms",
    errors.GroupMaxSizeReachedError.code: "it has as many members as the broker allows (group.max.size)",
    errors.UnreleasedInstanceIdError.code: "another member has this group.instance.id and has not left yet; wait until "
    "its session is over, or give this one another",
    errors.UnsupportedAssignorError.code: "the broker has no such assignor; choose another group.remote.assignor, or "
    "leave the choice to the broker",
    errors.InvalidRegularExpressionError.code: "the broker does not understand the pattern",
    errors.UnsupportedVersionError.code: "the broker does not speak this group protocol; use group.protocol=classic",
}


def group_error(code: int, group_id: str, message: str | None = None) -> ProtocolError:
    return broker_error(code, f"group {group_id}", message or _ADVICE.get(code))


def fenced_instance_error(group_id: str, instance_id: str | None) -> FencedInstanceIdError:
    return FencedInstanceIdError(
        f"group {group_id}: another member has come with group.instance.id {instance_id!r} and taken this one's place; "
        "stop one of the two, or give each its own. This consumer has to be closed"
    )
