"""The same requests to Apache Kafka 3.9 and to us: the consumer group protocol, and groups that change between both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tools.peers.kafka import SHIPPED_SETTINGS

from braidlog.coordinator.group.consumer.group import ConsumerGroup
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.wire.generated.consumer_group_describe import ConsumerGroupDescribeRequest
from braidlog.wire.generated.consumer_protocol import AssignedTopicPartition, ConsumerProtocolAssignment
from braidlog.wire.generated.delete_groups import DeleteGroupsRequest
from braidlog.wire.generated.describe_groups import DescribeGroupsRequest
from braidlog.wire.generated.list_groups import ListGroupsRequest
from braidlog.wire.generated.sync_group import SyncGroupRequestAssignment
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.reading import read_batch
from braidlog.wire.version_prefix import version_prefixed_bytes
from support.broker import KAFKA, start_target
from support.consumer_groups import ChangingTopics
from support.consumer_protocol import RawConsumerGroup, offsets_log
from support.eventually import eventually
from support.groups import KAFKA_SETTINGS
from support.offset_requests import find_coordinator
from support.oracle import Pair, Side

pytestmark = pytest.mark.peer

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1500",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.max.size": "4",
    "group.consumer.migration.policy": "bidirectional",
    "offsets.topic.num.partitions": "2",
}
Script = Callable[[RawConsumerGroup], list[Any]]


@pytest.fixture(scope="module")
def groups(target_kind: str, apache_kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    place = tmp_path_factory.mktemp("newer")
    kafka_settings = {**SETTINGS, **KAFKA_SETTINGS}
    own = kafka_settings if target_kind == KAFKA else {"broker.id": "1", **SHIPPED_SETTINGS, **SETTINGS}
    with (
        start_target(KAFKA, place / "kafka", kafka_settings) as kafka,
        start_target(target_kind, place / "ours", own) as ours,
    ):
        both = Pair(Side(kafka), Side(ours))
        both.create("four", partitions=4)
        both.create("two", partitions=2)
        for side in both.sides:
            find_coordinator(side.broker.port, "any")
        yield both


def alike(pair: Pair, group: str, script: Script) -> list[Any]:
    """Both brokers play the script, step by step the same; returns what Kafka answered."""
    expected, actual = (script(RawConsumerGroup(side, group)) for side in pair.sides)
    for step, (theirs, ours) in enumerate(zip(expected, actual, strict=True)):
        assert ours == theirs, f"step {step}: Kafka {theirs!r}, here {ours!r}"
    return expected


JOIN: dict[str, Any] = {
    "member_epoch": 0,
    "rebalance_timeout_ms": 1000,
    "subscribed_topic_names": ["four"],
    "topic_partitions": [],
}


@pytest.mark.parametrize(
    "fields",
    [
        {**JOIN, "group_id": ""},
        {**JOIN, "instance_id": ""},
        {**JOIN, "rack_id": ""},
        {**JOIN, "rebalance_timeout_ms": -1},
        {**JOIN, "topic_partitions": None},
        {**JOIN, "subscribed_topic_names": None},
        {**JOIN, "subscribed_topic_names": []},
        {**JOIN, "server_assignor": "nobody"},
        {**JOIN, "server_assignor": ""},
        {"member_epoch": 1, "member_id": ""},
        {"member_epoch": 1, "member_id": "somebody"},
        {"member_epoch": -1, "member_id": ""},
        {"member_epoch": -1, "member_id": "somebody"},
        {"member_epoch": -2, "member_id": ""},
        {"member_epoch": -2, "member_id": "somebody"},
        {"member_epoch": -2, "member_id": "somebody", "instance_id": "one"},
        {"member_epoch": -3, "member_id": "somebody"},
    ],
)
def test_requests_that_make_no_sense(groups: Pair, fields: dict[str, Any]) -> None:
    alike(groups, "refused", lambda cast: [cast.refusal(**fields)])


def test_a_member_comes_stays_and_goes(groups: Pair) -> None:
    def script(cast: RawConsumerGroup) -> list[Any]:
        reported = [cast.join("a", "four"), cast.describe()]
        reported += [cast.beat("a"), cast.settle("a"), cast.describe()]
        # Everything once more, as after an error.
        reported.append(
            cast.beat("a", cast.actor("a").owned, subscribed_topic_names=["four"], rebalance_timeout_ms=60_000)
        )
        reported += [cast.beat("a", member_epoch=9), cast.beat("a", member_epoch=0, **REJOIN)]
        reported += [cast.beat("a", subscribed_topic_names=["two"]), cast.describe()]
        reported += [
            cast.beat("a", {"four": [0]}),
            cast.beat("a", {}),
            cast.describe(),
            cast.beat("a", {"two": [0, 1]}),
        ]
        reported += [cast.beat("a", member_epoch=1), cast.beat("a", {}, member_epoch=1)]
        reported += [cast.beat("a", member_epoch=0, **REJOIN)]
        reported += [cast.leave("a"), cast.beat("a"), cast.leave("a"), cast.describe()]
        return [*reported, cast.refusal(member_id="b", member_epoch=2)]

    alike(groups, "life", script)


REJOIN: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["four"], "topic_partitions": []}


def test_a_partition_waits_for_its_owner(groups: Pair) -> None:
    def script(cast: RawConsumerGroup) -> list[Any]:
        reported = [cast.join("a", "four"), cast.settle("a"), cast.join("b", "four"), cast.describe(), cast.beat("b")]
        reported += [cast.beat("a"), cast.describe(), cast.beat("b"), cast.beat("a"), cast.settle("a"), cast.describe()]
        reported += [cast.beat("b"), cast.settle("b"), cast.describe()]
        assert sorted(n for owned in cast.owned("a", "b") for n in owned["four"]) == [0, 1, 2, 3]
        reported += [cast.leave("a"), cast.describe(), cast.beat("b"), cast.describe()]
        return reported

    alike(groups, "handover", script)


def test_a_member_that_misses_answers(groups: Pair) -> None:
    def script(cast: RawConsumerGroup) -> list[Any]:
        reported = [cast.join("a", "four"), cast.settle("a"), cast.join("b", "four"), cast.beat("a"), cast.settle("a")]
        # It is in epoch 2 now, but believes to be in the first one.
        reported += [cast.beat("a", cast.actor("a").owned, member_epoch=1), cast.beat("a", member_epoch=1)]
        reported += [cast.beat("a", {"four": [0, 1, 2, 3]}, member_epoch=1), cast.beat("a", {}, member_epoch=1)]
        return reported

    alike(groups, "misses", script)


def test_more_members_than_partitions(groups: Pair) -> None:
    def script(cast: RawConsumerGroup) -> list[Any]:
        reported = [cast.join(name, "two") for name in "abcd"]
        reported.append(cast.refusal(**{**JOIN, "subscribed_topic_names": ["two"]}))
        reported.append(cast.refusal(member_id=cast.actor("a").member_id, member_epoch=cast.actor("a").epoch))
        cast.settle_all(*"abcd")
        reported.append(sorted(sum(map(len, owned.values())) for owned in cast.owned(*"abcd")))
        return reported

    alike(groups, "crowd", script)


def test_static_members(groups: Pair) -> None:
    def script(cast: RawConsumerGroup) -> list[Any]:
        reported = [cast.join("a", "four", instance_id="one"), cast.settle("a")]
        reported += [cast.join("b", "four", instance_id="one"), cast.join("b", "four", instance_id="two")]
        reported += [cast.beat("b", instance_id="one"), cast.beat("b", instance_id="three"), cast.beat("b")]
        reported += [cast.beat("a", instance_id="one")]
        cast.settle_all("a", "b")
        reported += [cast.describe(), cast.leave("a", -2, instance_id="one"), cast.describe()]
        reported += [
            cast.beat("a"),
            cast.beat("a", instance_id="one", member_epoch=-2),
            cast.settle("b"),
            cast.describe(),
        ]
        reported += [cast.join("c", "four", instance_id="one"), cast.describe()]
        reported += [cast.beat("a", instance_id="one"), cast.leave("a", -2, instance_id="one"), cast.leave("a")]
        reported += [cast.settle("c"), cast.leave("c", instance_id="two"), cast.leave("c", instance_id="one")]
        reported += [cast.describe(), cast.leave("b", -2), cast.leave("b"), cast.describe()]
        return reported

    alike(groups, "static", script)


def test_an_instance_comes_back_under_the_same_id(groups: Pair) -> None:
    def script(cast: RawConsumerGroup) -> list[Any]:
        reported = [cast.join("a", "four", instance_id="one"), cast.settle("a"), cast.leave("a", -2, instance_id="one")]
        reported += [cast.beat("a", member_epoch=0, instance_id="one", **REJOIN), cast.settle("a"), cast.describe()]
        reported += [cast.leave("a", -2, instance_id="one")]
        reported += [cast.join("b", "four", "two", instance_id="one"), cast.settle("b"), cast.describe()]
        return reported

    alike(groups, "comeback", script)


def test_members_that_fall_silent(groups: Pair) -> None:
    def script(cast: RawConsumerGroup) -> list[Any]:
        reported = [cast.join("a", "four"), cast.settle("a"), cast.join("b", "four", rebalance_timeout_ms=500)]
        cast.settle_all("a", "b")
        reported.append(cast.describe())
        eventually(lambda: cast.settle("a")[2] > 2, deadline_s=15)
        reported += [cast.settle("a"), cast.describe(), cast.beat("b")]
        # One that does not give up what it must is out after its rebalance timeout, well within its session.
        reported += [cast.beat("a", rebalance_timeout_ms=1500), cast.join("b", "four"), cast.beat("a")]
        eventually(lambda: cast.beat("a")[0] != 0, deadline_s=4)
        reported += [cast.beat("a"), cast.beat("b"), cast.settle("b"), cast.describe()]
        return reported

    alike(groups, "silent", script)


def test_topics_that_come_grow_and_go(groups: Pair) -> None:
    def script(cast: RawConsumerGroup) -> list[Any]:
        reported = [cast.join("a", "later"), cast.settle("a"), cast.describe()]
        cast.side.create("later", 2, {})
        reported += [cast.beat_until("a", 2), cast.settle("a")]
        cast.add_partitions("later", 4)
        reported += [cast.beat_until("a", 3), cast.settle("a"), cast.describe()]
        cast.delete_topic("later")
        # A broker of KRaft learns of it a moment later.
        eventually(lambda: cast.beat("a")[4] is not None)
        return [*reported, cast.beat("a"), cast.describe()[0], cast.beat("a", {}), cast.describe()]

    alike(groups, "topics", script)


def test_range(groups: Pair) -> None:
    def script(cast: RawConsumerGroup) -> list[Any]:
        reported = [cast.join("a", "four", "two", instance_id="1", server_assignor="range"), cast.settle("a")]
        reported += [cast.join("b", "four", "two", instance_id="2", server_assignor="range")]
        reported += [cast.join("c", "four", instance_id="3", server_assignor="range")]
        cast.settle_all(*"abc")
        reported += [cast.describe(), *cast.owned(*"abc")]
        reported += [
            cast.beat("a", server_assignor="uniform"),
            cast.beat("b", server_assignor="uniform"),
            cast.describe(),
        ]
        return reported

    alike(groups, "range", script)


def test_records_are_those_of_kafka(groups: Pair) -> None:
    def script(cast: RawConsumerGroup) -> list[Any]:
        count = int(SETTINGS["offsets.topic.num.partitions"])
        cast.join("a", "four", instance_id="one", server_assignor="uniform", rack_id="r")
        cast.settle("a")
        reported = [cast.records(count)]
        cast.join("b", "four", "two")
        reported.append(cast.records(count))
        cast.beat("a")
        reported.append(cast.records(count))
        cast.settle("a")
        cast.beat("b")
        cast.join_classic("old", "four")
        reported.append(cast.records(count))
        cast.leave("a", -2, instance_id="one")
        reported.append(cast.records(count))
        cast.join("c", "four", instance_id="one")
        reported.append(cast.records(count))
        cast.leave("b")
        cast.leave("c", instance_id="one")
        reported.append(cast.records(count))
        return reported

    states = alike(groups, "written", script)
    assert [len(state) for state in states] == [6, 9, 9, 12, 12, 12, 0]


def test_offsets_of_members(groups: Pair) -> None:
    def script(cast: RawConsumerGroup) -> list[Any]:
        reported: list[Any] = [cast.commit("", -1, "four", 1), cast.fetch(None, -1, "four")]
        reported += [cast.join("a", "four"), cast.settle("a")]
        mine = cast.actor("a").member_id
        for member_id, epoch in ((mine, 1), (mine, 0), (mine, 2), (mine, -1), ("", -1), ("b", 1), ("", 1)):
            reported += [cast.commit(member_id, epoch, "four", 5 + epoch), cast.fetch(member_id, epoch, "four")]
        reported += [cast.commit(mine, 1, "four", 9, version=8), cast.fetch(None, -1, "four")]
        reported += [cast.leave("a"), cast.commit(mine, 1, "four", 10), cast.commit("", -1, "four", 11)]
        return [*reported, cast.fetch(None, -1, "four"), cast.fetch(mine, 1, "four")]

    alike(groups, "offsets", script)


def test_groups_as_others_see_them(groups: Pair) -> None:
    def script(cast: RawConsumerGroup) -> list[Any]:
        def as_classic() -> list[Any]:
            answer: Any = cast.side.ask("DescribeGroups", 5, DescribeGroupsRequest(groups=[cast.group]))
            group = answer.groups[0]
            return [group.error_code, group.group_state, group.protocol_type, len(group.members)]

        def listed() -> list[Any]:
            answer: Any = cast.side.ask("ListGroups", 5, ListGroupsRequest(types_filter=["Consumer"]))
            mine = [group for group in answer.groups if group.group_id == cast.group]
            return [(group.protocol_type, group.group_state, group.group_type) for group in mine]

        def deleted() -> int:
            answer: Any = cast.side.ask("DeleteGroups", 2, DeleteGroupsRequest(groups_names=[cast.group]))
            return int(answer.results[0].error_code)

        reported = [cast.describe(), as_classic(), deleted(), cast.join("a", "four"), as_classic(), listed(), deleted()]
        reported += [
            cast.join("b", "four"),
            listed(),
            cast.leave("b"),
            listed(),
            cast.leave("a"),
            listed(),
            as_classic(),
        ]
        return [*reported, deleted(), listed(), cast.describe()]

    alike(groups, "seen", script)


def test_a_group_goes_over_and_back(groups: Pair) -> None:
    def script(cast: RawConsumerGroup) -> list[Any]:
        reported = [cast.join_classic("old", "four")]
        # Alone, it leads: it gives itself everything.
        reported.append(cast.sync_classic("old", assignments=_all_to(cast, "old", "four", 4)))
        reported += [cast.beat_classic("old"), cast.join("new", "four"), cast.describe(), cast.beat_classic("old")]
        reported += [cast.sync_classic("old"), cast.commit(cast.actor("old").member_id, 1, "four", 3)]
        reported += [
            cast.join_classic("old", "four"),
            cast.describe(),
            cast.sync_classic("old"),
            cast.beat_classic("old"),
        ]
        reported += [
            cast.join_classic("old", "four"),
            cast.sync_classic("old"),
            cast.beat_classic("old"),
            cast.beat("new"),
        ]
        reported += [cast.settle("new"), cast.describe(), cast.beat_classic("old")]
        reported += [cast.beat_classic("new"), cast.beat_classic("old", generation_id=1), cast.sync_classic("new")]
        reported += [cast.sync_classic("old", protocol_name="range"), cast.sync_classic("old", protocol_type="connect")]
        reported += [cast.join_classic("third", "four", protocol_type="connect"), cast.leave_classic("new")]
        reported += [cast.leave("new"), cast.describe(), cast.beat_classic("old")]
        reported += [cast.join_classic("old", "four")]
        reported += [cast.sync_classic("old", assignments=_all_to(cast, "old", "four", 4)), cast.beat_classic("old")]
        return [*reported, cast.leave_classic("old", "third")]

    alike(groups, "over-and-back", script)


def test_members_of_both_kinds(groups: Pair) -> None:
    def script(cast: RawConsumerGroup) -> list[Any]:
        reported = [cast.join("new", "four"), cast.settle("new"), cast.join_classic("old", "four"), cast.describe()]
        reported += [cast.sync_classic("old"), cast.beat_classic("old"), cast.beat("new"), cast.settle("new")]
        reported += [cast.beat_classic("old"), cast.join_classic("old", "four"), cast.sync_classic("old")]
        reported += [cast.beat_classic("old"), cast.describe(), cast.leave_classic("old", "new"), cast.describe()]
        reported += [cast.beat("new"), cast.join_classic("other", "two"), cast.leave("new"), cast.beat_classic("other")]
        return reported

    alike(groups, "both-kinds", script)


def test_an_empty_group_takes_any_protocol(groups: Pair) -> None:
    def script(cast: RawConsumerGroup) -> list[Any]:
        reported = [cast.join_classic("old", "four"), cast.sync_classic("old"), cast.leave_classic("old")]
        reported += [cast.join("new", "four"), cast.leave("new"), cast.describe()]
        reported += [cast.join_classic("again", "two"), cast.sync_classic("again"), cast.describe()]
        return [*reported, cast.leave_classic("again"), cast.join("last", "two"), cast.describe()]

    alike(groups, "any", script)


def test_a_group_that_cannot_go_over(groups: Pair) -> None:
    def script(cast: RawConsumerGroup) -> list[Any]:
        reported = [cast.join_classic("worker", "four", protocol_type="connect")]
        return [*reported, cast.join("new", "four"), cast.leave_classic("worker"), cast.join("new", "four")]

    alike(groups, "connect", script)


def test_kafkas_own_log_is_understood(groups: Pair) -> None:
    """Everything that the scripts before left in Kafka's log, deletions and changes of protocol included."""
    kafka = groups.kafka
    shard = GroupCoordinatorShard(GroupSettings, ChangingTopics(), lambda: "nobody")
    for partition in range(int(SETTINGS["offsets.topic.num.partitions"])):
        data = offsets_log(kafka, partition)
        for header in iterate_headers(data, 0, len(data)):
            for record in read_batch(data, header):
                value = None if record.value is None else bytes(record.value)
                shard.replay(ReplayedRecord(0, record.timestamp, bytes(record.key or b""), value))
    listed: Any = kafka.ask("ListGroups", 5, ListGroupsRequest())
    assert {group.group_id: group.group_type for group in listed.groups} == {
        name: group.kind for name, group in shard.groups.items()
    }
    for name, group in shard.groups.items():
        if isinstance(group, ConsumerGroup):
            theirs: Any = kafka.ask("ConsumerGroupDescribe", 0, ConsumerGroupDescribeRequest(group_ids=[name]))
            known = theirs.groups[0]
            assert (group.epoch, group.target_epoch) == (known.group_epoch, known.assignment_epoch)
            assert {member.member_id: member.epoch for member in group.members.values()} == {
                member.member_id: member.member_epoch for member in known.members
            }


def _all_to(cast: RawConsumerGroup, name: str, topic: str, partitions: int) -> list[SyncGroupRequestAssignment]:
    everything = [AssignedTopicPartition(topic=topic, partitions=list(range(partitions)))]
    content = version_prefixed_bytes(ConsumerProtocolAssignment(assigned_partitions=everything), 1)
    return [SyncGroupRequestAssignment(member_id=cast.actor(name).member_id, assignment=content)]
