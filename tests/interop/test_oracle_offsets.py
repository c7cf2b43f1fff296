"""The same requests to Apache Kafka 3.9 and to us: committed offsets, in every version and out of the ordinary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tools.peers.kafka import SHIPPED_SETTINGS

from braidlog.coordinator.partitioning import partition_for
from braidlog.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from braidlog.wire.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from braidlog.wire.message import Message
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.reading import read_batch
from support.broker import KAFKA, start_target
from support.eventually import eventually
from support.groups import KAFKA_SETTINGS
from support.offset_requests import (
    Member,
    ModernMember,
    Transaction,
    commit_request,
    delete_request,
    fetch_request,
    find_coordinator,
)
from support.oracle import Pair, Side
from support.raw import as_plain, versions_of

pytestmark = pytest.mark.peer

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
COMMITS = [version for version in versions_of("OffsetCommit") if version > 0]
FETCHES = [version for version in versions_of("OffsetFetch") if version > 0]
OFFSETS = "__consumer_offsets"
UNSTABLE_OFFSET_COMMIT = 88


@pytest.fixture(scope="module")
def groups(target_kind: str, apache_kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Like `pair`, with Kafka's newer group coordinator."""
    place = tmp_path_factory.mktemp("groups")
    own = {**SETTINGS, **KAFKA_SETTINGS} if target_kind == KAFKA else {"broker.id": "1", **SHIPPED_SETTINGS, **SETTINGS}
    with (
        start_target(KAFKA, place / "kafka", {**SETTINGS, **KAFKA_SETTINGS}) as kafka,
        start_target(target_kind, place / "ours", own) as ours,
    ):
        both = Pair(Side(kafka), Side(ours))
        both.create("t", partitions=3)
        both.create("u", partitions=3)
        for side in both.sides:
            find_coordinator(side.broker.port, "any")
        yield both


def members(pair: Pair, group: str, *topics: str, **how: Any) -> dict[Side, Member]:
    """A settled member of the group on each side."""
    found = {}
    for side in pair.sides:
        member = found[side] = Member(side.broker.port, group, **how)
        member.join(*topics)
        member.sync()
    return found


def transactions(pair: Pair, name: str) -> dict[Side, Transaction]:
    found = {}
    for side in pair.sides:
        transaction = found[side] = Transaction(side.broker.port, name)
        transaction.init()
    return found


# Simple consumers


@pytest.mark.parametrize("version", COMMITS)
def test_commit(groups: Pair, version: int) -> None:
    group = f"commit-{version}"
    offsets = {
        ("t", 0): (10, "some"),
        ("t", 1): (11, None),
        ("t", 2): (12, "x" * 4096),
        ("u", 0): (13, "x" * 4097),
        ("u", 1): (14, "é" * 4096),
        ("u", 7): (15, ""),
        ("u", -1): (16, ""),
        ("none", 0): (17, ""),
    }
    groups.compare("OffsetCommit", version, commit_request(version, group, offsets, leader_epoch=3))
    groups.compare("OffsetFetch", 9, fetch_request(9, group, None))
    groups.compare("OffsetCommit", version, commit_request(version, group, {("t", 0): -5, ("t", 1): 1}))
    groups.compare("OffsetFetch", 7, fetch_request(7, group, {"t": [0, 1, 2, 9], "none": [0]}))
    groups.compare("OffsetCommit", version, commit_request(version, group, {("none", 0): 17}))
    groups.compare("OffsetCommit", version, commit_request(version, group, {}))


@pytest.mark.parametrize("version", COMMITS)
def test_commit_without_a_group(groups: Pair, version: int) -> None:
    for group in (f"nobody-{version}", ""):
        for generation, member_id in ((5, "m"), (0, ""), (-1, "m"), (-1, ""), (-2, "")):
            request = commit_request(version, group, {("t", 0): 1}, generation=generation, member_id=member_id)
            groups.compare("OffsetCommit", version, request, f"{group} {generation} {member_id}")


@pytest.mark.parametrize("version", COMMITS)
@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_commit_of_members(groups: Pair, version: int, protocol_type: str) -> None:
    group = f"members-{protocol_type}-{version}"
    there = members(groups, group, "t", protocol_type=protocol_type)

    def wanted(side: Side, by: int, member_id: str | None, instance_id: str | None) -> Message:
        member = there[side]
        return commit_request(
            version,
            group,
            {("t", 0): 7, ("none", 0): 8},
            generation=member.generation + by if by > -9 else -1,
            member_id=member.member_id if member_id is None else member_id,
            instance_id=instance_id,
        )

    cases: list[tuple[int, str | None, str | None]] = [
        (0, None, None),
        (1, None, None),
        (-1, None, None),
        (0, "somebody", None),
        (0, "", None),
        (-9, "", None),
        (-9, None, None),
    ]
    if version >= 7:
        cases += [(0, None, "instance"), (-9, "", "instance")]
    for case in cases:
        groups.compare("OffsetCommit", version, lambda side, case=case: wanted(side, *case), str(case))
    groups.compare("OffsetFetch", 8, fetch_request(8, group, None))


def test_commit_of_a_static_member(groups: Pair) -> None:
    there = members(groups, "static", "t", instance_id="one")
    for member_id, instance_id in ((None, "one"), ("other", "one"), (None, "two"), (None, None)):

        def wanted(side: Side, member_id: str | None = member_id, instance_id: str | None = instance_id) -> Message:
            member = there[side]
            return commit_request(
                9,
                "static",
                {("t", 0): 7},
                generation=member.generation,
                member_id=member_id or member.member_id,
                instance_id=instance_id,
            )

        groups.compare("OffsetCommit", 9, wanted, f"{member_id} {instance_id}")


@pytest.mark.parametrize("version", COMMITS)
def test_commit_while_the_group_waits_for_its_assignment(groups: Pair, version: int) -> None:
    group = f"completing-{version}"
    there = {}
    for side in groups.sides:
        there[side] = Member(side.broker.port, group)
        there[side].join("t")
    groups.compare(
        "OffsetCommit",
        version,
        lambda side: commit_request(
            version, group, {("t", 0): 1}, generation=there[side].generation, member_id=there[side].member_id
        ),
    )


@pytest.mark.parametrize("version", FETCHES)
def test_fetch(groups: Pair, version: int) -> None:
    group = f"fetch-{version}"
    groups.compare("OffsetFetch", version, fetch_request(version, group, {"t": [0, 1], "none": [5]}))
    offsets = {("t", 0): (1, "m"), ("t", 2): (2, None), ("u", 1): (3, "")}
    groups.compare("OffsetCommit", 8, commit_request(8, group, offsets, leader_epoch=4))
    for wanted in ({"t": [0, 1, 2], "u": [0], "none": [0]}, {"t": []}, {}):
        groups.compare("OffsetFetch", version, fetch_request(version, group, wanted))
        groups.compare("OffsetFetch", version, fetch_request(version, "", wanted))
    if version >= 2:
        groups.compare("OffsetFetch", version, fetch_request(version, group, None))
        groups.compare("OffsetFetch", version, fetch_request(version, f"{group}-none", None))
    if version >= 7:
        groups.compare("OffsetFetch", version, fetch_request(version, group, {"t": [0, 1]}, stable=True))
    if version >= 9:
        for member_id, epoch in (("m", 1), ("", -1), ("m", -1)):
            request = fetch_request(version, group, {"t": [0]}, member_id=member_id, member_epoch=epoch)
            groups.compare("OffsetFetch", version, request)


@pytest.mark.parametrize("version", [8, 9])
def test_fetch_of_many_groups(groups: Pair, version: int) -> None:
    for number in range(3):
        request = commit_request(8, f"many-{version}-{number}", {("t", 0): number, ("u", number): 9})
        groups.compare("OffsetCommit", 8, request)
    wanted = [OffsetFetchRequestGroup(group_id=f"many-{version}-{number}", topics=None) for number in range(5)]
    groups.compare("OffsetFetch", version, OffsetFetchRequest(groups=wanted))


def test_delete(groups: Pair) -> None:
    wanted = {"t": [0, 1, 9], "u": [0], "none": [0]}
    for group in ("delete-none", ""):
        groups.compare("OffsetDelete", 0, delete_request(group, wanted))
        groups.compare("OffsetDelete", 0, delete_request(group, {}))
    groups.compare("OffsetCommit", 8, commit_request(8, "delete", {("t", 0): 1, ("t", 1): 2, ("t", 2): 3, ("u", 0): 4}))
    groups.compare("OffsetDelete", 0, delete_request("delete", wanted))
    groups.compare("OffsetFetch", 8, fetch_request(8, "delete", None))
    groups.compare("OffsetDelete", 0, delete_request("delete", {"none": [0]}))


@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_delete_while_there_are_members(groups: Pair, protocol_type: str) -> None:
    group = f"delete-{protocol_type}"
    offsets = {("t", 0): 1, ("u", 0): 2}
    groups.compare("OffsetCommit", 8, commit_request(8, group, offsets))
    members(groups, group, "t", protocol_type=protocol_type)
    groups.compare("OffsetDelete", 0, delete_request(group, {"t": [0, 1], "u": [0], "none": [0]}))
    groups.compare("OffsetFetch", 8, fetch_request(8, group, None))


def test_offsets_of_a_deleted_topic(groups: Pair) -> None:
    groups.create("going", partitions=2)
    groups.compare("OffsetCommit", 8, commit_request(8, "left", {("going", 0): 1, ("going", 1): 2, ("t", 0): 3}))
    wanted = DeleteTopicsRequest(topics=[DeleteTopicState(name="going")], timeout_ms=30_000)
    groups.compare("DeleteTopics", 6, wanted)

    def gone(side: Side) -> bool:
        answer: Any = side.ask("OffsetFetch", 8, fetch_request(8, "left", None))
        return [topic.name for topic in answer.groups[0].topics] == ["t"]

    for side in groups.sides:
        eventually(lambda side=side: gone(side))


# Members of the consumer protocol


def modern_members(pair: Pair, group: str, *topics: str) -> dict[Side, ModernMember]:
    found = {}
    for side in pair.sides:
        member = found[side] = ModernMember(side.broker.port, group)
        member.join(*topics)
    return found


@pytest.mark.parametrize("version", COMMITS)
def test_commit_of_members_of_the_newer_protocol(groups: Pair, version: int) -> None:
    group = f"modern-{version}"
    there = modern_members(groups, group, "t")

    def wanted(side: Side, epoch: int | None, member_id: str | None) -> Message:
        member = there[side]
        return commit_request(
            version,
            group,
            {("t", 0): 7, ("none", 0): 8},
            generation=member.epoch if epoch is None else epoch,
            member_id=member.member_id if member_id is None else member_id,
        )

    for case in ((None, None), (0, None), (99, None), (-1, None), (None, "other"), (-1, ""), (-1, "other"), (None, "")):
        groups.compare("OffsetCommit", version, lambda side, case=case: wanted(side, *case), str(case))
    groups.compare("OffsetFetch", 8, fetch_request(8, group, None))


def test_fetch_of_members_of_the_newer_protocol(groups: Pair) -> None:
    group = "modern-fetch"
    there = modern_members(groups, group, "t")

    def wanted(side: Side, epoch: int | None, member_id: str | None) -> Message:
        member = there[side]
        return fetch_request(
            9,
            group,
            {"t": [0]},
            member_id=member.member_id if member_id == "own" else member_id,
            member_epoch=member.epoch if epoch is None else epoch,
        )

    for case in ((None, "own"), (0, "own"), (99, "own"), (-1, "own"), (None, "other"), (-1, None), (-1, "")):
        groups.compare("OffsetFetch", 9, lambda side, case=case: wanted(side, *case), str(case))


def test_delete_of_members_of_the_newer_protocol(groups: Pair) -> None:
    group = "modern-delete"
    groups.compare("OffsetCommit", 8, commit_request(8, group, {("t", 0): 1, ("u", 0): 2}))
    modern_members(groups, group, "t")
    groups.compare("OffsetDelete", 0, delete_request(group, {"t": [0, 1], "u": [0], "none": [0]}))
    groups.compare("OffsetFetch", 8, fetch_request(8, group, None))


@pytest.mark.parametrize("version", [3, 4])
def test_the_newer_protocol_fences_producers(groups: Pair, version: int) -> None:
    group = f"modern-txn-{version}"
    consumers = modern_members(groups, group, "t")
    there = transactions(groups, group)
    for transaction in there.values():
        transaction.add_offsets(group)

    def wanted(side: Side, epoch: int | None, member_id: str | None) -> Message:
        member = consumers[side]
        return there[side].commit_request(
            version,
            group,
            {("t", 0): 1},
            generation=member.epoch if epoch is None else epoch,
            member_id=member.member_id if member_id is None else member_id,
        )

    # Not among the cases: a producer that says nothing of a member is accepted here as Kafka 4 does, 3.9 does not.
    for case in ((None, None), (0, None), (99, None), (None, "other"), (-1, "other"), (None, "")):
        groups.compare("TxnOffsetCommit", version, lambda side, case=case: wanted(side, *case), str(case))
    for transaction in there.values():
        transaction.end(True)
    settled(groups, 7, group, {"t": [0]})


# Limits


def test_commit_of_more_than_fits_into_a_batch(groups: Pair) -> None:
    groups.create("wide", partitions=300)
    group = "wide"
    groups.compare(
        "OffsetCommit", 8, commit_request(8, group, {("wide", index): (1, "x" * 4000) for index in range(300)})
    )
    groups.compare("OffsetFetch", 8, fetch_request(8, group, {"wide": [0, 299]}))
    groups.compare("OffsetCommit", 8, commit_request(8, group, {("wide", index): 2 for index in range(300)}))
    groups.compare("OffsetFetch", 8, fetch_request(8, group, None))


# Transactions


def settled(pair: Pair, version: int, group: str, wanted: dict[str, list[int]]) -> Any:
    """What is stable, once the markers of ended transactions are there."""

    def stable(side: Side) -> bool:
        answer: Any = side.ask("OffsetFetch", 8, fetch_request(8, group, wanted, stable=True))
        partitions = [p for topic in answer.groups[0].topics for p in topic.partitions]
        return all(p.error_code != UNSTABLE_OFFSET_COMMIT for p in partitions)

    for side in pair.sides:
        eventually(lambda side=side: stable(side))
    return pair.compare("OffsetFetch", version, fetch_request(version, group, wanted, stable=True))


@pytest.mark.parametrize("version", versions_of("TxnOffsetCommit"))
@pytest.mark.parametrize("commits", [True, False])
def test_offsets_in_a_transaction(groups: Pair, version: int, commits: bool) -> None:
    group = f"txn-{version}-{commits}"
    groups.compare("OffsetCommit", 8, commit_request(8, group, {("t", 0): 1, ("t", 1): 2}))
    there = transactions(groups, group)
    offsets: dict[tuple[str, int], int | tuple[int, str | None]]
    offsets = {("t", 0): (50, "m"), ("t", 2): 51, ("u", 0): (52, "x" * 4097), ("u", 9): 53, ("none", 0): 54}

    def wanted(side: Side) -> Message:
        return there[side].commit_request(version, group, offsets)

    groups.compare("TxnOffsetCommit", version, wanted, "before the transaction knows of the group")
    for transaction in there.values():
        transaction.add_offsets(group)
    groups.compare("TxnOffsetCommit", version, wanted)
    everywhere = {"t": [0, 1, 2], "u": [0]}
    groups.compare("OffsetFetch", 7, fetch_request(7, group, everywhere))
    groups.compare("OffsetFetch", 7, fetch_request(7, group, everywhere, stable=True))
    groups.compare("OffsetFetch", 9, fetch_request(9, group, None, stable=True))
    groups.compare("OffsetCommit", 8, commit_request(8, group, {("t", 2): 99}))
    for transaction in there.values():
        transaction.end(commits)
    settled(groups, 7, group, everywhere)


@pytest.mark.parametrize("version", versions_of("TxnOffsetCommit"))
def test_transactions_that_may_not_commit_offsets(groups: Pair, version: int) -> None:
    group = f"txn-refused-{version}"
    there = transactions(groups, group)
    for transaction in there.values():
        transaction.add_offsets(group)
    offsets = {("t", 0): 1}
    cases: list[tuple[str, Callable[[Transaction], Message]]] = [
        ("an old epoch", lambda t: t.commit_request(version, group, offsets, epoch=t.producer_epoch - 1)),
        ("a future epoch", lambda t: t.commit_request(version, group, offsets, epoch=t.producer_epoch + 1)),
        ("another producer", lambda t: t.commit_request(version, group, offsets, producer_id=t.producer_id + 1000)),
        ("no group id", lambda t: t.commit_request(version, "", offsets)),
        ("nothing known", lambda t: t.commit_request(version, group, {("none", 0): 1})),
    ]
    if version >= 3:
        cases += [
            ("a generation", lambda t: t.commit_request(version, group, offsets, generation=3)),
            ("a member", lambda t: t.commit_request(version, group, offsets, member_id="m")),
        ]
    for what, make in cases:
        groups.compare("TxnOffsetCommit", version, lambda side, make=make: make(there[side]), what)
    for transaction in there.values():
        transaction.end(False)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_group_metadata_fences_producers(groups: Pair, version: int) -> None:
    group = f"txn-fenced-{version}"
    consumers = members(groups, group, "t")
    there = transactions(groups, group)
    for transaction in there.values():
        transaction.add_offsets(group)

    def wanted(side: Side, by: int, member_id: str | None) -> Message:
        member = consumers[side]
        return there[side].commit_request(
            version,
            group,
            {("t", 0): 1},
            generation=member.generation + by if by > -9 else -1,
            member_id=member.member_id if member_id is None else member_id,
        )

    for case in ((0, None), (1, None), (-1, None), (0, "other"), (-9, ""), (-9, "other"), (0, "")):
        groups.compare("TxnOffsetCommit", version, lambda side, case=case: wanted(side, *case), str(case))
    for transaction in there.values():
        transaction.end(True)
    settled(groups, 7, group, {"t": [0]})


# What is written


def records_of(side: Side, group: str) -> list[tuple[Any, ...]]:
    """The keys and values in the group's partition that name the group, without their times."""
    partition = FetchPartition(partition=partition_for(group, 50), fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=OFFSETS, partitions=[partition])])
    answer: Any = side.ask("Fetch", 11, request)
    data = as_plain(answer)["responses"][0]["partitions"][0]["records"]
    found: list[tuple[Any, ...]] = []
    for header in iterate_headers(data, 0, len(data)):
        for record in read_batch(data, header):
            if record.key is not None and group.encode() in bytes(record.key):
                value = None if record.value is None else _timeless(bytes(record.value))
                found.append((header.is_transactional, bytes(record.key), value))
    return found


def _timeless(value: bytes) -> bytes:
    """A committed offset without the eight bytes that say when; with an expiry, without that too."""
    return value[:-16] if value[:2] == b"\x00\x01" else value[:-8]


def test_records_are_those_of_kafka(groups: Pair) -> None:
    group = "written"
    groups.compare("OffsetCommit", 8, commit_request(8, group, {("t", 0): (1, "m"), ("u", 2): 2}, leader_epoch=5))
    kept = commit_request(3, group, {("t", 1): (3, "kept")})
    kept.retention_time_ms = 60_000
    groups.compare("OffsetCommit", 3, kept)
    there = transactions(groups, group)
    for side, transaction in there.items():
        transaction.add_offsets(group)
        side.ask("TxnOffsetCommit", 3, transaction.commit_request(3, group, {("t", 0): 9}))
        transaction.end(True)
    settled(groups, 8, group, {"t": [0]})
    groups.compare("OffsetDelete", 0, delete_request(group, {"t": [1], "u": [2, 1]}))
    expected, actual = (records_of(side, group) for side in groups.sides)
    assert len(expected) == 6
    assert actual == expected
