"""What members of groups and transactional producers are told by coordinators, written into histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from braidlog.client.consumer.assignors.embedded_protocol import read_assignment
from braidlog.testing.simulated.connection import SimulatedConnection
from braidlog.wire.generated.end_txn import EndTxnRequest, EndTxnResponse
from braidlog.wire.generated.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from braidlog.wire.generated.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from braidlog.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse
from support.simulation.coordinator_history import GroupHistory, TransactionHistory
from support.simulation.frames import Exchange, Observer

OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
SYNC_GROUP: Final = 14
END_TXN: Final = 26


def group_observers(history: GroupHistory, groups: Sequence[str], classic: Sequence[str]) -> Mapping[int, Observer]:
    """Of these groups, which read one topic; only classic ones give out their partitions a generation at a time."""
    return {
        SYNC_GROUP: _SyncGroupFrames(history, classic),
        OFFSET_COMMIT: _OffsetCommitFrames(history, groups),
        OFFSET_FETCH: _OffsetFetchFrames(history, groups),
    }


class _GroupFrames:
    def __init__(self, history: GroupHistory, groups: Sequence[str]) -> None:
        self._history = history
        self._groups = groups

    def lost(self, exchange: Exchange) -> None:
        pass


class _SyncGroupFrames(_GroupFrames):
    def requested(self, connection: SimulatedConnection, request: SyncGroupRequest) -> None:
        pass

    def answered(self, exchange: Exchange, response: SyncGroupResponse) -> None:
        request: SyncGroupRequest = exchange.request
        if response.error_code == 0 and request.group_id in self._groups:
            partitions = sorted(each.partition for each in read_assignment(response.assignment).partitions)
            self._history.owned(request.group_id, request.generation_id, request.member_id, partitions)


class _OffsetCommitFrames(_GroupFrames):
    def requested(self, connection: SimulatedConnection, request: OffsetCommitRequest) -> dict[int, int]:
        offsets = {p.partition_index: p.committed_offset for topic in request.topics for p in topic.partitions}
        if request.group_id in self._groups:
            for index, offset in offsets.items():
                self._history.committing(request.group_id, index, offset)
        return offsets

    def answered(self, exchange: Exchange, response: OffsetCommitResponse) -> None:
        if exchange.request.group_id in self._groups:
            for topic in response.topics:
                for answer in topic.partitions:
                    if answer.error_code == 0:
                        offset = exchange.note[answer.partition_index]
                        self._history.committed(exchange.request.group_id, answer.partition_index, offset)


class _OffsetFetchFrames(_GroupFrames):
    def requested(self, connection: SimulatedConnection, request: OffsetFetchRequest) -> dict[tuple[str, int], int]:
        """What was acknowledged as committed when this was asked."""
        return {
            (group.group_id, index): self._history.promised(group.group_id, index)
            for group in request.groups
            for topic in group.topics or []
            for index in topic.partition_indexes
        }

    def answered(self, exchange: Exchange, response: OffsetFetchResponse) -> None:
        for group in response.groups:
            if group.error_code != 0 or group.group_id not in self._groups:
                continue
            for topic in group.topics:
                for answer in topic.partitions:
                    if answer.error_code == 0:
                        promised = exchange.note[group.group_id, answer.partition_index]
                        self._history.fetched(group.group_id, answer.partition_index, answer.committed_offset, promised)


class EndTxnFrames:
    """An end that was asked for may have happened from then on."""

    def __init__(self, history: TransactionHistory) -> None:
        self._history = history

    def requested(self, connection: SimulatedConnection, request: EndTxnRequest) -> None:
        transaction = self._history.current(request.transactional_id)
        if transaction is not None:
            self._history.ending(transaction, request.committed)

    def answered(self, exchange: Exchange, response: EndTxnResponse) -> None:
        pass

    def lost(self, exchange: Exchange) -> None:
        pass
