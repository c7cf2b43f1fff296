"""What state each replica of a partition is in, as brokers and their directories tell; pure but for asking them.

online        its broker is up, and it is in sync
not in sync   its broker is up and has a log of it, which lags behind
missing       its broker is up and has no log of it: the replica is assigned, and does not exist there
offline       its broker is down, or the directory of its log has failed
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from braidlog.cli.output import remark_failure
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import ClusterAuthorizationFailedError, ProtocolError
from braidlog.core.types import TopicPartition, address_text

if TYPE_CHECKING:
    from braidlog.client.admin.admin import Admin
    from braidlog.client.admin.cluster_description import BrokerDescription
    from braidlog.client.admin.topics import PartitionDescription, TopicDescription

# Of brokers.
UP: Final = "up"
# Registered, as one that was killed is until its session ends.
NO_ANSWER: Final = "no answer"
DOWN: Final = "down"

# Of partitions and replicas.
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


def partition_rows(
    topics: Iterable[TopicDescription], up: Collection[int], logs: Mapping[int, Collection[TopicPartition]]
) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic.name,
            "partition": each.partition,
            "state": partition_state(each),
            "leader": each.leader,
            "replicas": [
                {"broker": broker, "state": state}
                for broker, state in replica_states(topic.name, each, up, logs).items()
            ],
        }
        for topic in topics
        for each in topic.partitions
    ]


def broker_rows(
    partitions: Iterable[dict[str, Any]], up: Mapping[int, BrokerDescription], silent: Collection[int] = ()
) -> list[dict[str, Any]]:
    """Those that are registered, and those that only hold replicas."""
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    not_online: Counter[int] = Counter()
    for row in partitions:
        leads[row["leader"]] += 1
        for replica in row["replicas"]:
            replicas[replica["broker"]] += 1
            not_online[replica["broker"]] += replica["state"] != ONLINE
    return [
        {
            "broker": broker,
            "address": address_text(up[broker].host, up[broker].port) if broker in up else None,
            "rack": up[broker].rack if broker in up else None,
            "state": DOWN if broker not in up else NO_ANSWER if broker in silent else UP,
            "leads": leads[broker],
            "replicas": replicas[broker],
            "not_online": not_online[broker],
        }
        for broker in sorted({*up, *replicas})
    ]


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
