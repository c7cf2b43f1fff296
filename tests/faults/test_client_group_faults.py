"""Our own Consumer in groups under faults: coordinators that die, members that stall, programs that do not poll."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from braidlog.client.consumer.consumer import Consumer
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.consumer.rebalance_listener import RebalanceListener
from braidlog.client.errors import CommitFailedError
from braidlog.core.types import TopicPartition
from support.broker import Broker
from support.confluent import create_topic
from support.eventually import eventually
from support.group_scenarios import committed
from support.groups import SESSION_MS, GroupUnderTest, LastingBroker, Member, at_rest, group_under_test
from support.numbered import NumberedWriter
from support.ownership import Partition
from support.repetitions import some

PATIENT = {"session.timeout.ms": 120_000}
FLAVOURS: dict[str, dict[str, Any]] = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
PARTITIONS = 10
# Of the two classic ones the cooperative one does all that the other does, and more.
EVERY_FLAVOUR = some(FLAVOURS, "cooperative-sticky", "consumer")


@pytest.mark.parametrize("flavour", EVERY_FLAVOUR)
def test_members_go_on_in_their_generation_after_a_crash(target_kind: str, tmp_path: Path, flavour: str) -> None:
    lasting = LastingBroker(target_kind, tmp_path / "data", {"group.consumer.session.timeout.ms": "60000"})
    with lasting.life() as broker, group_under_test(lasting.bootstrap, "records", "braidlog", PARTITIONS) as group:
        group.settings.update({**FLAVOURS[flavour], **PATIENT})
        members = [group.start(f"member-{number}") for number in range(3)]
        with group.writing():
            group.settle(*members)
            group.read_all()
            eventually(lambda: at_rest(members, PARTITIONS))
            before = _standing(group)
            broker.kill()
        acknowledged = group.history().committed()
        with lasting.life():
            known = committed(lasting.bootstrap, group.group, acknowledged)
            for place, offset in acknowledged.items():
                assert known[place][0] >= offset, f"{place}: {offset} was acknowledged, {known[place][0]} is known"
            with group.writing():
                group.read_all()
            group.read_all()
            assert _standing(group) == before, f"a crash is no reason to rebalance:\n{group.tell()}"
            group.history().check(group.written())
            group.end()


def _standing(group: GroupUnderTest) -> dict[str, tuple[int, list[tuple[str, int]]]]:
    return {name: (member.generation(), sorted(member.owned())) for name, member in group.members.items()}


@pytest.mark.parametrize("flavour", EVERY_FLAVOUR)
def test_a_rebalance_survives_a_coordinator_that_dies_in_it(target_kind: str, tmp_path: Path, flavour: str) -> None:
    lasting = LastingBroker(target_kind, tmp_path / "data")
    with lasting.life() as broker, group_under_test(lasting.bootstrap, "records", "braidlog", 6) as group:
        group.settings.update(FLAVOURS[flavour])
        ann = group.start("ann")
        group.settle(ann)
        group.writer.send(20)
        group.read_all()
        bob = group.start("bob")
        # Somewhere between a process that starts and a group that is settled.
        bob.process.wait_for_line(r"is in (generation|epoch)")
        broker.kill()
        with lasting.life():
            group.settle(ann, bob)
            group.writer.send(20)
            group.read_all()
            group.history().check(group.written())
            group.end()


@pytest.mark.parametrize("flavour", EVERY_FLAVOUR)
def test_a_member_that_stalls_for_longer_than_its_session_cannot_commit(
    target_kind: str, tmp_path: Path, flavour: str
) -> None:
    """It reads on where the group is when it comes back; what it had read and not committed is read by others."""
    lasting = LastingBroker(target_kind, tmp_path / "data")
    with lasting.life(), group_under_test(lasting.bootstrap, "records", "braidlog", 4) as group:
        group.settings.update(FLAVOURS[flavour])
        with group.writing():
            ann, bob = group.start("ann"), group.start("bob")
            group.settle(ann, bob)
            eventually(lambda: any(note.kind == "committed" for note in bob.notes))
            before = bob.generation()
            bob.stall()
            group.settle(ann)
            stalled = len(bob.notes)
            bob.wake()
            group.settle(ann, bob)
        group.read_all()
        group.history().check(group.written())
        since = bob.notes[stalled:]
        assert any(note.kind == "lost" for note in since), f"it was not told of its loss:\n{bob.process.log()}"
        for note in since:
            if note.kind == "committed" and note.generation == before:
                # Answered before it stalled, noted after: then whoever took over began there.
                for topic, index, _, end in note.offsets:
                    began = _first_read(ann, (topic, index), before)
                    assert began >= end, f"{note} was acknowledged although ann had read {(topic, index)} from {began}"
        group.end()


def _first_read(member: Member, partition: Partition, since: int) -> int:
    """The first offset that a member read of a partition after the generation `since`."""
    for note in member.notes:
        for topic, index, first, _ in note.offsets if note.kind == "read" and note.generation > since else ():
            if (topic, index) == partition:
                return first
    raise AssertionError(f"{member.name} never read {partition} after generation {since}")


class Diary(RebalanceListener):
    def __init__(self) -> None:
        self.reported: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.reported.append(("assigned", partitions))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.reported.append(("revoked", partitions))

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.reported.append(("lost", partitions))

    @property
    def words(self) -> list[str]:
        return [word for word, partitions in self.reported if partitions]


@pytest.fixture
def running(target_kind: str, tmp_path: Path) -> Iterator[Broker]:
    with LastingBroker(target_kind, tmp_path / "data").life() as broker:
        yield broker


def _member(broker: Broker, flavour: str, **settings: Any) -> tuple[Consumer, Diary]:
    own = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "heartbeat.interval.ms": 100,
        "session.timeout.ms": SESSION_MS,
        **FLAVOURS[flavour],
        **settings,
    }
    consumer, diary = Consumer(own), Diary()
    consumer.subscribe(["records"], listener=diary)
    return consumer, diary


def _write(broker: Broker, topics: dict[str, int], each: int) -> None:
    writer = NumberedWriter(broker.bootstrap, topics)
    writer.send(each)
    writer.flush()


def _poll_until(consumer: Consumer, happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline, "not within 30 s"
        consumer.poll(0.05)


@pytest.mark.parametrize("flavour", EVERY_FLAVOUR)
def test_a_program_that_does_not_poll_in_time_loses_its_partitions(running: Broker, flavour: str) -> None:
    create_topic(running.bootstrap, "records", 2)
    _write(running, {"records": 2}, 10)
    slow, slow_diary = _member(running, flavour, **{"max.poll.interval.ms": 1_000})
    quick, _ = _member(running, flavour)
    with slow, quick:
        seen: list[int] = []
        while len(seen) < 20:
            seen += [record.offset for record in slow.poll(5)]
        # It now handles its records for longer than it may, and heartbeats all the while.
        _poll_until(quick, lambda: len(quick.assignment()) == 2)
        with pytest.raises(CommitFailedError, match="poll"):
            slow.commit()
        assert quick.committed([TopicPartition("records", 0)]) == {TopicPartition("records", 0): None}
        assert slow_diary.words == ["assigned"], "it is told inside poll only"
        _poll_until(slow, lambda: "lost" in slow_diary.words)
        deadline = time.monotonic() + 30
        while not (len(slow.assignment()) == len(quick.assignment()) == 1):
            assert time.monotonic() < deadline, "they do not share"
            slow.poll(0.02)
            quick.poll(0.02)
        slow.commit()


def test_what_a_killed_member_did_not_commit_is_read_again(target_kind: str, tmp_path: Path) -> None:
    lasting = LastingBroker(target_kind, tmp_path / "data")
    with lasting.life(), group_under_test(lasting.bootstrap, "records", "braidlog", 2) as group:
        ann = group.start("ann", commits=False)
        group.settle(ann)
        group.writer.send(10)
        eventually(lambda: sum(len(offsets) for offsets in group.history().read().values()) == 20)
        ann.kill()
        bob = group.start("bob")
        group.settle(bob)
        group.read_all()
        history = group.history()
        history.check(group.written())
        assert sorted(history.read()["records", 0]) == sorted([*range(10), *range(10)])
        group.end()


def test_auto_commit_never_passes_what_was_returned(running: Broker) -> None:
    """Records that are only fetched ahead are not committed, whatever happens to the consumer."""
    create_topic(running.bootstrap, "records", 1)
    _write(running, {"records": 1}, 100)
    place = TopicPartition("records", 0)
    settings = {"enable.auto.commit": True, "auto.commit.interval.ms": 50, "max.poll.records": 10}
    consumer, _ = _member(running, "range", **settings)
    returned = 0
    with consumer:
        while returned < 50:
            kept = consumer.committed([place])[place]
            assert (kept.offset if kept else 0) <= returned
            returned += len(consumer.poll(0.1))
    checking, _ = _member(running, "range")
    with checking:
        # Closed in good order: exactly what was returned.
        assert checking.committed([place])[place] == OffsetAndMetadata(returned, "", 0)
