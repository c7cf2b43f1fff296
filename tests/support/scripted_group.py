"""A coordinator of one classic group that knows our member, and as many others as a test wants it to have."""

from __future__ import annotations

from collections.abc import Iterable

from braidlog.client.consumer.assignors.embedded_protocol import read_assignment, write_assignment
from braidlog.client.consumer.assignors.interface import Assignment
from braidlog.core.protocol_errors import MemberIdRequiredError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from braidlog.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse
from support.membership_harness import JOIN, SYNC, CoordinatorScript


class Coordinator:
    """Our member leads as long as `leader` is empty; `gives` overrules what it shares out to itself."""

    def __init__(self, script: CoordinatorScript) -> None:
        self.generation = 0
        self.members_made = 0
        self.others: dict[str, bytes] = {}
        self.leader = ""
        self.skips = False
        self.gives: list[list[TopicPartition]] = []
        self.shares: dict[str, list[TopicPartition]] = {}
        script.always(JOIN, self._join)
        script.always(SYNC, self._sync)

    def _join(self, request: JoinGroupRequest, version: int) -> JoinGroupResponse:
        if not request.member_id:
            self.members_made += 1
            member_id = f"member-{self.members_made}"
            if version >= 4 and request.group_instance_id is None:
                return JoinGroupResponse(error_code=MemberIdRequiredError.code, member_id=member_id)
            request.member_id = member_id
        self.generation += 1
        chosen = request.protocols[0]
        mine = JoinGroupResponseMember(
            member_id=request.member_id, group_instance_id=request.group_instance_id, metadata=chosen.metadata
        )
        others = [JoinGroupResponseMember(member_id=name, metadata=reported) for name, reported in self.others.items()]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=chosen.name,
            leader=self.leader or request.member_id,
            member_id=request.member_id,
            members=[] if self.leader else [mine, *others],
            skip_assignment=self.skips,
        )

    def _sync(self, request: SyncGroupRequest, version: int) -> SyncGroupResponse:
        self.shares = {each.member_id: read_assignment(each.assignment).partitions for each in request.assignments}
        if self.gives:
            return SyncGroupResponse(assignment=write_assignment(Assignment(self.gives.pop(0))))
        mine = [each.assignment for each in request.assignments if each.member_id == request.member_id]
        return SyncGroupResponse(assignment=mine[0] if mine else b"")

    def give(self, *shares: Iterable[TopicPartition]) -> None:
        """What our member gets in the next generations, whatever it shares out."""
        self.gives += [list(share) for share in shares]
