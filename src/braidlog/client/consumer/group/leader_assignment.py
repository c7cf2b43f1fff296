"""What a group's leader does: reads what the members subscribe to, and assigns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from braidlog.client.cluster_view import ClusterView
from braidlog.client.consumer.assignors.embedded_protocol import read_subscription, write_assignment
from braidlog.client.consumer.assignors.interface import Assignor, Subscriber, TopicMetadata
from braidlog.client.errors import ClientError
from braidlog.core.types import TopicPartition
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.join_group import JoinGroupResponseMember


def subscribers(members: Iterable[JoinGroupResponseMember]) -> list[Subscriber]:
    """Raises where a member sends what no consumer would."""
    try:
        return [read_subscription(each.member_id, each.group_instance_id, each.metadata) for each in members]
    except MalformedError as problem:
        raise ClientError(
            f"a member of the group tells its subscription in a form that no consumer uses ({problem}); find out who "
            "else uses this group.id (Admin.describe_groups)"
        ) from problem


def topics_of(members: Iterable[Subscriber]) -> frozenset[str]:
    return frozenset(topic for member in members for topic in member.topics)


def topic_metadata_of(view: ClusterView, topics: Iterable[str], *, with_racks: bool) -> TopicMetadata:
    """What is known of these topics; two that are equal lead to equal assignments."""
    counts: dict[str, int] = {}
    racks: dict[str, list[frozenset[str]]] = {}
    for name in sorted(topics):
        topic = view.topic(name)
        if topic is None or not topic.partitions:
            continue
        counts[name] = len(topic.partitions)
        if with_racks:
            racks[name] = [_racks(view, partition.replicas) for partition in topic.partitions]
    return TopicMetadata(counts, racks if any(map(any, racks.values())) else {})


def _racks(view: ClusterView, replicas: tuple[int, ...]) -> frozenset[str]:
    brokers = [view.brokers[each] for each in replicas if each in view.brokers]
    return frozenset(broker.rack for broker in brokers if broker.rack is not None)


def perform_assignment(
    assignor: Assignor, members: Sequence[Subscriber], topics: TopicMetadata
) -> list[tuple[str, bytes]]:
    """An assignment for each member, as bytes; a partition given twice, or to an unknown member, is refused."""
    assignments = assignor.assign(members, topics)
    unknown = assignments.keys() - {member.member_id for member in members}
    if unknown:
        raise ClientError(f"the assignor {assignor.name} assigned to members that do not exist: {sorted(unknown)}")
    owners: dict[TopicPartition, str] = {}
    for member_id, assignment in assignments.items():
        for partition in assignment.partitions:
            if owners.setdefault(partition, member_id) != member_id:
                raise ClientError(
                    f"the assignor {assignor.name} gave {partition} to both {owners[partition]} and {member_id}; "
                    "a partition belongs to one member at a time"
                )
    return [(member_id, write_assignment(assignment)) for member_id, assignment in assignments.items()]
