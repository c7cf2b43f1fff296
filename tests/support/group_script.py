"""Members of one classic group, acting by a script on two brokers at once; what both say must be alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from braidlog.wire.apis import api_by_name, decode_response, encode_request
from braidlog.wire.generated.describe_groups import DescribeGroupsRequest
from braidlog.wire.generated.heartbeat import HeartbeatRequest
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from braidlog.wire.generated.leave_group import LeaveGroupRequest, MemberIdentity
from braidlog.wire.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from braidlog.wire.message import Message
from support.eventually import eventually
from support.oracle import Pair, Side, unlike
from support.raw import RawConnection, as_plain

SUBSCRIPTION = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"
UNKNOWN = "?"


class RawClassicMember:
    """One member on one broker: its connection, and what it was told."""

    def __init__(self, side: Side, names: dict[str, str]) -> None:
        self.connection = RawConnection(side.broker.port)
        self.names = names
        self.member_id = ""
        self.generation = -1
        self.members: list[str] = []
        self._sent: tuple[str, int] | None = None

    def send(self, name: str, version: int, request: Message) -> None:
        assert self._sent is None, "one request at a time"
        self._sent = (name, version)
        frame = encode_request(api_by_name(name).key, version, 1, "script", request)
        self.connection.send_bytes(b"".join(bytes(part) for part in frame.parts()))

    def receive(self, label: str) -> Any:
        assert self._sent is not None
        name, version = self._sent
        self._sent = None
        frame = self.connection.receive_frame()
        assert frame is not None, f"{name} v{version} of {label}: the broker closed the connection"
        response: Any = decode_response(api_by_name(name).key, version, frame)[1]
        if name == "JoinGroup":
            if response.member_id:
                self.names.setdefault(response.member_id, f"{label} {sum(n[:1] == label for n in self.names.values())}")
                self.member_id = response.member_id
            if response.error_code == 0:
                self.generation = response.generation_id
                self.members = [member.member_id for member in response.members]
        return response

    def named(self, message: Message) -> Any:
        return _named(as_plain(message), self.names)


def _named(value: Any, names: dict[str, str]) -> Any:
    """Ids that the broker drew are replaced by the script's names; members are put into the order of these."""
    if isinstance(value, dict):
        return {key: _named(item, names) for key, item in value.items() if key != "throttle_time_ms"}
    if isinstance(value, list):
        return sorted((_named(item, names) for item in value), key=_order)
    if isinstance(value, bytes):
        return names.get(value.decode("latin-1"), value)
    return names.get(value, value) if isinstance(value, str) else value


def _order(item: Any) -> str:
    return str(item.get("member_id")) if isinstance(item, dict) else ""


class PairedGroupScript:
    """Labels are one letter each; a label is the same member on both brokers."""

    def __init__(self, pair: Pair, group: str) -> None:
        self.pair = pair
        self.group = group
        self._names: dict[Side, dict[str, str]] = {side: {} for side in pair.sides}
        self._actors: dict[str, list[RawClassicMember]] = {}

    def actors(self, label: str) -> list[RawClassicMember]:
        if label not in self._actors:
            self._actors[label] = [RawClassicMember(side, self._names[side]) for side in self.pair.sides]
        return self._actors[label]

    def close(self) -> None:
        for actors in self._actors.values():
            for actor in actors:
                actor.connection.close()

    def named(self, side: Side, message: Message) -> Any:
        return _named(as_plain(message), self._names[side])

    # Requests

    def send(self, label: str, name: str, version: int, make: Callable[[RawClassicMember], Message]) -> None:
        for actor in self.actors(label):
            actor.send(name, version, make(actor))

    def receive(self, labels: str, what: str = "") -> Any:
        """Both brokers' answers to each label's request, which must be alike; Kafka's last one is returned."""
        responses = {label: [actor.receive(label) for actor in self.actors(label)] for label in labels}
        expected: Any = None
        for label, answers in responses.items():
            pairs = zip(self.actors(label), answers, strict=True)
            expected, actual = (actor.named(answer) for actor, answer in pairs)
            different = unlike(expected, actual)
            if different:
                raise AssertionError("\n".join([f"{label} {what}", *different]))
        return expected

    def ask(self, label: str, name: str, version: int, make: Callable[[RawClassicMember], Message]) -> Any:
        self.send(label, name, version, make)
        return self.receive(label, f"{name} v{version}")

    def send_join(
        self,
        label: str,
        version: int = 9,
        *,
        member_id: str | None = None,
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 30_000,
        rebalance_ms: int = 30_000,
    ) -> None:
        offered = {"range": SUBSCRIPTION} if protocols is None else protocols

        def make(actor: RawClassicMember) -> Message:
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=session_ms,
                member_id=actor.member_id if member_id is None else member_id,
                protocol_type=protocol_type,
                protocols=[
                    JoinGroupRequestProtocol(name=name, metadata=reported) for name, reported in offered.items()
                ],
            )
            if version >= 1:
                request.rebalance_timeout_ms = rebalance_ms
            if version >= 5:
                request.group_instance_id = instance
            return request

        self.send(label, "JoinGroup", version, make)

    def join(self, label: str, version: int = 9, **how: Any) -> Any:
        self.send_join(label, version, **how)
        return self.receive(label, f"JoinGroup v{version}")

    def enter(self, label: str, **how: Any) -> None:
        """Both steps of a dynamic member; the second waits."""
        assert self.join(label, **how)["error_code"] == 79
        self.send_join(label, **how)

    def send_sync(
        self, label: str, version: int = 5, *, by: int = 0, instance: str | None = None, member_id: str | None = None,
        protocol_type: str | None = "consumer", protocol_name: str | None = "range",
    ) -> None:  # fmt: skip
        """A leader gives everybody its own id."""

        def make(actor: RawClassicMember) -> Message:
            request = SyncGroupRequest(
                group_id=self.group,
                generation_id=actor.generation + by,
                member_id=actor.member_id if member_id is None else member_id,
                assignments=[
                    SyncGroupRequestAssignment(member_id=member, assignment=member.encode()) for member in actor.members
                ],
            )
            if version >= 3:
                request.group_instance_id = instance
            if version >= 5:
                request.protocol_type = protocol_type
                request.protocol_name = protocol_name
            return request

        self.send(label, "SyncGroup", version, make)

    def sync(self, label: str, version: int = 5, **how: Any) -> Any:
        self.send_sync(label, version, **how)
        return self.receive(label, f"SyncGroup v{version}")

    def heartbeat(
        self, label: str, version: int = 4, *, by: int = 0, instance: str | None = None, member_id: str | None = None
    ) -> Any:
        def make(actor: RawClassicMember) -> Message:
            request = HeartbeatRequest(
                group_id=self.group,
                generation_id=actor.generation + by,
                member_id=actor.member_id if member_id is None else member_id,
            )
            if version >= 3:
                request.group_instance_id = instance
            return request

        return self.ask(label, "Heartbeat", version, make)

    def leave(self, label: str, version: int = 5, *members: tuple[str | None, str | None]) -> Any:
        """Itself, or those named by id (None: its own) and instance."""

        def make(actor: RawClassicMember) -> Message:
            if version < 3:
                return LeaveGroupRequest(group_id=self.group, member_id=actor.member_id)
            named = [
                MemberIdentity(member_id=actor.member_id if member is None else member, group_instance_id=instance)
                for member, instance in members or [(None, None)]
            ]
            return LeaveGroupRequest(group_id=self.group, members=named)

        return self.ask(label, "LeaveGroup", version, make)

    def describe(self, version: int = 5) -> Any:
        request = DescribeGroupsRequest(groups=[self.group], include_authorized_operations=version >= 3)
        answers = []
        for side in self.pair.sides:
            actor = RawClassicMember(side, self._names[side])
            actor.send("DescribeGroups", version, request)
            answers.append(actor.named(actor.receive(UNKNOWN)))
            actor.connection.close()
        different = unlike(*answers)
        if different:
            raise AssertionError("\n".join([f"DescribeGroups v{version}", *different]))
        return answers[0]["groups"][0]

    def until(self, state: str, members: int) -> None:
        """Both groups are in the state and have so many members; a group that has neither yet may get there."""
        request = DescribeGroupsRequest(groups=[self.group])

        def there() -> bool:
            seen = []
            for side in self.pair.sides:
                answer: Any = side.ask("DescribeGroups", 5, request)
                group = answer.groups[0]
                seen.append((group.group_state, len(group.members)))
            return seen == [(state, members)] * 2

        eventually(there)
