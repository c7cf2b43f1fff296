"""Asks the leaders of partitions for offsets: the log's start, its end, or the first record at or after a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from braidlog.client.broker_errors import broker_error
from braidlog.client.cluster_view import ClusterView
from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.errors import AuthenticationFailed, ClientError
from braidlog.client.network.lookups import list_offsets
from braidlog.client.network.nodes import Nodes
from braidlog.client.requests.list_offsets import IsolationLevel, ListedOffset, OffsetQuery
from braidlog.core.protocol_errors import (
    NONE,
    FencedLeaderEpochError,
    LeaderNotAvailableError,
    NotLeaderOrFollowerError,
    ProtocolError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import TopicPartition
from braidlog.net.outbound.pipelined_connection import PipelinedConnection

# Beside the fetches, which may be parked at the broker for long.
LOOKUP_CONNECTION: Final = "lookups"
# The cluster changed: metadata has to be asked for before the next try.
STALE_LEADER_CODES: Final = (
    NotLeaderOrFollowerError.code,
    LeaderNotAvailableError.code,
    UnknownTopicOrPartitionError.code,
    FencedLeaderEpochError.code,
    UnknownLeaderEpochError.code,
)


class FoundOffset(NamedTuple):
    """-1 where the log has no such offset."""

    offset: int
    timestamp: int
    leader_epoch: int


async def idle_connection(nodes: Nodes, node_id: int) -> PipelinedConnection:
    """A connection on which nothing waits that may take long."""
    ready = nodes.ready(node_id)
    if ready is not None and ready.in_flight == 0:
        return ready
    return await nodes.connection(node_id, LOOKUP_CONNECTION)


def leader_of(view: ClusterView, partition: TopicPartition) -> tuple[int, int] | ProtocolError:
    """(broker, epoch) that leads a partition, or why that is not known."""
    topic = view.topics.get(partition.topic)
    if topic is None:
        return broker_error(LeaderNotAvailableError.code, str(partition))
    if topic.error_code != NONE:
        return broker_error(topic.error_code, f"topic {partition.topic}")
    found = topic.partition_with_leader(partition.partition)
    return found if isinstance(found, ProtocolError) else (found.leader, found.leader_epoch)


class OffsetLookup:
    """Used on the engine's thread."""

    def __init__(self, context: ConsumerContext) -> None:
        self._nodes = context.nodes
        self._problems = context.nodes.problems
        self._metadata = context.metadata
        self._timeout_s = context.settings.seconds("request.timeout.ms")
        self._backoff_s = context.settings.seconds("retry.backoff.ms")
        self._isolation_level = context.settings.isolation_level()

    async def ask(
        self, targets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset | ProtocolError | ClientError]:
        """One try, all leaders at once; what failed says why. `targets` are timestamps, EARLIEST or LATEST."""
        found: dict[TopicPartition, FoundOffset | ProtocolError | ClientError] = {}
        by_leader: dict[int, dict[TopicPartition, OffsetQuery]] = {}
        for each, target in targets.items():
            leader = leader_of(self._metadata.view, each)
            if isinstance(leader, ProtocolError):
                found[each] = leader
                continue
            by_leader.setdefault(leader[0], {})[each] = OffsetQuery(target, leader[1])
        for answers in await asyncio.gather(*(self._ask_leader(node, asked) for node, asked in by_leader.items())):
            found.update(answers)
        if any(
            isinstance(each, ClientError) or getattr(each, "code", NONE) in STALE_LEADER_CODES
            for each in found.values()
        ):
            self._metadata.request_update()
        return found

    async def ask_with_retries(self, targets: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        """Retries what may pass until cancelled; raises what does not."""
        self._metadata.want(*(each.topic for each in targets))
        known: dict[TopicPartition, FoundOffset] = {}
        rest = dict(targets)
        if any(each.topic not in self._metadata.view.topics for each in targets):
            await self._refreshed()
        while rest:
            for each, answer in (await self.ask(rest)).items():
                if isinstance(answer, FoundOffset):
                    known[each] = answer
                    del rest[each]
                    if not self._problems.is_empty:
                        self._problems.recovered(str(each))
                elif isinstance(answer, AuthenticationFailed) or not answer.retriable:
                    raise answer
                else:
                    self._problems.failed(str(each), answer, part_of=f"topic {each.topic}")
            if rest:
                await asyncio.sleep(self._backoff_s)
                await self._refreshed()
        return known

    async def _refreshed(self) -> None:
        try:
            await self._metadata.refreshed()
        except (ClientError, ProtocolError) as problem:
            if not problem.retriable:
                raise

    async def _ask_leader(
        self, node: int, asked: dict[TopicPartition, OffsetQuery]
    ) -> dict[TopicPartition, FoundOffset | ProtocolError | ClientError]:
        isolation = IsolationLevel(self._isolation_level)
        try:
            connection = await idle_connection(self._nodes, node)
            listed = await list_offsets(
                connection, asked, isolation, self._timeout_s, timeout_ms=int(self._timeout_s * 1000)
            )
        except (ClientError, ProtocolError) as problem:
            return dict.fromkeys(asked, problem)
        answers: dict[TopicPartition, FoundOffset | ProtocolError | ClientError] = {}
        for each in asked:
            found = listed.get(each)
            if found is None:
                answers[each] = broker_error(UnknownTopicOrPartitionError.code, str(each))
            else:
                answers[each] = FoundOffset(*found) if isinstance(found, ListedOffset) else found
        return answers
