"""Our own Consumer as members of groups: both protocols, every assignor, alone and beside members of other clients."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support import group_scenarios as scenarios
from support.broker import KAFKA, Broker
from support.confluent import create_topic
from support.eventually import eventually
from support.groups import LastingBroker, group_under_test
from support.ownership import History, Partition
from support.repetitions import some

CLASSIC = ("range", "roundrobin", "sticky", "cooperative-sticky")
FLAVOURS: dict[str, dict[str, Any]] = {
    "default": {},
    **{name: {"partition.assignment.strategy": name} for name in CLASSIC},
    "consumer-uniform": {"group.protocol": "consumer"},
    "consumer-range": {"group.protocol": "consumer", "group.remote.assignor": "range"},
}
BOTH_PROTOCOLS = ("cooperative-sticky", "consumer-uniform")
NOT_ON_KAFKA = "librdkafka speaks the consumer protocol from ConsumerGroupHeartbeat v1 on, which Kafka 3.9 has not"

# The other client, the assignor as we and as it names it.
FELLOWS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "confluent-range": ("confluent", "range", {"partition.assignment.strategy": "range"}),
    "confluent-roundrobin": ("confluent", "roundrobin", {"partition.assignment.strategy": "roundrobin"}),
    "confluent-cooperative": (
        "confluent",
        "cooperative-sticky",
        {"partition.assignment.strategy": "cooperative-sticky"},
    ),
    "kafka-python-range": ("kafka-python", "range", {"assignors": ["range"]}),
    "kafka-python-cooperative": ("kafka-python", "cooperative-sticky", {"assignors": ["cooperative-sticky"]}),
    "aiokafka-roundrobin": ("aiokafka", "roundrobin", {"assignors": ["roundrobin"]}),
    "aiokafka-sticky": ("aiokafka", "sticky", {"assignors": ["sticky"]}),
}
# In every run each assignor and each other client, by turns as the first leader. Leadership goes from one client to the
# other in each, so who has it first is a repetition, and so is an assignor beside a second client.
QUICK_FELLOWS = {
    "confluent-cooperative": "ours leads",
    "kafka-python-range": "theirs leads",
    "aiokafka-roundrobin": "theirs leads",
    "aiokafka-sticky": "ours leads",
}
MIXED = [
    pytest.param(
        fellow, first, marks=[] if QUICK_FELLOWS.get(fellow) == first else [pytest.mark.long], id=f"{fellow}-{first}"
    )
    for fellow in FELLOWS
    for first in ("ours leads", "theirs leads")
]
# A broker that is killed loses all that one loses that is stopped.
OUTLIVED = [
    pytest.param(flavour, kill, marks=[] if kill else [pytest.mark.long], id=f"{flavour}-{how}")
    for flavour in BOTH_PROTOCOLS
    for kill, how in ((False, "stopped"), (True, "killed"))
]


# By default a group begins with range.
@pytest.mark.parametrize("flavour", some(FLAVOURS, "default", "cooperative-sticky", "consumer-uniform"))
def test_members_join_leave_die_and_stall(quick_broker: Broker, topic: str, flavour: str) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "braidlog", **FLAVOURS[flavour]) as group:
        scenarios.live_through_changes(group)


@pytest.mark.parametrize("flavour", some(["range", *BOTH_PROTOCOLS], *BOTH_PROTOCOLS))
def test_a_rolling_restart_reads_nothing_twice(quick_broker: Broker, topic: str, flavour: str) -> None:
    """Members are replaced one after the other: at no moment do two of them have the same partition."""
    with group_under_test(quick_broker.bootstrap, topic, "braidlog", 8, **FLAVOURS[flavour]) as group:
        with group.writing():
            members = [group.start(f"old {number}") for number in range(3)]
            group.settle(*members)
            for number in range(3):
                members.append(group.start(f"new {number}"))
                group.settle(*members)
                members.pop(0).leave()
                group.settle(*members)
        group.read_all()
        for member in members:
            member.leave()
        history = group.history()
        history.check(group.written())
        history.check_nothing_is_read_twice()
        _check_one_owner_at_a_time(history)


def _check_one_owner_at_a_time(history: History) -> None:
    """By the clock, which all processes of a machine share."""
    spans: dict[Partition, list[tuple[float, float, str]]] = defaultdict(list)
    for name, notes in history.notes.items():
        since: dict[Partition, float] = {}
        for note in notes:
            for partition in note.partitions:
                if note.kind == "assigned":
                    since[partition] = note.at
                elif note.kind in ("revoked", "lost"):
                    spans[partition].append((since.pop(partition), note.at, name))
        assert not since, f"{name} never gave up {since}"
    for partition, owned in spans.items():
        for (_, until, one), (begins, _, other) in pairwise(sorted(owned)):
            assert until <= begins, f"{one} and {other} had {partition} at the same time"


@pytest.mark.parametrize(("fellow", "first"), MIXED)
def test_members_of_different_clients_share(quick_broker: Broker, topic: str, fellow: str, first: str) -> None:
    client, ours, theirs = FELLOWS[fellow]
    with group_under_test(quick_broker.bootstrap, topic, "braidlog") as group:
        settings = {"partition.assignment.strategy": ours}

        def start(name: str, is_ours: bool) -> Any:
            if is_ours:
                return group.start(name, settings=settings)
            return group.start(name, client=client, settings=theirs)

        leads = first == "ours leads"
        with group.writing():
            # Who comes first leads.
            ann = start("ann", leads)
            group.settle(ann)
            bob = start("bob", not leads)
            group.settle(ann, bob)
            cid = start("cid", leads)
            group.settle(ann, bob, cid)
            bob.leave()
            group.settle(ann, cid)
            dan = start("dan", not leads)
            group.settle(ann, cid, dan)
            # The leader goes: another client may take over.
            ann.leave()
            group.settle(cid, dan)
        group.read_all()
        group.history().check(group.written())


def test_ours_and_librdkafka_share_in_the_newer_protocol(target_kind: str, quick_broker: Broker, topic: str) -> None:
    if target_kind == KAFKA:
        pytest.skip(NOT_ON_KAFKA)
    newer = FLAVOURS["consumer-uniform"]
    with group_under_test(quick_broker.bootstrap, topic, "braidlog", **newer) as group:
        with group.writing():
            ann = group.start("ann")
            bob = group.start("bob", client="confluent", settings=newer)
            group.settle(ann, bob)
            cid = group.start("cid")
            group.settle(ann, bob, cid)
            bob.leave()
            group.settle(ann, cid)
        group.read_all()
        group.history().check(group.written())


@pytest.mark.parametrize(
    ("flavour", "killed"),
    [
        *scenarios.STATIC_RETURNS,
        pytest.param("sticky", False, id="sticky-restarted", marks=pytest.mark.long),
        pytest.param("sticky", True, id="sticky-killed", marks=pytest.mark.long),
    ],
)
def test_a_static_member_returns_without_a_rebalance(
    quick_broker: Broker, topic: str, flavour: str, killed: bool
) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "braidlog", **FLAVOURS[flavour]) as group:
        patience = {"session.timeout.ms": scenarios.PATIENT_SESSION_MS}
        scenarios.static_member_returns(group, "group.instance.id", patience, killed=killed)


def test_a_static_member_of_the_newer_protocol_returns(target_kind: str, tmp_path: Path, topic: str) -> None:
    """It says that it will be back; one that was killed could not, and is waited for until its session ends."""
    lasting = LastingBroker(target_kind, tmp_path / "data", {"group.consumer.session.timeout.ms": "60000"})
    flavour = FLAVOURS["consumer-uniform"]
    with lasting.life(), group_under_test(lasting.bootstrap, topic, "braidlog", **flavour) as group:
        scenarios.static_member_returns(group, "group.instance.id", {}, killed=False)


def test_a_static_leader_that_returns_shares_nothing_out_anew(quick_broker: Broker, topic: str) -> None:
    """The restarted leader is told to leave the shares as they are (KIP-814), and still watches the topics."""
    patience = {"session.timeout.ms": scenarios.PATIENT_SESSION_MS}
    with group_under_test(quick_broker.bootstrap, topic, "braidlog", **FLAVOURS["range"]) as group:

        def start(name: str) -> Any:
            return group.start(name, settings={"group.instance.id": f"instance-{name}", **patience})

        ann = start("ann")
        group.settle(ann)
        bob = start("bob")
        group.settle(ann, bob)
        share, generation = ann.owned(), bob.generation()
        ann.leave()
        again = start("ann")
        group.settle(again, bob)
        assert again.owned() == share
        assert bob.generation() == generation
        group.writer.send(5)
        group.read_all()
        group.history().check(group.written())


def test_a_static_member_that_lives_twice_is_fenced(quick_broker: Broker, topic: str) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "braidlog", **FLAVOURS["range"]) as group:
        settings = {"group.instance.id": "only"}
        first = group.start("only", settings=settings)
        group.settle(first)
        second = group.start("only", settings=settings)
        group.settle(second)
        eventually(lambda: any("taken this one's place" in note.error for note in first.notes))
        group.writer.send(10)
        group.read_all()
        assert not any(note.kind == "read" for note in first.notes)
        group.history().check(group.written())


@pytest.mark.parametrize("flavour", some([*BOTH_PROTOCOLS, "range"], *BOTH_PROTOCOLS))
def test_new_partitions_are_read(quick_broker: Broker, topic: str, flavour: str) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "braidlog", **FLAVOURS[flavour]) as group:
        scenarios.new_partitions_are_read(group, 9)


@pytest.mark.parametrize("flavour", some([*BOTH_PROTOCOLS, "range"], *BOTH_PROTOCOLS))
def test_a_pattern_finds_new_topics(quick_broker: Broker, topic: str, flavour: str) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "braidlog", **FLAVOURS[flavour]) as group:
        scenarios.a_pattern_finds_new_topics(group, f"^{topic}.*", f"{topic}-new")


def test_members_that_read_different_topics(quick_broker: Broker, topic: str) -> None:
    """The leader does not read what it shares out to another."""
    other = f"{topic}-other"
    create_topic(quick_broker.bootstrap, other, 3)
    with group_under_test(quick_broker.bootstrap, topic, "braidlog", **FLAVOURS["cooperative-sticky"]) as group:
        ann = group.start("ann")
        group.settle(ann)
        group.watch_also({other: 3})
        bob = group.start("bob", topics=[other])
        group.settle(ann, bob)
        assert bob.owned() == {(other, index) for index in range(3)}
        group.writer.send(5)
        group.read_all()
        group.history().check(group.written())


def test_a_live_group_becomes_cooperative_in_two_rolling_restarts(quick_broker: Broker, topic: str) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "braidlog", **FLAVOURS["range"]) as group:
        with group.writing():
            members = [group.start("first"), group.start("second")]
            group.settle(*members)
            for strategy in ("cooperative-sticky,range", "cooperative-sticky"):
                for number in range(2):
                    members.pop(0).leave()
                    settings = {"partition.assignment.strategy": strategy}
                    members.append(group.start(f"{strategy} {number}", settings=settings))
                    group.settle(*members)
        group.read_all()
        for member in members:
            member.leave()
        history = group.history()
        history.check(group.written())
        history.check_nothing_is_read_twice()
        _check_one_owner_at_a_time(history)


@pytest.mark.parametrize("flavour", ["range", "cooperative-sticky"])
def test_a_live_group_goes_over_to_the_newer_protocol_and_back(
    quick_broker: Broker, topic: str, flavour: str, target_kind: str
) -> None:
    if target_kind == KAFKA:
        pytest.skip("the quick broker of Kafka 3.9 does not migrate groups")
    old, new = FLAVOURS[flavour], FLAVOURS["consumer-uniform"]
    with group_under_test(quick_broker.bootstrap, topic, "braidlog") as group:
        with group.writing():
            ann = group.start("ann", settings=old)
            group.settle(ann)
            bob = group.start("bob", settings=new)
            group.settle(ann, bob)
            ann.leave()
            group.settle(bob)
            cid = group.start("cid", settings=old)
            group.settle(bob, cid)
            bob.leave()
            group.settle(cid)
        group.read_all()
        group.history().check(group.written())


@pytest.mark.parametrize(("flavour", "kill"), OUTLIVED)
def test_commits_outlive_the_broker(target_kind: str, tmp_path: Path, flavour: str, kill: bool) -> None:
    scenarios.commits_outlive_the_broker(target_kind, tmp_path / "data", "braidlog", FLAVOURS[flavour], kill=kill)
