"""The same scripts to Apache Kafka 3.9 and to us: classic groups, in every version and out of the ordinary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tools.peers.kafka import SHIPPED_SETTINGS, run_tool

from braidlog.coordinator.partitioning import partition_for
from braidlog.wire.generated.delete_groups import DeleteGroupsRequest
from braidlog.wire.generated.describe_groups import DescribeGroupsRequest
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from braidlog.wire.generated.group_records import GroupMetadataKey, GroupMetadataValue
from braidlog.wire.generated.list_groups import ListGroupsRequest
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.reading import read_batch
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version, version_prefixed_bytes
from support.broker import KAFKA, start_target
from support.group_script import SUBSCRIPTION, PairedGroupScript
from support.groups import KAFKA_SETTINGS
from support.offset_requests import commit_request, find_coordinator
from support.oracle import Pair, Side
from support.raw import as_plain, versions_of

pytestmark = pytest.mark.peer

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.max.session.timeout.ms": "60000",
    "group.max.size": "3",
}
OFFSETS = "__consumer_offsets"
FORMATTER = "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter"
REBALANCE_IN_PROGRESS = 27
MEMBER_ID_REQUIRED = 79


@pytest.fixture(scope="module")
def groups(target_kind: str, apache_kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    place = tmp_path_factory.mktemp("classic")
    own = {**SETTINGS, **KAFKA_SETTINGS} if target_kind == KAFKA else {"broker.id": "1", **SHIPPED_SETTINGS, **SETTINGS}
    with (
        start_target(KAFKA, place / "kafka", {**SETTINGS, **KAFKA_SETTINGS}) as kafka,
        start_target(target_kind, place / "ours", own) as ours,
    ):
        both = Pair(Side(kafka), Side(ours))
        both.create("t", partitions=3)
        for side in both.sides:
            find_coordinator(side.broker.port, "any")
        yield both


Open = Callable[[str], PairedGroupScript]


@pytest.fixture
def script(groups: Pair) -> Iterator[Open]:
    opened: list[PairedGroupScript] = []

    def open_script(group: str) -> PairedGroupScript:
        opened.append(PairedGroupScript(groups, group))
        return opened[-1]

    yield open_script
    for one in opened:
        one.close()


def stable(run: PairedGroupScript, labels: str = "ab") -> None:
    """Dynamic members, the first one leading, in a stable group."""
    first, rest = labels[0], labels[1:]
    run.enter(first)
    run.receive(first)
    run.sync(first)
    for number, label in enumerate(rest, 2):
        run.enter(label)
        run.until("PreparingRebalance", number)
        for other in labels[: number - 1]:
            run.send_join(other)
        run.receive(labels[:number])
        for other in labels[1:number]:
            run.send_sync(other)
        run.sync(first)
        run.receive(labels[1:number])


def stable_static(run: PairedGroupScript, labels: str = "ab") -> None:
    """Static members, whose instances are named like them."""
    first = labels[0]
    run.join(first, instance=first)
    run.sync(first, instance=first)
    for number, label in enumerate(labels[1:], 2):
        run.send_join(label, instance=label)
        run.until("PreparingRebalance", number)
        for other in labels[: number - 1]:
            run.send_join(other, instance=other)
        run.receive(labels[:number])
        for other in labels[1:number]:
            run.send_sync(other, instance=other)
        run.sync(first, instance=first)
        run.receive(labels[1:number])


@pytest.mark.parametrize("version", versions_of("JoinGroup"))
def test_a_member_comes_and_goes(script: Open, version: int) -> None:
    run = script(f"alone-{version}")
    if run.join("a", version)["error_code"] == MEMBER_ID_REQUIRED:
        run.join("a", version)
    run.sync("a", min(version, 5), protocol_type="consumer", protocol_name="range")
    run.describe(min(version, 5))
    run.heartbeat("a", min(version, 4))
    run.join("a", version)
    run.heartbeat("a", min(version, 4))
    run.sync("a", min(version, 5))
    run.leave("a", min(version, 5))
    run.until("Empty", 0)
    run.describe()
    run.leave("a", min(version, 5))
    run.heartbeat("a", min(version, 4))
    run.sync("a", min(version, 5))
    run.join("a", version)


@pytest.mark.parametrize("version", versions_of("JoinGroup"))
def test_joins_that_are_refused(script: Open, version: int) -> None:
    for group in ("", f"refused-{version}"):
        run = script(group)
        run.join("a", version, session_ms=499)
        run.join("a", version, session_ms=60_001)
        run.join("a", version, member_id="stranger")
        run.join("a", version, protocol_type="")
        run.join("a", version, protocols={})
    run = script(f"full-{version}")
    stable(run, "abc")
    run.join("d", version)
    run.join("d", version, protocol_type="connect")
    run.join("d", version, protocols={"sticky": b""})
    run.join("d", version, member_id="stranger")
    run.describe()


def test_two_members(script: Open) -> None:
    run = script("two")
    stable(run)
    run.describe()
    run.join("b")
    run.sync("b")
    run.heartbeat("b", by=1)
    run.heartbeat("b", by=-1)
    run.heartbeat("b", member_id="stranger")
    run.heartbeat("b", instance="nobody")
    run.sync("b", by=1)
    run.sync("b", member_id="stranger")
    run.sync("b", protocol_type="connect")
    run.sync("b", protocol_name="sticky")
    run.send_join("a")
    run.until("PreparingRebalance", 2)
    run.describe()
    run.heartbeat("b")
    run.sync("b")
    run.send_join("b", protocols={"range": SUBSCRIPTION + b"more"})
    run.receive("ab")
    run.describe()
    run.heartbeat("b")
    run.join("a")
    run.join("b", protocols={"range": SUBSCRIPTION + b"more"})
    run.send_sync("b")
    run.leave("a")
    assert run.receive("b")["error_code"] == REBALANCE_IN_PROGRESS
    run.join("b")
    run.sync("b")
    run.describe()


def test_three_members_vote(script: Open) -> None:
    run = script("vote")
    run.join("a", protocols={"x": b"ax", "y": b"ay", "z": b"az"})
    run.join("a", protocols={"x": b"ax", "y": b"ay", "z": b"az"})
    run.enter("b", protocols={"y": b"by", "z": b"bz"})
    run.until("PreparingRebalance", 2)
    run.enter("c", protocols={"z": b"cz", "y": b"cy"})
    run.until("PreparingRebalance", 3)
    run.join("d", protocols={"x": b""})
    run.send_join("a", protocols={"x": b"ax", "y": b"ay", "z": b"az"})
    assert run.receive("abc")["protocol_name"] == "y"


def test_a_silent_member(script: Open) -> None:
    run = script("silent")
    run.enter("a", session_ms=3_000)
    run.receive("a")
    run.sync("a")
    run.enter("b", session_ms=500)
    run.until("PreparingRebalance", 2)
    run.send_join("a", session_ms=30_000)
    run.receive("ab")
    run.sync("a")
    run.until("PreparingRebalance", 1)
    run.heartbeat("b")
    run.heartbeat("a")
    run.join("b")
    run.join("a")


def test_a_pending_member_that_does_not_come(script: Open) -> None:
    run = script("pending")
    stable(run, "a")
    run.join("b", session_ms=500)
    run.send_join("a")
    run.receive("a")
    run.join("b")
    run.describe()
    run.sync("a")
    run.join("c")
    # Kafka 3.9 rebalances the group for it, although it never took part; here nobody is disturbed.
    run.leave("c")
    run.join("c")
    run.leave("a")
    run.until("Empty", 0)


def test_a_member_that_does_not_join_again(script: Open) -> None:
    run = script("absent")
    run.enter("a", rebalance_ms=1_000)
    run.receive("a")
    run.sync("a")
    run.enter("b", rebalance_ms=1_000)
    run.receive("b")
    run.describe()
    run.heartbeat("a")
    run.sync("b")
    run.join("a")


def test_a_member_that_does_not_sync(script: Open) -> None:
    run = script("unsynced")
    run.enter("a", rebalance_ms=1_000)
    run.receive("a")
    run.sync("a")
    run.enter("b", rebalance_ms=1_000)
    run.until("PreparingRebalance", 2)
    run.send_join("a", rebalance_ms=1_000)
    run.receive("ab")
    run.send_sync("b")
    assert run.receive("b")["error_code"] == REBALANCE_IN_PROGRESS
    run.until("PreparingRebalance", 1)
    run.sync("a")
    run.join("b", rebalance_ms=1_000)


@pytest.mark.parametrize("version", [version for version in versions_of("JoinGroup") if version >= 5])
def test_static_members(script: Open, version: int) -> None:
    run = script(f"static-{version}")
    stable_static(run)
    run.describe()
    run.join("c", version, instance="b")
    run.sync("c", instance="b")
    run.describe()
    run.heartbeat("b", instance="b")
    run.heartbeat("b")
    run.sync("b", instance="b")
    run.join("b", version, instance="b")
    run.join("b", version, instance="unknown")
    run.heartbeat("c", instance="b")
    run.join("c", version, instance="b")
    run.join("d", version, instance="a")
    run.sync("d", instance="a")
    run.describe()
    run.send_join("d", version, instance="a")
    run.until("PreparingRebalance", 2)
    run.send_join("e", version, member_id="", instance="a")
    run.receive("d")
    run.send_join("c", version, instance="b")
    run.receive("ce")
    run.leave("a", 5, ("", "b"), ("", "nobody"), ("stranger", None), ("stranger", "a"))
    run.heartbeat("c", instance="b")


def test_a_static_member_that_changed(script: Open) -> None:
    run = script("static-changed")
    run.join("a", instance="a", protocols={"x": b"1", "y": b"1"})
    run.sync("a", instance="a", protocol_name="x")
    run.join("b", instance="a", protocols={"y": b"2", "x": b"2"})
    run.sync("b", instance="a", protocol_name="y")
    run.join("c", instance="a", protocols={"y": b"3"})
    run.sync("c", instance="a", protocol_name="y")
    run.describe()


@pytest.mark.parametrize("version", versions_of("LeaveGroup"))
def test_leaving(script: Open, version: int) -> None:
    run = script(f"leave-{version}")
    run.leave("a", version)
    stable(run, "abc")
    run.leave("b", version)
    run.until("PreparingRebalance", 2)
    run.leave("b", version)
    run.heartbeat("a")
    if version >= 3:
        run.leave("a", version, (None, None), (None, None), ("", None), ("stranger", "i"))
    else:
        run.leave("a", version)
    run.describe()
    script("").leave("a", version)


@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_commits_of_members(script: Open, protocol_type: str) -> None:
    run = script(f"commits-{protocol_type}")

    def commit(label: str, by: int = 0, member_id: str | None = None, generation: int | None = None) -> None:
        run.ask(
            label,
            "OffsetCommit",
            8,
            lambda actor: commit_request(
                8,
                run.group,
                {("t", 0): 5},
                generation=actor.generation + by if generation is None else generation,
                member_id=actor.member_id if member_id is None else member_id,
            ),
        )

    commit("a", generation=3)
    run.enter("a", protocol_type=protocol_type)
    run.receive("a")
    # Waiting for the assignment.
    commit("a")
    commit("a", by=1)
    commit("a", member_id="stranger")
    commit("a", member_id="", generation=-1)
    run.sync("a", protocol_type=protocol_type)
    commit("a")
    commit("a", by=1)
    commit("a", member_id="stranger")
    commit("a", member_id="", generation=-1)
    commit("a", generation=-1)
    run.enter("b", protocol_type=protocol_type)
    run.until("PreparingRebalance", 2)
    commit("a")
    run.leave("a")
    run.receive("b")
    run.leave("b")
    run.until("Empty", 0)
    commit("a")
    commit("a", member_id="", generation=-1)
    commit("a", generation=-1)


@pytest.mark.parametrize("version", versions_of("DescribeGroups"))
def test_describing(script: Open, groups: Pair, version: int) -> None:
    run = script(f"described-{version}")
    groups.compare("DescribeGroups", version, DescribeGroupsRequest(groups=["", "nowhere"]))
    stable(run)
    run.describe(version)
    groups.compare("OffsetCommit", 8, commit_request(8, f"simple-{version}", {("t", 0): 1}))
    both = DescribeGroupsRequest(groups=[f"simple-{version}", "nowhere"], include_authorized_operations=version >= 3)
    groups.compare("DescribeGroups", version, both)


@pytest.mark.parametrize("version", versions_of("ListGroups"))
def test_listing(script: Open, groups: Pair, version: int) -> None:
    run = script(f"listed-{version}")
    stable(run)
    run.send_join("a")
    run.until("PreparingRebalance", 2)
    run.send_join("b")
    run.receive("ab")
    requests = [ListGroupsRequest()]
    if version >= 4:
        requests += [
            ListGroupsRequest(states_filter=states)
            for states in (["Stable"], ["stable", "EMPTY"], ["completingrebalance"], ["nonsense"], [""])
        ]
    if version >= 5:
        requests += [
            ListGroupsRequest(types_filter=types)
            for types in (["classic"], ["CLASSIC"], ["consumer"], ["nonsense"], ["unknown"])
        ]
    for request in requests:
        groups.compare("ListGroups", version, request, str(request))


@pytest.mark.parametrize("version", versions_of("DeleteGroups"))
def test_deleting(script: Open, groups: Pair, version: int) -> None:
    run = script(f"deleted-{version}")
    stable(run)
    groups.compare("OffsetCommit", 8, commit_request(8, f"offsets-{version}", {("t", 0): 1}))
    request = DeleteGroupsRequest(groups_names=[run.group, f"offsets-{version}", "nowhere", ""])
    groups.compare("DeleteGroups", version, request)
    groups.compare("DeleteGroups", version, request)
    run.leave("a")
    run.leave("b")
    run.until("Empty", 0)
    groups.compare("DeleteGroups", version, request)
    groups.compare("DescribeGroups", 5, DescribeGroupsRequest(groups=[run.group]))


# What is written


def records_of(side: Side, run: PairedGroupScript) -> list[Any]:
    """The versions and contents of the group's own records, in order and without what is drawn or timed."""
    wanted = FetchPartition(partition=partition_for(run.group, 50), fetch_offset=0, partition_max_bytes=1_000_000)
    request = FetchRequest(max_bytes=1_000_000, topics=[FetchTopic(topic=OFFSETS, partitions=[wanted])])
    answer: Any = side.ask("Fetch", 11, request)
    data = bytes(as_plain(answer.responses[0].partitions[0].records))
    key = version_prefixed_bytes(GroupMetadataKey(group=run.group), 2)
    found: list[Any] = []
    for header in iterate_headers(data, 0, len(data)):
        for record in read_batch(data, header):
            if record.key is None or bytes(record.key) != key:
                continue
            if record.value is None:
                found.append(None)
                continue
            value = bytes(record.value)
            version = read_version_prefix(value)
            content: Any = GroupMetadataValue.decode(reader_after_version(value), version)
            assert content.current_state_timestamp > 0
            content.current_state_timestamp = 0
            for member in content.members:
                member.client_host = "somewhere"
            found.append((version, run.named(side, content)))
    return found


def test_records_are_those_of_kafka(script: Open, groups: Pair) -> None:
    run = script("written")
    stable_static(run)
    run.join("c", instance="b")
    run.sync("c", instance="b")
    run.leave("a", 5, ("", "a"), ("", "b"))
    run.until("Empty", 0)
    run.enter("d")
    run.receive("d")
    run.sync("d")
    run.leave("d")
    run.until("Empty", 0)
    groups.compare("DeleteGroups", 2, DeleteGroupsRequest(groups_names=[run.group]))
    expected, actual = (records_of(side, run) for side in groups.sides)
    assert len(expected) == 8
    assert actual == expected


def test_kafka_prints_the_records_of_groups(script: Open, groups: Pair) -> None:
    run = script("printed")
    stable(run, "a")
    _, ours = groups.sides
    done = run_tool(
        "kafka-console-consumer",
        ["--bootstrap-server", ours.broker.bootstrap, "--topic", OFFSETS, "--from-beginning",
         "--formatter", FORMATTER, "--timeout-ms", "8000"],
    )  # fmt: skip
    # One after the other, without a separator.
    printed = [entry for entry in done.stdout.split('{"key":') if '"group":"printed"' in entry]
    # A third one follows where the tool takes longer than the member's session.
    assert len(printed) >= 2, done.stdout + done.stderr
    assert '"protocolType":"consumer","generation":1,"protocol":"range"' in printed[1]
