"""Groups of another protocol type: Kafka Connect's workers, and members that speak a protocol of their own."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from braidlog.wire.generated.describe_groups import DescribeGroupsRequest
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest
from braidlog.wire.generated.heartbeat import HeartbeatRequest
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from braidlog.wire.generated.leave_group import LeaveGroupRequest, MemberIdentity
from braidlog.wire.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from support import confluent
from support.broker import Broker
from support.connect import READY_WITHIN_S, Worker
from support.eventually import eventually
from support.raw import RawConnection

pytestmark = [pytest.mark.peer]

MEMBER_ID_REQUIRED = 79
INCONSISTENT_GROUP_PROTOCOL = 23
NOT_READY = (14, 15, 16)


def described(broker: Broker, group: str) -> Any:
    with RawConnection(broker.port) as connection:
        answer: Any = connection.ask("DescribeGroups", 5, DescribeGroupsRequest(groups=[group]))
    return answer.groups[0]


def states(worker: Worker, connector: str) -> set[str]:
    """The states of the connector's tasks, with the worker that runs each."""
    status = worker.answers(f"connectors/{connector}/status") or {"tasks": []}
    return {f"{task['state']} {task['worker_id']}" for task in status["tasks"]}


def test_connect_cluster(quick_broker: Broker, topic: str, tmp_path: Path) -> None:
    """Two workers form a group, run a source and a sink, and one takes over when the other is killed."""
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    source.write_text("first\nsecond\n")
    with ExitStack() as running:
        one = Worker(quick_broker.bootstrap, topic, tmp_path)
        running.enter_context(one.process)
        eventually(lambda: one.answers("connectors") == [], READY_WITHIN_S)
        eventually(lambda: bool(described(quick_broker, topic).group_state == "Stable"), READY_WITHIN_S)
        group = described(quick_broker, topic)
        assert group.protocol_type == "connect"
        assert group.protocol_data == "sessioned"
        two = Worker(quick_broker.bootstrap, topic, tmp_path)
        running.enter_context(two.process)
        eventually(lambda: two.answers("connectors") == [], READY_WITHIN_S)
        eventually(lambda: len(described(quick_broker, topic).members) == 2, READY_WITHIN_S)

        records = f"{topic}-records"
        connectors = {
            "source": {"connector.class": "FileStreamSource", "file": str(source), "topic": records},
            "sink": {"connector.class": "FileStreamSink", "file": str(sink), "topics": records},
        }
        for name, config in connectors.items():
            wanted = {"name": name, "config": {**config, "tasks.max": "1"}}
            eventually(lambda: one.answers("connectors", wanted) is not None, READY_WITHIN_S)  # noqa: B023
        eventually(lambda: sink.exists() and sink.read_text() == "first\nsecond\n", READY_WITHIN_S)
        assert described(quick_broker, "connect-sink").protocol_type == "consumer"

        two.process.kill()
        mine = {f"RUNNING 127.0.0.1:{one.port}"}
        eventually(lambda: states(one, "source") == mine and states(one, "sink") == mine, READY_WITHIN_S)
        with source.open("a") as more:
            more.write("third\n")
        eventually(lambda: sink.read_text().splitlines()[-1] == "third", READY_WITHIN_S)
    values = [m.value() for m in confluent.read_all(quick_broker.bootstrap, records, isolation_level="read_committed")]
    assert values == [b"first", b"second", b"third"]


class OwnMember:
    """A member of a protocol type of its own, by raw requests."""

    def __init__(self, connection: RawConnection, group: str) -> None:
        self.connection = connection
        self.group = group
        self.member_id = ""

    def join(self, protocol_type: str, *protocols: str) -> None:
        offered = [JoinGroupRequestProtocol(name=name, metadata=f"of {name}".encode()) for name in protocols]
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=6000,
            rebalance_timeout_ms=10_000,
            member_id=self.member_id,
            protocol_type=protocol_type,
            protocols=offered,
        )
        answer: Any = self.connection.ask("JoinGroup", 9, request)
        self.member_id = answer.member_id
        self.answer = answer

    def sync(self, assignments: dict[str, bytes]) -> Any:
        given = [SyncGroupRequestAssignment(member_id=key, assignment=value) for key, value in assignments.items()]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.answer.generation_id,
            member_id=self.member_id,
            protocol_type=self.answer.protocol_type,
            protocol_name=self.answer.protocol_name,
            assignments=given,
        )
        return self.connection.ask("SyncGroup", 5, request)

    def heartbeat(self) -> int:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.answer.generation_id, member_id=self.member_id
        )
        answer: Any = self.connection.ask("Heartbeat", 4, request)
        return int(answer.error_code)

    def leave(self) -> int:
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)])
        answer: Any = self.connection.ask("LeaveGroup", 5, request)
        return int(answer.error_code)


def test_a_protocol_type_of_ones_own(quick_broker: Broker, topic: str) -> None:
    """The coordinator carries whatever the members call their protocol and put into it."""
    with RawConnection(quick_broker.port) as connection, RawConnection(quick_broker.port) as another:
        eventually(lambda: coordinator_found(connection, topic))
        one = OwnMember(connection, topic)
        eventually(lambda: joined_first(one))
        assert one.answer.error_code == MEMBER_ID_REQUIRED
        one.join("braids", "plait", "twist")
        assert one.answer.error_code == 0
        assert one.answer.leader == one.member_id
        assert one.answer.protocol_type == "braids"
        assert one.answer.protocol_name == "plait"
        assert [bytes(member.metadata) for member in one.answer.members] == [b"of plait"]
        synced = one.sync({one.member_id: b"\x00\xff any bytes"})
        assert bytes(synced.assignment) == b"\x00\xff any bytes"
        assert one.heartbeat() == 0

        group = described(quick_broker, topic)
        assert (group.protocol_type, group.protocol_data, group.group_state) == ("braids", "plait", "Stable")
        assert bytes(group.members[0].member_metadata) == b"of plait"

        for stranger in (("other", "plait"), ("braids", "knot")):
            unlike = OwnMember(another, topic)
            unlike.join(*stranger)
            assert unlike.answer.error_code == INCONSISTENT_GROUP_PROTOCOL
        assert one.heartbeat() == 0
        assert one.leave() == 0
        eventually(lambda: bool(described(quick_broker, topic).group_state == "Empty"))
        assert described(quick_broker, topic).protocol_type == "braids"


def coordinator_found(connection: RawConnection, group: str) -> bool:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    answer: Any = connection.ask("FindCoordinator", 4, request)
    return bool(answer.coordinators[0].error_code == 0)


def joined_first(member: OwnMember) -> bool:
    """The first request of a new member; a coordinator that is just loading has it sent again."""
    member.join("braids", "plait", "twist")
    return bool(member.answer.error_code not in NOT_READY)
