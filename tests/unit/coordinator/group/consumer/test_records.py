from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.coordinator.group.classic.member import MemberProtocol
from braidlog.coordinator.group.consumer import records
from braidlog.coordinator.group.consumer.group import ConsumerGroup
from braidlog.coordinator.group.consumer.member import (
    STATES,
    UNKNOWN,
    ClassicMemberMetadata,
    Profile,
    Progress,
)
from braidlog.coordinator.group.consumer.subscriptions import TopicMetadata
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated import group_records as layouts
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version, version_prefixed_bytes
from support.consumer_groups import ChangingTopics

names = st.text("abc", min_size=1, max_size=3)
maybe = st.none() | names
topic_ids = st.binary(min_size=16, max_size=16)
assignments = st.dictionaries(topic_ids, st.frozensets(st.integers(0, 50), min_size=1), max_size=3)
sides = st.builds(
    ClassicMemberMetadata,
    st.integers(0, 1000),
    st.lists(st.builds(MemberProtocol, names, st.binary()), max_size=2).map(tuple),
)
profiles = st.builds(
    Profile,
    instance_id=maybe,
    rack_id=maybe,
    client_id=names,
    client_host=names,
    topics=st.sets(names).map(lambda found: tuple(sorted(found))),
    regex=names | st.just(""),
    rebalance_timeout_ms=st.integers(-1, 1000),
    assignor=maybe,
    classic=st.none() | sides,
)
progresses = st.builds(
    Progress, st.integers(-2, 9), st.integers(-1, 9), st.sampled_from([*STATES, UNKNOWN]), assignments, assignments
)
snapshots = st.builds(TopicMetadata, topic_ids, st.just(2), st.just(()) | st.just((frozenset({"r"}), frozenset())))


class Log:
    """Records, and what a replay of them gives."""

    def __init__(self) -> None:
        self._shard = GroupCoordinatorShard(GroupSettings, ChangingTopics(), lambda: "member")
        self.groups = self._shard.groups

    def replay(self, key: bytes, value: bytes | None) -> None:
        record = ReplayedRecord(0, 0, key, value)
        self._shard.consumer.replay(read_version_prefix(key), reader_after_version(key), value, record)

    @property
    def group(self) -> ConsumerGroup:
        group = self.groups["g"]
        assert isinstance(group, ConsumerGroup)
        return group


@given(profile=profiles, progress=progresses, target=assignments, topics=st.dictionaries(names, snapshots))
def test_what_is_written_comes_back(
    profile: Profile,
    progress: Progress,
    target: dict[bytes, frozenset[int]],
    topics: dict[str, TopicMetadata],
) -> None:
    log = Log()
    entries = [
        (records.member_key("g", "m"), records.member_value(profile)),
        (records.current_key("g", "m"), records.current_value(progress)),
        (records.target_key("g", "m"), records.target_value(target)),
        (records.topics_key("g"), records.topics_value(topics)),
        (records.group_epoch_key("g"), records.epoch_value(7)),
        (records.target_epoch_key("g"), records.target_epoch_value(6)),
    ]
    for key, value in entries:
        log.replay(key, value)
    group = log.group
    assert (group.members["m"].profile, group.members["m"].progress) == (profile, progress)
    assert (group.targets, group.subscription_metadata, group.epoch, group.target_epoch) == (
        {"m": target},
        topics,
        7,
        6,
    )
    backwards = Log()
    for key, value in reversed(entries):
        backwards.replay(key, value)
    assert backwards.group.durable_state() == group.durable_state()


def test_members_as_kafka_writes_them() -> None:
    """From the log of Apache Kafka 3.9.1: it writes the tagged field of the classic protocol even where it is null."""
    new = b"\0\0\0\0\x04raw\x0b/127.0.0.1\x02\x05four\x01\0\0\xea`\0\x01\0\x01\0"
    old = (
        b"\0\0\0\0\x04raw\x0b/127.0.0.1\x02\x05four\x01\0\0\xea`\0\x01\x000\x01\0\0u0\x02\x13cooperative-sticky\x15"
        b"\0\x01\0\0\0\x01\0\x04four\xff\xff\xff\xff\0\0\0\0\0\0"
    )
    profile = Profile(client_id="raw", client_host="/127.0.0.1", topics=("four",), rebalance_timeout_ms=60_000)
    metadata = b"\0\x01\0\0\0\x01\0\x04four\xff\xff\xff\xff\0\0\0\0"
    side = ClassicMemberMetadata(30_000, (MemberProtocol("cooperative-sticky", metadata),))
    log = Log()
    log.replay(records.member_key("g", "new"), new)
    log.replay(records.member_key("g", "old"), old)
    assert log.group.members["new"].profile == profile
    assert log.group.members["old"].profile == replace(profile, classic=side)
    assert records.member_value(replace(profile, classic=side)) == old


def test_keys_say_what_they_are() -> None:
    versions = [
        read_version_prefix(key)
        for key in (
            records.group_epoch_key("g"),
            records.topics_key("g"),
            records.member_key("g", "m"),
            records.target_epoch_key("g"),
            records.target_key("g", "m"),
            records.current_key("g", "m"),
        )
    ]
    assert versions == [3, 4, 5, 6, 7, 8]


def test_tombstones_take_away_what_they_name_and_bear_what_is_not_there() -> None:
    log = Log()
    keys = [
        records.current_key("g", "m"),
        records.target_key("g", "m"),
        records.member_key("g", "m"),
        records.target_epoch_key("g"),
        records.topics_key("g"),
        records.group_epoch_key("g"),
    ]
    for key in keys:
        log.replay(key, None)
    assert not log.groups
    log.replay(records.member_key("g", "m"), records.member_value(Profile(instance_id="i", topics=("t",))))
    log.replay(records.current_key("g", "m"), records.current_value(Progress(1, 0, 0, {b"t" * 16: frozenset({0})})))
    assert log.group.is_taken(b"t" * 16, 0)
    log.replay(keys[0], None)
    assert not log.group.is_taken(b"t" * 16, 0)
    log.replay(keys[2], None)
    assert (log.group.members, log.group.static_members, log.group.names) == ({}, {}, {})
    for key in keys:
        log.replay(key, None)
    assert not log.groups


def test_an_instance_that_changed_hands_survives_the_former_owners_tombstones() -> None:
    log = Log()
    log.replay(records.member_key("g", "old"), records.member_value(Profile(instance_id="i")))
    log.replay(records.member_key("g", "new"), records.member_value(Profile(instance_id="i")))
    log.replay(records.member_key("g", "old"), None)
    assert log.group.static_members == {"i": "new"}


def test_a_state_that_is_not_known_is_kept_as_such() -> None:
    value = version_prefixed_bytes(layouts.ConsumerGroupCurrentMemberAssignmentValue(member_epoch=3, state=9), 0)
    log = Log()
    log.replay(records.current_key("g", "m"), value)
    assert log.group.members["m"].progress.state == UNKNOWN


def test_records_of_a_later_time() -> None:
    log = Log()
    log.replay(b"\x00\x10whatever", b"\x00\x00anything")
    assert not log.groups
    with pytest.raises(MalformedError, match="version 1"):
        log.replay(records.group_epoch_key("g"), b"\x00\x01\x00")
