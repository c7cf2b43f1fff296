"""A member of a classic group as a simulation scripts it: joins, takes what the leader gave it, commits as it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final, Protocol

from braidlog.core.protocol_errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    MemberIdRequiredError,
    NotCoordinatorError,
)
from braidlog.testing.simulated.scripted_client import NoAnswer, ScriptedClient
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from braidlog.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from braidlog.wire.generated.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from braidlog.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from braidlog.wire.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

_BACKOFF_S: Final = 0.1
_SESSION_MS: Final = 3_000
_REBALANCE_MS: Final = 4_000
_LATER: Final = (
    CoordinatorLoadInProgressError.code,
    CoordinatorNotAvailableError.code,
    NotCoordinatorError.code,
)


class GroupListener(Protocol):
    def owned(self, group: str, generation: int, member: str, partitions: Sequence[int]) -> None:
        """A member was assigned these in this generation."""
        ...

    def committing(self, group: str, partition: int, offset: int) -> None:
        """It may be committed from now on."""
        ...

    def committed(self, group: str, partition: int, offset: int) -> None: ...

    def fetched(self, group: str, partition: int, offset: int, promised: int) -> None:
        """`promised` is what was acknowledged as committed when this was asked."""
        ...

    def promised(self, group: str, partition: int) -> int: ...


async def find_coordinator(client: ScriptedClient, name: str, key_type: int) -> bool:
    """Make sure that the internal topic is there."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name])
    response = await client.call(10, request, 4, FindCoordinatorResponse)
    return response.coordinators[0].error_code == 0


async def fetch_offsets(
    client: ScriptedClient, group: str, topic: str, partitions: Sequence[int], *, require_stable: bool = True
) -> dict[int, int] | None:
    """Committed offsets, -1 where there is none; None where the coordinator asks to come again."""
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])], require_stable=require_stable
    )
    response = await client.call(9, request, 8, OffsetFetchResponse)
    answer = response.groups[0]
    if answer.error_code in _LATER:
        return None
    assert answer.error_code == 0, f"OffsetFetch of {group}: {answer.error_code}"
    found = {p.partition_index: p for topic_answer in answer.topics for p in topic_answer.partitions}
    if any(p.error_code != 0 for p in found.values()):
        return None
    return {index: found[index].committed_offset for index in partitions}


class ScriptedMember:
    def __init__(
        self, client: ScriptedClient, group: str, topic: str, partitions: int, listener: GroupListener, random: Random
    ) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._listener = listener
        self._random = random
        self._member_id = ""
        self._generation = -1
        self._positions: dict[int, int] = {}

    async def live(self) -> None:
        """One membership: in, at work for a while, and out by leaving, by silence, or by whatever happens."""
        try:
            if not await find_coordinator(self._client, self._group, 0) or not await self._enter():
                await asyncio.sleep(_BACKOFF_S)
                return
            for _ in range(self._random.randint(1, 8)):
                await asyncio.sleep(self._random.random() * 0.6)
                if not await self._work():
                    return
            await self._part()
        except NoAnswer:
            await asyncio.sleep(_BACKOFF_S)

    async def _enter(self) -> bool:
        joined = await self._join()
        return joined is not None and await self._sync(joined) and await self._look_up()

    async def _join(self) -> JoinGroupResponse | None:
        for _ in range(2):
            protocol = JoinGroupRequestProtocol(name="round", metadata=b"")
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=_SESSION_MS,
                rebalance_timeout_ms=_REBALANCE_MS,
                member_id=self._member_id,
                protocol_type="simulated",
                protocols=[protocol],
            )
            response = await self._client.call(11, request, 7, JoinGroupResponse)
            if response.error_code == MemberIdRequiredError.code:
                self._member_id = response.member_id
                continue
            if response.error_code == 0:
                self._member_id = response.member_id
                self._generation = response.generation_id
                return response
            if response.error_code not in _LATER:
                self._member_id = ""
            return None
        return None

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == self._member_id:
            members = sorted(member.member_id for member in joined.members)
            for place, member in enumerate(members):
                share = bytes(range(place, self._partitions, len(members)))
                assignments.append(SyncGroupRequestAssignment(member_id=member, assignment=share))
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type="simulated",
            protocol_name="round",
            assignments=assignments,
        )
        response = await self._client.call(14, request, 5, SyncGroupResponse)
        if response.error_code != 0:
            return False
        owned = list(response.assignment)
        self._listener.owned(self._group, self._generation, self._member_id, owned)
        self._positions = dict.fromkeys(owned, -1)
        return True

    async def _look_up(self) -> bool:
        promised = {index: self._listener.promised(self._group, index) for index in self._positions}
        found = await fetch_offsets(self._client, self._group, self._topic, list(self._positions))
        if found is None:
            return False
        for index, offset in found.items():
            self._listener.fetched(self._group, index, offset, promised[index])
        self._positions = found
        return True

    async def _work(self) -> bool:
        """A commit or a heartbeat; false where the group has gone on without this member."""
        if self._positions and self._random.random() < 0.7:
            index = self._random.choice(list(self._positions))
            return await self._commit(index)
        request = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id)
        response = await self._client.call(12, request, 4, HeartbeatResponse)
        return response.error_code == 0

    async def _commit(self, index: int) -> bool:
        offset = self._positions[index] + self._random.randint(1, 5)
        self._listener.committing(self._group, index, offset)
        partition = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=[partition])],
        )
        response = await self._client.call(8, request, 8, OffsetCommitResponse)
        if response.topics[0].partitions[0].error_code != 0:
            return False
        self._positions[index] = offset
        self._listener.committed(self._group, index, offset)
        return True

    async def _part(self) -> None:
        """By a word, by silence until the session is over, or to join again under the same id."""
        manner = self._random.randrange(3)
        if manner == 0:
            leaving = MemberIdentity(member_id=self._member_id)
            await self._client.call(
                13, LeaveGroupRequest(group_id=self._group, members=[leaving]), 4, LeaveGroupResponse
            )
        elif manner == 1:
            await asyncio.sleep(_SESSION_MS / 1000 * 1.5)
        if manner != 2:
            self._member_id = ""
