"""Range: each topic's partitions in order, in one piece per member.

Members are put in order by instance id (static ones, first), then by member id. Topics with as many partitions and the
same readers are cut alike, so equal partition numbers meet at one member.
"""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.coordinator.group.consumer.assignors import MemberSubscription, Partitions
from braidlog.coordinator.group.consumer.member import Assignment


def assign_range(readers: Sequence[MemberSubscription], partitions: Partitions) -> dict[str, Assignment]:
    ordered = sorted(readers, key=_order)
    readers_of: dict[bytes, list[str]] = {}
    for reader in ordered:
        for topic_id in reader.topics:
            readers_of.setdefault(topic_id, []).append(reader.member_id)
    assigned: dict[str, dict[bytes, frozenset[int]]] = {reader.member_id: {} for reader in readers}
    for topic_id, members in readers_of.items():
        least, more = divmod(partitions.get(topic_id, 0), len(members))
        start = 0
        for place, member_id in enumerate(members):
            size = least + (place < more)
            if size == 0:
                break
            assigned[member_id][topic_id] = frozenset(range(start, start + size))
            start += size
    return dict(assigned)


def _order(reader: MemberSubscription) -> tuple[int, str]:
    return (0, reader.instance_id) if reader.instance_id is not None else (1, reader.member_id)
