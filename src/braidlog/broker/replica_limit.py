"""Keeps partitions of a cluster at one replica, as long as followers do not copy records.

A second replica that stays empty would be worse than none: it counts as in sync, and the death of the leader would make
it the leader. A lone broker refuses more replicas than brokers anyway.
"""

from __future__ import annotations

from typing import Final

from braidlog.cluster.image import ClusterImage
from braidlog.controller.requests import USE_DEFAULT, NewTopic, Reassignment
from braidlog.core.protocol_errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError, ProtocolError

MOST_REPLICAS: Final = 1


def refuse_replicas(wanted: NewTopic, default: int, image: ClusterImage) -> ProtocolError | None:
    """`default` is default.replication.factor."""
    if len(image.brokers) <= 1:
        return None
    if wanted.assignments:
        most = max(len(replicas) for replicas in wanted.assignments.values())
    else:
        most = default if wanted.replication_factor == USE_DEFAULT else wanted.replication_factor
    if most <= MOST_REPLICAS:
        return None
    return InvalidReplicationFactorError(
        f"{most} replicas were asked for, and this version does not copy records between brokers yet: "
        "use a replication factor of 1"
    )


def refuse_move(wanted: Reassignment, image: ClusterImage) -> ProtocolError | None:
    """A move between brokers would never end; taking one back is fine."""
    before = image.partition(wanted.partition)
    if wanted.replicas is None or before is None or len(image.brokers) <= 1:
        return None
    if set(wanted.replicas) <= set(before.replicas):
        return None
    return InvalidReplicaAssignmentError(
        f"{wanted.partition} cannot move from {list(before.replicas)} to {list(wanted.replicas)}: this version does "
        "not copy records between brokers yet"
    )
