"""Leaving a group: what the member had is committed and revoked first, then LeaveGroup is sent."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any, Final

from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.group.membership import AutoCommit
from braidlog.client.consumer.group.rebalance_listener_invoker import RebalanceListenerInvoker
from braidlog.client.errors import ClientError, CommitFailedError
from braidlog.core.protocol_errors import ProtocolError, RebalanceInProgressError, name_of

# To be out for ourselves, and to write the goodbye if the coordinator is known.
_LEAVE_S: Final = 0.2

log = logging.getLogger("braidlog.client.group")


def leave_group(
    context: ConsumerContext,
    commits: AutoCommit | None,
    listener_invoker: RebalanceListenerInvoker,
    is_known: bool,
    goodbye: Coroutine[Any, Any, None],
    deadline: float,
) -> None:
    """In the program's thread. Errors of the network are only logged: whoever leaves does not wait for better times."""
    try:
        if is_known:
            if commits is not None:
                commits.auto_commit_before_rebalance(deadline)
            listener_invoker.invoke_revoked(context.subscription.assignment())
        else:
            listener_invoker.invoke_lost(context.subscription.assignment())
    except BaseException:
        goodbye.close()
        raise
    try:
        # Also where the commit took all the time: else it would go on being heard of, and keep what it does not read.
        context.engine.run(goodbye, max(deadline - context.clock.monotonic(), _LEAVE_S))
    except (ClientError, ProtocolError) as problem:
        log.info("group %s: left without telling the coordinator: %s", context.group_id, problem)


def warn_unclosed(group_id: str, instance_id: str | None) -> None:
    """A member whose consumer nobody closed."""
    then = (
        "it leaves the group now, and what was read since the last commit is read again"
        if instance_id is None
        else f"as {instance_id!r} (group.instance.id) it keeps its partitions until its session is over"
    )
    log.warning(
        "group %s: a consumer was never closed: %s; write `with Consumer(...) as consumer:`, or call close()",
        group_id,
        then,
    )


def commit_error(group_id: str, code: int) -> Exception:
    """What a program is told whose commit came too late for its generation."""
    if code == RebalanceInProgressError.code:
        return RebalanceInProgressError(
            f"group {group_id}: not committed, since the group is rebalancing; call poll() until that is over, then "
            "commit again what is still assigned"
        )
    return CommitFailedError(
        f"group {group_id}: not committed ({name_of(code)}), since the group went on without this member: its "
        "partitions were given to others, who read again what was not committed. That happens when poll() is not "
        "called within max.poll.interval.ms, or no heartbeat gets through within session.timeout.ms: handle fewer "
        "records at a time (max.poll.records), or allow more time"
    )
