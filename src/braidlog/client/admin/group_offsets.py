"""What groups committed, and how that is changed from outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_call import BrokerConnection
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
from braidlog.core.types import TopicPartition, by_topic
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


def list_group_offsets(
    driver: AdminApiDriver,
    groups: Many[str] | Mapping[str, Partitions | None],
    *,
    require_stable: bool = False,
) -> Results[str, Offsets]:
    named: dict[str, Partitions | None] = {}
    if isinstance(groups, Mapping):
        named.update(groups)
    else:
        named.update(dict.fromkeys(names_of(groups, "groups")))
    wanted = {name: None if places is None else sorted(partitions_of(places)) for name, places in named.items()}

    async def fetch(node: BrokerConnection, names: list[str]) -> dict[str, Offsets | ProtocolError]:
        version = node.version_for(OFFSET_FETCH, NEWEST_OFFSET_FETCH)
        asked = {name: wanted[name] for name in names}
        found: dict[str, Offsets | ProtocolError] = {}
        for request in offset_fetch_requests(version, asked, require_stable=require_stable):
            answer = await node.call(OFFSET_FETCH, request, OffsetFetchResponse, at_most=NEWEST_OFFSET_FETCH)
            found |= {name: _offsets(name, each) for name, each in fetched_offsets(request, answer).items()}
        return found

    return driver.ask(wanted, driver.groups, fetch)


def alter_group_offsets(
    driver: AdminApiDriver, group: str, offsets: ByPartition[int | OffsetAndMetadata]
) -> Results[TopicPartition, None]:
    wanted = {
        place: OffsetAndMetadata(each) if isinstance(each, int) else each
        for place, each in by_partition(offsets, "offsets", '{TopicPartition("orders", 0): 42}').items()
    }

    async def commit(node: BrokerConnection, _: list[str]) -> dict[str, dict[TopicPartition, int]]:
        version = node.version_for(OFFSET_COMMIT, NEWEST_OFFSET_COMMIT)
        request = offset_commit_request(version, group, dict(sorted(wanted.items())))
        codes = offset_commit_codes(
            await node.call(OFFSET_COMMIT, request, OffsetCommitResponse, at_most=NEWEST_OFFSET_COMMIT)
        )
        _check_passing(driver, group, codes.values())
        return {group: codes}

    return _by_partition(driver, group, wanted, driver.ask([group], driver.groups, commit)[group])


def delete_group_offsets(driver: AdminApiDriver, group: str, partitions: Partitions) -> Results[TopicPartition, None]:
    wanted = list(dict.fromkeys(partitions_of(partitions)))
    topics = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in numbers]
        )
        for topic, numbers in by_topic(sorted(wanted)).items()
    ]

    async def delete(node: BrokerConnection, _: list[str]) -> dict[str, dict[TopicPartition, int]]:
        answer = await node.call(
            OFFSET_DELETE, OffsetDeleteRequest(group_id=group, topics=topics), OffsetDeleteResponse
        )
        check(answer.error_code, f"group {group}")
        codes = {
            TopicPartition(topic.name, each.partition_index): each.error_code
            for topic in answer.topics
            for each in topic.partitions
        }
        return {group: codes}

    return _by_partition(driver, group, wanted, driver.ask([group], driver.groups, delete)[group])


def _check_passing(driver: AdminApiDriver, group: str, codes: Iterable[int]) -> None:
    """The coordinator refuses all partitions alike when it is not, or not yet, the group's."""
    for code in codes:
        if code != NONE and driver.groups.is_retriable(problem := broker_error(code, f"group {group}")):
            raise problem


def _by_partition(
    driver: AdminApiDriver, group: str, order: Iterable[TopicPartition], codes: Mapping[TopicPartition, int]
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
