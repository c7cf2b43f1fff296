"""Our own Consumer beside members of the Java client: every assignor that both know, whoever leads; both protocols."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tools.peers.process import LoggedProcess

from support.broker import Broker
from support.eventually import eventually
from support.groups import GroupUnderTest, Member, group_under_test
from support.java_programs import OLDER, client_programs

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka")]

PARTITIONS = 6
SETTLES_WITHIN_S = 60.0
PACKAGE = "org.apache.kafka.clients.consumer"
ASSIGNORS = {
    "range": f"{PACKAGE}.RangeAssignor",
    "roundrobin": f"{PACKAGE}.RoundRobinAssignor",
    "sticky": f"{PACKAGE}.StickyAssignor",
    "cooperative-sticky": f"{PACKAGE}.CooperativeStickyAssignor",
}


class JavaMember:
    """tests/interop/java/GroupMember.java, which says what is given to it and taken from it."""

    def __init__(self, bootstrap: str, topic: str, client: str, *settings: str) -> None:
        command = client_programs(client).command("GroupMember", bootstrap, topic, f"{topic}-group", *settings)
        self.process = LoggedProcess("java member", command)

    def owned(self) -> set[int]:
        held: set[int] = set()
        for line in self.process.lines:
            what, _, numbers = line.partition(" ")
            if what in ("assigned", "revoked", "lost"):
                named = {int(number) for number in numbers.split(",") if number}
                held = held | named if what == "assigned" else held - named
        return held

    def read(self) -> set[tuple[int, int]]:
        words = [line.split(" ") for line in self.process.lines if line.startswith("read ")]
        return {(int(index), int(offset)) for _, index, offset in words}


@pytest.fixture
def group(quick_broker: Broker, topic: str) -> Iterator[GroupUnderTest]:
    with group_under_test(quick_broker.bootstrap, topic, "braidlog", PARTITIONS) as made:
        yield made


def _settle(ours: list[Member], java: list[JavaMember]) -> None:
    def shared() -> bool:
        shares = [{index for _, index in member.owned()} for member in ours] + [member.owned() for member in java]
        return all(shares) and sum(map(len, shares)) == PARTITIONS and set().union(*shares) == set(range(PARTITIONS))

    eventually(shared, SETTLES_WITHIN_S)


@pytest.mark.parametrize("first", ["ours", "java"])
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_ours_and_java_share(group: GroupUnderTest, assignor: str, first: str) -> None:
    group.settings["partition.assignment.strategy"] = assignor
    timeouts = ["session.timeout.ms=3000", "heartbeat.interval.ms=300"]
    own = [f"partition.assignment.strategy={ASSIGNORS[assignor]}", *timeouts]
    _live_together(group, OLDER, own, first)


def test_ours_and_java_share_in_the_newer_protocol(group: GroupUnderTest) -> None:
    group.settings["group.protocol"] = "consumer"
    _live_together(group, OLDER, ["group.protocol=consumer"], "ours")


def _live_together(group: GroupUnderTest, client: str, settings: list[str], first: str) -> None:
    def ours(name: str) -> Member:
        return group.start(name)

    java = JavaMember(group.bootstrap, group.topics[0], client, *settings) if first == "java" else None
    if java is not None:
        _settle([], [java])
    ann = ours("ann")
    if java is None:
        _settle([ann], [])
        java = JavaMember(group.bootstrap, group.topics[0], client, *settings)
    with java.process:
        _settle([ann], [java])
        bob = ours("bob")
        _settle([ann, bob], [java])
        group.writer.send(20)
        group.writer.flush()

        def all_read() -> bool:
            found = java.read() | {
                (index, offset) for (_, index), offsets in group.history().read().items() for offset in offsets
            }
            return found == {(index, offset) for index in range(PARTITIONS) for offset in range(20)}

        eventually(all_read, SETTLES_WITHIN_S)
        ann.leave()
        _settle([bob], [java])
        java.process.kill()
        _settle([bob], [])
