"""Round-robin: all partitions of all topics in one row, dealt to the members in turn; who does not read a topic is
passed over."""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.client.consumer.assignors.interface import (
    Assignment,
    Assignor,
    Subscriber,
    TopicMetadata,
    readers_by_topic,
)


class RoundRobinAssignor(Assignor):
    name = "roundrobin"

    def assign(self, members: Sequence[Subscriber], topics: TopicMetadata) -> dict[str, Assignment]:
        assignments = {member.member_id: Assignment() for member in members}
        ordered = sorted(members, key=lambda each: each.rank)
        reads = [frozenset(member.topics) for member in ordered]
        turn = 0
        for partition in topics.partitions(readers_by_topic(members, topics)):
            while partition.topic not in reads[turn]:
                turn = (turn + 1) % len(ordered)
            assignments[ordered[turn].member_id].partitions.append(partition)
            turn = (turn + 1) % len(ordered)
        return assignments
