"""Works out who is to have which partitions, and writes down what that changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from braidlog.coordinator.effects import Effects
from braidlog.coordinator.group.consumer import records
from braidlog.coordinator.group.consumer.assignors import MemberSubscription, Partitions
from braidlog.coordinator.group.consumer.member import NO_PARTITIONS, Assignment, Profile
from braidlog.coordinator.group.consumer.range_assignor import assign_range
from braidlog.coordinator.group.consumer.subscriptions import TopicMetadata, TopicRegexResolver
from braidlog.coordinator.group.consumer.uniform_assignor import assign_uniform

ASSIGNORS: Final[Mapping[str, Callable[[Sequence[MemberSubscription], Partitions], dict[str, Assignment]]]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}


def preferred_assignor(votes: Mapping[str, int], known: tuple[str, ...]) -> str:
    """The one that most members ask for; the first of the settings where they do not care or agree."""
    best = known[0]
    for name in known:
        if votes.get(name, 0) > votes.get(best, 0):
            best = name
    return best


def build_target_assignment(
    profiles: Mapping[str, Profile],
    before: Mapping[str, Assignment],
    subscription_metadata: Mapping[str, TopicMetadata],
    resolver: TopicRegexResolver,
    assignor: str,
) -> dict[str, Assignment]:
    ids: dict[tuple[str, ...], tuple[bytes, ...]] = {}
    readers: list[MemberSubscription] = []
    for member_id, profile in profiles.items():
        names = resolver.topics_of(profile)
        topics = ids.get(names)
        if topics is None:
            topics = ids[names] = tuple(
                subscription_metadata[name].topic_id for name in names if name in subscription_metadata
            )
        readers.append(MemberSubscription(member_id, profile.instance_id, topics, before.get(member_id, NO_PARTITIONS)))
    partitions = {topic.topic_id: topic.partitions for topic in subscription_metadata.values()}
    return ASSIGNORS[assignor](readers, partitions)


def write_target(
    effects: Effects,
    group_id: str,
    epoch: int,
    before: Mapping[str, Assignment],
    target: Mapping[str, Assignment],
) -> None:
    for member_id, assignment in target.items():
        if before.get(member_id) != assignment:
            effects.write(records.target_key(group_id, member_id), records.target_value(assignment))
    effects.write(records.target_epoch_key(group_id), records.target_epoch_value(epoch))
