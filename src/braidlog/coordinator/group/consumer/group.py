"""A group that the broker assigns: its members, the target they are led to, and what follows from both.

State comes from replayed records alone (`put_member` and the other setters); operations only look. What is counted
along (who has which partition, how many read a topic) spares a heartbeat from walking over the members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from braidlog.coordinator.effects import Effects
from braidlog.coordinator.group.consumer import records
from braidlog.coordinator.group.consumer.assignors import preferred_assignor
from braidlog.coordinator.group.consumer.member import (
    JOINING,
    LEFT,
    NEW_PROFILE,
    NEW_PROGRESS,
    NO_PARTITIONS,
    Assignment,
    ConsumerGroupMember,
    Profile,
    Progress,
    in_order,
)
from braidlog.coordinator.group.consumer.subscriptions import TopicMetadata, TopicRegexResolver
from braidlog.coordinator.group.group import Kind
from braidlog.coordinator.group.topics import Topics
from braidlog.core.protocol_errors import (
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    NonEmptyGroupError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from braidlog.wire.generated import consumer_group_describe as describe
from braidlog.wire.generated.list_groups import ListedGroup

EMPTY: Final = "Empty"
# The group has changed since its target was worked out; the next heartbeat does that.
ASSIGNING: Final = "Assigning"
# Some member is not where its target wants it to be.
RECONCILING: Final = "Reconciling"
STABLE: Final = "Stable"

# What ConsumerGroupDescribe calls members of either protocol.
CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1

# The first version of OffsetCommit whose generation may be a member's epoch.
EPOCH_COMMIT_FROM: Final = 9


class MemberLookup(NamedTuple):
    member: ConsumerGroupMember
    # The id under which the member was known before, if it took over an instance.
    replaces: str | None = None


class ConsumerGroup:
    def __init__(self, group_id: str, resolver: TopicRegexResolver) -> None:
        self._group_id = group_id
        self._resolver = resolver
        # Rises with every change that calls for a new target. Invariant: target_epoch <= epoch.
        self.epoch = 0
        self.target_epoch = 0
        self.members: dict[str, ConsumerGroupMember] = {}
        # Instance id -> member id.
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Assignment] = {}
        # The topics that the target was worked out for.
        self.subscription_metadata: dict[str, TopicMetadata] = {}
        # Not durable: the cluster's topics may differ from the snapshot, so the next heartbeat looks.
        self.topics_stale = True
        # Counted along: (topic id, partition) -> how many members have it (one, unless the log is wrong); readers
        # of each topic by name, members with each pattern, votes for each assignor, members of the classic protocol
        # and how many of those offer each of its ways of assigning.
        self._taken: dict[tuple[bytes, int], int] = {}
        self.names: dict[str, int] = {}
        self.regexes: dict[str, int] = {}
        self.votes: dict[str, int] = {}
        self.classic_members = 0
        self.classic_protocols: dict[str, int] = {}

    @property
    def group_id(self) -> str:
        return self._group_id

    @property
    def kind(self) -> Kind:
        return "consumer"

    def state_name(self) -> str:
        if not self.members:
            return EMPTY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        reconciled = all(member.progress.is_reconciled_to(self.target_epoch) for member in self.members.values())
        return STABLE if reconciled else RECONCILING

    def as_listed_group(self) -> ListedGroup:
        return ListedGroup(
            group_id=self._group_id, protocol_type="consumer", group_state=self.state_name(), group_type=self.kind
        )

    def as_described_group(self, topics: Topics, assignors: tuple[str, ...]) -> describe.DescribedGroup:
        return describe.DescribedGroup(
            group_id=self._group_id,
            group_state=self.state_name(),
            group_epoch=self.epoch,
            assignment_epoch=self.target_epoch,
            assignor_name=preferred_assignor(self.votes, assignors),
            members=[self._described_member(member, topics) for member in self.members.values()],
        )

    def _described_member(self, member: ConsumerGroupMember, topics: Topics) -> describe.Member:
        profile = member.profile
        return describe.Member(
            member_id=member.member_id,
            instance_id=profile.instance_id,
            rack_id=profile.rack_id,
            member_epoch=member.epoch,
            client_id=profile.client_id,
            client_host=profile.client_host,
            subscribed_topic_names=list(profile.topics),
            subscribed_topic_regex=profile.regex,
            assignment=_described_assignment(member.progress.assigned, topics),
            target_assignment=_described_assignment(self.targets.get(member.member_id, NO_PARTITIONS), topics),
            member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
        )

    def is_empty(self) -> bool:
        return not self.members

    # Members

    def member(self, member_id: str) -> ConsumerGroupMember:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"group {self._group_id!r} has no member {member_id!r}; join again")
        return member

    def require_not_full(self, member_id: str, max_size: int) -> None:
        if len(self.members) >= max_size and member_id not in self.members:
            raise GroupMaxSizeReachedError(f"group {self._group_id!r} has its {max_size} members")

    def require_static_member(self, instance_id: str, member_id: str) -> ConsumerGroupMember:
        """The member of that instance, if it is the one that asks."""
        member = self.static_member(instance_id)
        if member is None:
            raise UnknownMemberIdError(f"there is no instance {instance_id!r}; join again")
        if member.member_id != member_id:
            raise FencedInstanceIdError(f"instance {instance_id!r} belongs to member {member.member_id!r} now")
        return member

    def get_or_create_member(
        self, member_id: str, instance_id: str | None, epoch: int, owned: Assignment | None, effects: Effects
    ) -> MemberLookup:
        """The member that a ConsumerGroupHeartbeat comes from."""
        if instance_id is None:
            member = self.members.get(member_id) if epoch == JOINING else self.member(member_id)
            if member is None:
                return MemberLookup(ConsumerGroupMember(member_id, NEW_PROFILE, NEW_PROGRESS))
            member.validate_epoch(epoch, owned)
            return MemberLookup(member)
        if epoch != JOINING:
            member = self.require_static_member(instance_id, member_id)
            member.validate_epoch(epoch, owned)
            return MemberLookup(member)
        known = self.static_member(instance_id)
        if known is None:
            member = self.members.get(member_id, ConsumerGroupMember(member_id, NEW_PROFILE, NEW_PROGRESS))
            member.validate_epoch(epoch, owned)
            return MemberLookup(member)
        known.require_released(member_id)
        return self._replace_static_member(known, member_id, effects)

    def get_or_create_classic_member(
        self, member_id: str, instance_id: str | None, is_new: bool, effects: Effects
    ) -> MemberLookup:
        """The member that a JoinGroup comes from, without an epoch yet; `is_new` if it was given its id just now."""
        if instance_id is None:
            return MemberLookup(self.members.get(member_id, ConsumerGroupMember(member_id, NEW_PROFILE, NEW_PROGRESS)))
        if not is_new:
            return MemberLookup(self.require_static_member(instance_id, member_id))
        known = self.static_member(instance_id)
        if known is None:
            return MemberLookup(ConsumerGroupMember(member_id, NEW_PROFILE, NEW_PROGRESS))
        return self._replace_static_member(known, member_id, effects)

    def _replace_static_member(self, former: ConsumerGroupMember, member_id: str, effects: Effects) -> MemberLookup:
        """The instance goes on under another member id, with what it had."""
        before = former.progress
        progress = Progress(JOINING, JOINING, before.state, before.assigned, before.revoking)
        member = ConsumerGroupMember(member_id, former.profile, progress)
        if member_id != former.member_id:
            records.write_member_tombstones(self._group_id, former.member_id, effects)
            target = self.targets.get(former.member_id, NO_PARTITIONS)
            records.write_member(self._group_id, member, target, effects)
        return MemberLookup(member, former.member_id)

    def static_member(self, instance_id: str) -> ConsumerGroupMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def is_taken(self, topic_id: bytes, partition: int) -> bool:
        return (topic_id, partition) in self._taken

    def waits_for_others(self, member: ConsumerGroupMember) -> bool:
        """Whether none of what the member still lacks is free."""
        target = self.targets.get(member.member_id, {})
        for topic_id, partitions in target.items():
            for number in partitions - member.progress.assigned.get(topic_id, frozenset()):
                if not self.is_taken(topic_id, number):
                    return False
        return True

    def names_with(self, before: Profile, after: Profile) -> list[str]:
        """The topics that are read once a member's profile has changed from `before` to `after`, in order."""
        return self._names((before,), (after,))

    def names_without(self, gone: list[Profile]) -> list[str]:
        return self._names(gone, ())

    def _names(self, less: Iterable[Profile], more: Iterable[Profile]) -> list[str]:
        names, regexes = dict(self.names), dict(self.regexes)
        for profiles, by in ((less, -1), (more, 1)):
            for profile in profiles:
                _count(names, profile.topics, by)
                _count(regexes, (profile.regex,), by)
        if not regexes:
            return sorted(names)
        return sorted({*names, *(name for regex in regexes for name in self._resolver.resolve(regex))})

    def votes_with(self, before: Profile, after: Profile) -> Mapping[str, int]:
        if before.assignor == after.assignor:
            return self.votes
        votes = dict(self.votes)
        _count(votes, (before.assignor,), -1)
        _count(votes, (after.assignor,), 1)
        return votes

    # Replay

    def put_profile(self, member_id: str, profile: Profile) -> None:
        before = self.members.get(member_id)
        if before is None:
            self.members[member_id] = ConsumerGroupMember(member_id, profile, NEW_PROGRESS)
        else:
            self._tally(before.profile, -1)
            self._forget_instance(before)
            self.members[member_id] = ConsumerGroupMember(member_id, profile, before.progress)
        self._tally(profile, 1)
        if profile.instance_id is not None:
            self.static_members[profile.instance_id] = member_id

    def put_progress(self, member_id: str, progress: Progress | None) -> None:
        """None is the first of the three tombstones of a member that leaves."""
        before = self.members.get(member_id)
        if before is not None:
            self._hold(before.progress, -1)
        elif progress is None:
            return
        after = progress if progress is not None else Progress(epoch=LEFT)
        self.members[member_id] = ConsumerGroupMember(
            member_id, NEW_PROFILE if before is None else before.profile, after
        )
        self._hold(after, 1)

    def put_target(self, member_id: str, target: Assignment | None) -> None:
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._tally(member.profile, -1)
            self._hold(member.progress, -1)
            self._forget_instance(member)
        self.targets.pop(member_id, None)

    def _forget_instance(self, member: ConsumerGroupMember) -> None:
        instance = member.profile.instance_id
        if instance is not None and self.static_members.get(instance) == member.member_id:
            del self.static_members[instance]

    def _tally(self, profile: Profile, by: int) -> None:
        _count(self.names, profile.topics, by)
        _count(self.regexes, (profile.regex,), by)
        _count(self.votes, (profile.assignor,), by)
        if profile.classic is not None:
            self.classic_members += by
            _count(self.classic_protocols, {protocol.name: None for protocol in profile.classic.protocols}, by)

    def _hold(self, progress: Progress, by: int) -> None:
        for assignment in (progress.assigned, progress.revoking):
            for topic_id, partitions in assignment.items():
                for number in partitions:
                    place = (topic_id, number)
                    count = self._taken.get(place, 0) + by
                    if count:
                        self._taken[place] = count
                    else:
                        self._taken.pop(place, None)

    # What is asked of any group

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, transactional: bool, version: int
    ) -> None:
        if generation < 0 and not self.members:
            return  # an administrator sets offsets
        if transactional and generation < 0 and not member_id and instance_id is None:
            return  # a producer from before KIP-447 does not say who it is
        member = self.member(member_id)
        if not transactional and not member.is_classic and version < EPOCH_COMMIT_FROM:
            message = f"members of the consumer protocol commit with OffsetCommit v{EPOCH_COMMIT_FROM} or later"
            raise UnsupportedVersionError(message)
        _validate_epoch(member, generation)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        _validate_epoch(self.member(member_id or ""), member_epoch)

    def validate_offset_delete(self) -> None:
        """Any time: topics that members read are refused one by one."""

    def validate_delete(self) -> None:
        if self.members:
            raise NonEmptyGroupError(f"group {self._group_id!r} has {len(self.members)} members; stop them first")

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.names or any(topic in self._resolver.resolve(regex) for regex in self.regexes)

    def offsets_age_from(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def write_tombstones(self, effects: Effects, *, applied: bool = False) -> None:
        group_id = self._group_id
        keys = [records.current_key(group_id, member_id) for member_id in self.members]
        keys += [records.target_key(group_id, member_id) for member_id in self.targets]
        keys.append(records.target_epoch_key(group_id))
        keys += [records.member_key(group_id, member_id) for member_id in self.members]
        keys.append(records.topics_key(group_id))
        keys.append(records.group_epoch_key(group_id))
        for key in keys:
            effects.write(key, None, applied=applied)

    def durable_state(self) -> object:
        return (
            self.epoch,
            self.target_epoch,
            {member.member_id: _plain(member) for member in self.members.values()},
            {member_id: in_order(target) for member_id, target in self.targets.items()},
            dict(self.subscription_metadata),
        )


def _plain(member: ConsumerGroupMember) -> object:
    progress = member.progress
    numbers = (progress.epoch, progress.previous_epoch, progress.state)
    return member.profile, numbers, in_order(progress.assigned), in_order(progress.revoking)


def _count(counts: dict[str, int], names: Iterable[str | None], by: int) -> None:
    """Add to the counts of the names that are given; None and an empty one are skipped."""
    for name in names:
        if name:
            count = counts.get(name, 0) + by
            if count:
                counts[name] = count
            else:
                counts.pop(name, None)


def _validate_epoch(member: ConsumerGroupMember, epoch: int) -> None:
    if epoch == member.epoch:
        return
    if member.is_classic:
        raise IllegalGenerationError(f"member {member.member_id!r} is in generation {member.epoch}, not {epoch}")
    raise StaleMemberEpochError(f"member {member.member_id!r} is in epoch {member.epoch}, not {epoch}")


def _described_assignment(assignment: Assignment, topics: Topics) -> describe.Assignment:
    """Topics that were deleted have no name any more and are left out."""
    entries = []
    for topic_id, numbers in in_order(assignment):
        name = topics.name_of(topic_id)
        if name is not None:
            entries.append(describe.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers))
    return describe.Assignment(topic_partitions=entries)
