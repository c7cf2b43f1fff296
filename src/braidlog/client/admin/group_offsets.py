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
from braidlog.client.requests.offset_commit import (
    NEWEST_OFFSET_COMMIT,
    OFFSET_COMMIT,
    offset_commit_codes,
    offset_commit_request,
)
from braidlog.client.requests.offset_fetch import (
    NEWEST_OFFSET_FETCH,
    OFFSET_FETCH,
    FetchedOffsets,
    fetched_offsets,
    offset_fetch_requests,
)
from braidlog.core.protocol_errors import NONE, GroupIdNotFoundError, ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.offset_commit import OffsetCommitResponse
from braidlog.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from braidlog.wire.generated.offset_fetch import OffsetFetchResponse

OFFSET_DELETE: Final = 47

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
        wanted = {name: None if places is None else sorted(partitions_of(places)) for name, places in named.items()}

        def fetch(node: BrokerConnection, names: list[str]) -> dict[str, Offsets | ProtocolError]:
            version = node.version_for(OFFSET_FETCH, NEWEST_OFFSET_FETCH)
            asked = {name: wanted[name] for name in names}
            found: dict[str, Offsets | ProtocolError] = {}
            for request in offset_fetch_requests(version, asked, require_stable=require_stable):
                answer = node.call(OFFSET_FETCH, request, OffsetFetchResponse, at_most=NEWEST_OFFSET_FETCH)
                found |= {name: _offsets(name, each) for name, each in fetched_offsets(request, answer).items()}
            return found

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
            version = node.version_for(OFFSET_COMMIT, NEWEST_OFFSET_COMMIT)
            request = offset_commit_request(version, group, dict(sorted(wanted.items())))
            codes = offset_commit_codes(
                node.call(OFFSET_COMMIT, request, OffsetCommitResponse, at_most=NEWEST_OFFSET_COMMIT)
            )
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


def _offsets(group: str, fetched: FetchedOffsets) -> Offsets | ProtocolError:
    if fetched.error_code == GroupIdNotFoundError.code:
        return {}
    if fetched.error_code != NONE:
        return broker_error(fetched.error_code, f"group {group}")
    for place, error_code in fetched.errors.items():
        return broker_error(error_code, f"group {group}, {place}")
    return {place: committed for place, committed in fetched.offsets.items() if committed is not None}
