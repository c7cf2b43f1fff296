"""What state each replica of a partition is in, as brokers and their directories tell; pure but for asking them.

online        its broker is up, and it is in sync
not in sync   its broker is up and has a log of it, which lags behind
missing       its broker is up and has no log of it: the replica is assigned, and does not exist there
offline       its broker is down, or the directory of its log has failed
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from braidlog.cli.output import remark_failure
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import ClusterAuthorizationFailedError, ProtocolError
from braidlog.core.types import TopicPartition

if TYPE_CHECKING:
    from braidlog.client.admin.admin import Admin
    from braidlog.client.admin.topics import PartitionDescription

ONLINE: Final = "online"
OFFLINE: Final = "offline"
UNDER_REPLICATED: Final = "under-replicated"
NOT_IN_SYNC: Final = "not in sync"
MISSING: Final = "missing"


def partition_state(partition: PartitionDescription) -> str:
    if partition.leader is None:
        return OFFLINE
    return ONLINE if len(partition.in_sync) >= len(partition.replicas) else UNDER_REPLICATED


def replica_states(
    topic: str,
    partition: PartitionDescription,
    up: Collection[int],
    logs: Mapping[int, Collection[TopicPartition]],
) -> dict[int, str]:
    """By broker, in the order of the assignment; `logs` are those of brokers that could be asked."""
    place = TopicPartition(topic, partition.partition)
    states: dict[int, str] = {}
    for broker in partition.replicas:
        if broker not in up or broker in partition.offline:
            states[broker] = OFFLINE
        elif broker in logs and place not in logs[broker]:
            states[broker] = MISSING
        else:
            states[broker] = ONLINE if broker in partition.in_sync else NOT_IN_SYNC
    return states


def states_text(replicas: Iterable[Mapping[str, Any]]) -> str:
    """Of rows with a broker and its replica's state."""
    return ", ".join(f"{each['broker']} {each['state']}" for each in replicas)


def broker_logs(
    admin: Admin, brokers: Iterable[int], partitions: Collection[TopicPartition] | None = None
) -> tuple[dict[int, frozenset[TopicPartition]], set[int]]:
    """The partitions that each broker has a log of, and the brokers that do not answer."""
    asked = sorted(brokers)
    try:
        found = admin.describe_log_dirs(asked, partitions=partitions)
    except BraidlogError as problem:
        # Not one of them answers, though another did.
        remark_failure(problem)
        return {}, set(asked)
    for each in found.errors.values():
        # Who may not see directories still sees who is in sync.
        if not isinstance(each, ClusterAuthorizationFailedError):
            remark_failure(each)
    logs = {
        broker_id: frozenset(place for each in directories for place in each.replicas)
        for broker_id, directories in found.succeeded.items()
    }
    # A refusal is an answer.
    return logs, {broker_id for broker_id, problem in found.errors.items() if not isinstance(problem, ProtocolError)}
