"""What groups committed, and how that is changed from outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from braidlog.client.admin.broker_connection import BrokerConnection
from braidlog.client.admin.coordinator_strategy import GroupAdminCalls
from braidlog.client.admin.lookup_strategies import by_topic
from braidlog.client.admin.results import Results
from braidlog.client.arguments import ByPartition, Many, Partitions, by_partition, names_of, partitions_of
from braidlog.client.broker_errors import broker_error, check
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.core.protocol_errors import NONE, GroupIdNotFoundError, ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from braidlog.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from braidlog.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
OFFSET_DELETE: Final = 47

# The newest versions of OffsetFetch and OffsetCommit that name topics; the first that fetches for several groups, and
# the first that waits for open transactions.
_NAMED_TOPICS: Final = 9
_SEVERAL_GROUPS: Final = 8
_STABLE: Final = 7

Offsets = dict[TopicPartition, OffsetAndMetadata]


class GroupOffsetCalls(GroupAdminCalls):
    def list_group_offsets(
        self,
        groups: Many[str] | Mapping[str, Partitions | None],
        *,
        require_stable: bool = False,
    ) -> Results[str, Offsets]:
        """By group what it committed: for all partitions, or for those that a mapping names.

        A partition without a committed offset is left out, and a group that does not exist has none.
        `require_stable` waits for transactions that are about to commit offsets.
        """
        named: dict[str, Partitions | None] = {}
        if isinstance(groups, Mapping):
            named.update(groups)
        else:
            named.update(dict.fromkeys(names_of(groups, "groups")))
        wanted = {name: None if places is None else by_topic(partitions_of(places)) for name, places in named.items()}

        def fetch(node: BrokerConnection, names: list[str]) -> dict[str, Offsets | ProtocolError]:
            version = node.version_for(OFFSET_FETCH, _NAMED_TOPICS)
            if version >= _SEVERAL_GROUPS:
                return _fetch(node, {name: wanted[name] for name in names}, require_stable)
            return {name: _fetch_one(node, name, wanted[name], require_stable and version >= _STABLE) for name in names}

        return self._driver.ask(wanted, self._groups, fetch)

    def alter_group_offsets(
        self, group: str, offsets: ByPartition[int | OffsetAndMetadata]
    ) -> Results[TopicPartition, None]:
        """Commit offsets on behalf of a group without members; one that does not exist comes into being."""
        wanted = {
            place: OffsetAndMetadata(each) if isinstance(each, int) else each
            for place, each in by_partition(offsets, "offsets", '{TopicPartition("orders", 0): 42}').items()
        }

        def commit(node: BrokerConnection, _: list[str]) -> dict[str, dict[TopicPartition, int]]:
            topics = [
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[_committed(each, wanted[TopicPartition(topic, each)]) for each in partitions],
                )
                for topic, partitions in by_topic(wanted).items()
            ]
            request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics)
            answer = node.call(OFFSET_COMMIT, request, OffsetCommitResponse, at_most=_NAMED_TOPICS)
            codes = {
                TopicPartition(topic.name, each.partition_index): each.error_code
                for topic in answer.topics
                for each in topic.partitions
            }
            self._check_passing(group, codes.values())
            return {group: codes}

        return self._by_partition(group, wanted, self._driver.ask([group], self._groups, commit)[group])

    def delete_group_offsets(self, group: str, partitions: Partitions) -> Results[TopicPartition, None]:
        """Forget what a group committed for partitions; those it is reading are refused."""
        wanted = list(dict.fromkeys(partitions_of(partitions)))
        topics = [
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in numbers]
            )
            for topic, numbers in by_topic(wanted).items()
        ]

        def delete(node: BrokerConnection, _: list[str]) -> dict[str, dict[TopicPartition, int]]:
            answer = node.call(OFFSET_DELETE, OffsetDeleteRequest(group_id=group, topics=topics), OffsetDeleteResponse)
            check(answer.error_code, f"group {group}")
            codes = {
                TopicPartition(topic.name, each.partition_index): each.error_code
                for topic in answer.topics
                for each in topic.partitions
            }
            return {group: codes}

        return self._by_partition(group, wanted, self._driver.ask([group], self._groups, delete)[group])

    def _check_passing(self, group: str, codes: Iterable[int]) -> None:
        """The coordinator refuses all partitions alike when it is not, or not yet, the group's."""
        for code in codes:
            if code != NONE and self._groups.is_retriable(problem := broker_error(code, f"group {group}")):
                raise problem

    def _by_partition(
        self, group: str, order: Iterable[TopicPartition], codes: Mapping[TopicPartition, int]
    ) -> Results[TopicPartition, None]:
        return Results(
            {
                place: broker_error(codes[place], f"group {group}, {place}") if codes[place] != NONE else None
                for place in order
                if place in codes
            }
        )


def _committed(partition: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _fetch(
    node: BrokerConnection, wanted: Mapping[str, dict[str, list[int]] | None], require_stable: bool
) -> dict[str, Offsets | ProtocolError]:
    groups = [
        OffsetFetchRequestGroup(
            group_id=name,
            topics=None
            if topics is None
            else [OffsetFetchRequestTopics(name=topic, partition_indexes=each) for topic, each in topics.items()],
        )
        for name, topics in wanted.items()
    ]
    request = OffsetFetchRequest(groups=groups, require_stable=require_stable)
    answer = node.call(OFFSET_FETCH, request, OffsetFetchResponse, at_most=_NAMED_TOPICS)
    return {
        group.group_id: _offsets(
            group.group_id, group.error_code, {topic.name: topic.partitions for topic in group.topics}
        )
        for group in answer.groups
    }


def _fetch_one(
    node: BrokerConnection, name: str, wanted: dict[str, list[int]] | None, require_stable: bool
) -> Offsets | ProtocolError:
    """For brokers before 3.0, which take one group per request."""
    topics = None
    if wanted is not None:
        topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=each) for topic, each in wanted.items()]
    request = OffsetFetchRequest(group_id=name, topics=topics, require_stable=require_stable)
    answer = node.call(OFFSET_FETCH, request, OffsetFetchResponse, at_most=_NAMED_TOPICS)
    return _offsets(name, answer.error_code, {topic.name: topic.partitions for topic in answer.topics})


def _offsets(
    group: str,
    error_code: int,
    topics: Mapping[str, list[OffsetFetchResponsePartition] | list[OffsetFetchResponsePartitions]],
) -> Offsets | ProtocolError:
    if error_code == GroupIdNotFoundError.code:
        return {}
    if error_code != NONE:
        return broker_error(error_code, f"group {group}")
    found: Offsets = {}
    for topic, partitions in topics.items():
        for each in partitions:
            place = TopicPartition(topic, each.partition_index)
            if each.error_code != NONE:
                return broker_error(each.error_code, f"group {group}, {place}")
            if each.committed_offset >= 0:
                metadata = each.metadata or ""
                found[place] = OffsetAndMetadata(each.committed_offset, metadata, each.committed_leader_epoch)
    return found
