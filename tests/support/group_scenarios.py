"""What happens to groups, told once for every client: members come and go, topics grow, static members return."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import NewPartitions

from braidlog.wire.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from support.confluent import admin, create_topic
from support.eventually import DEADLINE_S, eventually
from support.group_members import ABOUT_THIS
from support.groups import GroupUnderTest, LastingBroker, Member, group_under_test
from support.ownership import Partition
from support.raw import ask

# Longer than the restart of a process takes on a busy machine.
PATIENT_SESSION_MS = 60_000
# What a broker that has just started says of a group before it has read the group's partition.
NOT_YET = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE)

# A static member's return does not depend on the assignor: each of them once, and each way to go once, in every run.
STATIC_RETURNS = [
    pytest.param("range", False, id="range-restarted"),
    pytest.param("range", True, id="range-killed", marks=pytest.mark.long),
    pytest.param("cooperative-sticky", False, id="cooperative-sticky-restarted", marks=pytest.mark.long),
    pytest.param("cooperative-sticky", True, id="cooperative-sticky-killed"),
]


def live_through_changes(group: GroupUnderTest) -> None:
    """Members join, leave, are killed and stall while records are written; the notes must show a group throughout."""
    with group.writing():
        ann = group.start("ann")
        group.settle(ann)
        bob, cid = group.start("bob"), group.start("cid")
        group.settle(ann, bob, cid)
        bob.leave()
        group.settle(ann, cid)
        group.read_all()
        group.history().check_nothing_is_read_twice()

        dan = group.start("dan")
        group.settle(ann, cid, dan)
        cid.kill()
        group.settle(ann, dan)
        dan.stall()
        group.settle(ann)
        dan.wake()
        group.settle(ann, dan)
    group.read_all()
    for member in (ann, dan):
        member.leave()
    group.history().check(group.written())


def static_member_returns(
    group: GroupUnderTest, instance_key: str, patience: Mapping[str, Any], *, killed: bool
) -> None:
    """A static member that is restarted gets its partitions back, and its fellow never hears of it."""

    def start(name: str, instance: str) -> Member:
        return group.start(name, settings={instance_key: instance, **patience})

    with group.writing():
        ann, bob = start("ann", "instance-a"), start("bob", "instance-b")
        group.settle(ann, bob)
        # A cooperative group may still have one generation to go, in which nothing moves.
        eventually(lambda: ann.generation() == bob.generation())
        share, generation, heard = bob.owned(), ann.generation(), _rebalances(ann)
        bob.kill() if killed else bob.leave()
        again = start("bob", "instance-b")
        group.settle(ann, again)
    group.read_all()
    assert again.owned() == share
    assert (ann.generation(), _rebalances(ann)) == (generation, heard), f"ann was bothered:\n{ann.process.log()}"
    group.history().check(group.written())


def _rebalances(member: Member) -> int:
    return sum(note.kind in ("assigned", "revoked", "lost") and bool(note.partitions) for note in member.notes)


def new_partitions_are_read(group: GroupUnderTest, more: int) -> None:
    """A topic grows while two members read it."""
    [topic] = group.topics
    ann, bob = group.start("ann"), group.start("bob")
    group.settle(ann, bob)
    group.writer.send(5)
    client = admin(group.bootstrap)
    client.create_partitions([NewPartitions(topic, more)])[topic].result(30)
    group.watch_also({topic: more})
    group.settle(ann, bob)
    group.writer.send(5)
    group.read_all()
    group.history().check(group.written())


def a_pattern_finds_new_topics(group: GroupUnderTest, pattern: str, new_topic: str) -> None:
    """Members that read whatever matches a pattern read a topic that appears later."""
    readers = [group.start(f"reader {number}", pattern=pattern) for number in range(2)]
    group.settle(*readers)
    group.writer.send(5)
    create_topic(group.bootstrap, new_topic, 4)
    group.watch_also({new_topic: 4})
    group.settle(*readers)
    group.writer.send(5)
    group.read_all()
    group.history().check(group.written())


def commits_outlive_the_broker(kind: str, place: Path, client: str, settings: Mapping[str, Any], *, kill: bool) -> None:
    """A broker is stopped or killed; the group goes on exactly where its acknowledged commits say."""
    lasting = LastingBroker(kind, place)
    with lasting.life() as broker:
        with group_under_test(lasting.bootstrap, "records", client, **settings) as group:
            ann, bob = group.start("ann"), group.start("bob")
            group.settle(ann, bob)
            group.writer.send(20)
            group.read_all()
            ann.leave()
            bob.leave()
            before = group.history().committed()
        broker.kill() if kill else broker.stop()
    assert before == {("records", index): 20 for index in range(6)}
    with lasting.life():
        assert committed(lasting.bootstrap, "records-group", before) == dict.fromkeys(before, (20, ABOUT_THIS))
        group.writer.send(5)
        cid = group.start("cid")
        group.settle(cid)
        group.read_all()
        assert sorted(group.history().read()["records", 3]) == list(range(25)), "nothing read twice, nothing left out"
        group.history().check(group.written())
        group.end()


def committed(
    bootstrap: str, group: str, partitions: Mapping[Partition, object], within_s: float = DEADLINE_S
) -> dict[Partition, tuple[int, str]]:
    """What the coordinator says was committed, with its metadata.

    Not asked by confluent-kafka: it writes metadata with a zero at the end, and reads beyond that of other clients.
    """
    wanted: dict[str, list[int]] = {}
    for topic, index in partitions:
        wanted.setdefault(topic, []).append(index)
    topics = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
    request = OffsetFetchRequest(group_id=group, topics=topics)
    found: dict[Partition, tuple[int, str]] = {}

    def reported() -> bool:
        return any(is_told_by(int(server.rpartition(":")[2])) for server in bootstrap.split(","))

    def is_told_by(port: int) -> bool:
        """False where another broker is the coordinator, or this one is down."""
        try:
            answer = ask(port, "OffsetFetch", 5, request)
        except OSError:
            if "," in bootstrap:
                return False
            raise
        assert isinstance(answer, OffsetFetchResponse)
        assert answer.error_code in (0, *NOT_YET), answer.error_code
        for topic in answer.topics:
            for each in topic.partitions:
                found[topic.name, each.partition_index] = (each.committed_offset, (each.metadata or "").rstrip("\0"))
        return answer.error_code == 0

    eventually(reported, within_s)
    return found
