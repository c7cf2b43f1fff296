"""OffsetCommit and OffsetFetch, on the engine's thread.

Commits of one consumer are written in the order of the calls. One that has to be tried again leaves out what a later
one has covered meanwhile, and what other members may own by now: no commit moves an offset back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final

from braidlog.client.broker_errors import broker_error
from braidlog.client.consumer.group.member import GroupIdentity
from braidlog.client.consumer.group.membership import Membership
from braidlog.client.consumer.offsets.commit_requests import (
    NEWEST,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    commit_errors,
    commit_request,
    fetch_request,
)
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.consumer.subscription_state import SubscriptionState
from braidlog.client.errors import ClientError, CommitFailedError
from braidlog.client.requests.offset_fetch import fetched_by_group
from braidlog.core.protocol_errors import (
    NONE,
    FencedInstanceIdError,
    IllegalGenerationError,
    ProtocolError,
    RebalanceInProgressError,
    RequestTimedOutError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.offset_commit import OffsetCommitResponse
from braidlog.wire.generated.offset_fetch import OffsetFetchResponse

log = logging.getLogger("braidlog.client.group")

CommittedOffsets = dict[TopicPartition, OffsetAndMetadata | None]

# Errors that are about the sender of the commit: the membership knows what they mean.
_ABOUT_SENDER: Final = (
    UnknownMemberIdError.code,
    IllegalGenerationError.code,
    RebalanceInProgressError.code,
    FencedInstanceIdError.code,
    StaleMemberEpochError.code,
)


class _EpochMoved(ClientError):
    """The coordinator has given the member a later epoch."""


@dataclass(slots=True)
class CommitOperation:
    """What a program wants committed, and its identity in the group at the time of the call."""

    number: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    sender: GroupIdentity
    # Those of the partitions that were assigned then.
    assigned: frozenset[TopicPartition]


class OffsetRequests:
    def __init__(self, subscription: SubscriptionState, membership: Membership) -> None:
        self._subscription = subscription
        self._membership = membership
        self._coordinator = membership.coordinator
        self._numbers = count(1)
        # What fails or works, in the words of the log.
        self._commits = f"commits of group {self._coordinator.group_id}"
        self._fetches = f"committed offsets of group {self._coordinator.group_id}"
        # The last operation that wrote a partition's offset to the coordinator.
        self._written: dict[TopicPartition, int] = {}
        # Held from the look-up of the coordinator until the request is written, so that commits keep their order.
        self._write_lock = asyncio.Lock()

    def begin_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> CommitOperation:
        """In the program's thread; raises where the group would not take it."""
        assigned = self._subscription.assigned() & offsets.keys()
        return CommitOperation(next(self._numbers), offsets, self._membership.commit_identity(), assigned)

    async def commit_with_retries(self, operation: CommitOperation) -> None:
        """Until it is acknowledged; raises what does not pass."""
        backoff = self._coordinator.backoff()
        while True:
            try:
                await self.commit_once(operation)
                return
            except (ClientError, ProtocolError) as problem:
                if not problem.retriable:
                    raise
                log.debug("group %s: the commit is tried again: %s", self._coordinator.group_id, problem)
            await backoff.wait()

    async def commit_once(self, operation: CommitOperation) -> None:
        """One try; a member of the consumer protocol that is in a later epoch by now tries again in that."""
        backoff = self._coordinator.backoff()
        while True:
            try:
                await self._write(operation)
                return
            except _EpochMoved as problem:
                await backoff.wait()
                if not operation.assigned <= self._subscription.assigned():
                    raise CommitFailedError(
                        f"group {self._coordinator.group_id}: not committed, since partitions went to others meanwhile"
                    ) from problem
                operation.sender = self._membership.commit_identity()

    async def _write(self, operation: CommitOperation) -> None:
        """One request, in the name that the member had when it was asked to; raises what that was answered with."""
        async with self._write_lock:
            connection = await self._coordinator.connection()
            offsets = {
                each: committed
                for each, committed in operation.offsets.items()
                if self._written.get(each, 0) <= operation.number
            }
            if not offsets:
                # A later operation covered all of it, and its caller learns the outcome.
                return
            version = connection.version_for(OFFSET_COMMIT, NEWEST)
            request = commit_request(self._coordinator.group_id, operation.sender, offsets, version)
            waiting = connection.post(OFFSET_COMMIT, version, request, self._coordinator.request_timeout_s)
            self._written.update(dict.fromkeys(offsets, operation.number))
        try:
            answer = await waiting
        except ClientError as problem:
            self._coordinator.failed(problem, self._commits)
            self._coordinator.mark_unknown(problem)
            raise
        assert isinstance(answer, OffsetCommitResponse)
        refused = commit_errors(answer)
        if not refused:
            self._coordinator.recovered(self._commits)
        for partition, code in refused.items():
            if code in _ABOUT_SENDER:
                raise self._membership.on_commit_refused(operation.sender, code) or _EpochMoved(
                    "it is in a later epoch"
                )
            if self._coordinator.handle_error(code):
                raise broker_error(code, f"group {self._coordinator.group_id}")
            if code == RequestTimedOutError.code:
                self._coordinator.mark_unknown("it could not write the offsets in time")
            error = broker_error(code, f"offset of {partition}")
            if error.retriable:
                self._coordinator.failed(error, self._commits)
            raise error

    async def fetch_committed(self, partitions: list[TopicPartition]) -> CommittedOffsets:
        """Tries again what may pass until it is cancelled; raises what the program has to know."""
        backoff = self._coordinator.backoff()
        while True:
            try:
                found = await self._fetch_once(partitions)
                if found is not None:
                    return found
            except (ClientError, ProtocolError) as problem:
                # A topic that is gone does not come back by asking.
                if not problem.retriable or isinstance(problem, UnknownTopicOrPartitionError):
                    raise
                self._coordinator.failed(problem, self._fetches)
            await backoff.wait()

    async def _fetch_once(self, partitions: list[TopicPartition]) -> CommittedOffsets | None:
        group_id = self._coordinator.group_id
        answer = await self._coordinator.ask(
            OFFSET_FETCH,
            lambda version: fetch_request(group_id, self._membership.fetch_identity(), partitions, version),
            OffsetFetchResponse,
            at_most=NEWEST,
        )
        fetched = fetched_by_group(answer)
        if fetched.error_code != NONE:
            if self._coordinator.handle_error(fetched.error_code) or fetched.error_code in _ABOUT_SENDER:
                return None
            raise broker_error(fetched.error_code, f"group {group_id}")
        for partition, code in fetched.errors.items():
            if code == UnstableOffsetCommitError.code or self._coordinator.handle_error(code):
                return None
            raise broker_error(code, f"committed offset of {partition}")
        self._coordinator.recovered(self._fetches)
        return {partition: fetched.offsets.get(partition) for partition in partitions}
