"""Records at the start of partitions, which can be deleted, and the offsets that partitions have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_call import BrokerConnection
from braidlog.client.admin.lookup_strategies import PartitionLeaderStrategy
from braidlog.client.admin.results import Results
from braidlog.client.arguments import ByPartition, by_partition
from braidlog.client.broker_errors import broker_error
from braidlog.client.network import lookups
from braidlog.client.requests.list_offsets import (
    LIST_OFFSETS,
    SUPPORTED_SINCE,
    IsolationLevel,
    ListedOffset,
    OffsetQuery,
    OffsetSpec,
)
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import NONE, ProtocolError, UnsupportedVersionError
from braidlog.core.types import TopicPartition, by_topic
from braidlog.wire.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

__all__ = ["ALL_RECORDS", "DELETE_RECORDS", "IsolationLevel", "ListedOffset", "OffsetSpec"]

DELETE_RECORDS: Final = 21
# Deletes all records that there are.
ALL_RECORDS: Final = -1


def delete_records(driver: AdminApiDriver, before: ByPartition[int]) -> Results[TopicPartition, int]:
    wanted = by_partition(before, "before", '{TopicPartition("orders", 0): 42}')
    timeout_ms = driver.timeout_ms

    async def delete(node: BrokerConnection, some: list[TopicPartition]) -> dict[TopicPartition, int | ProtocolError]:
        topics = [
            DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsPartition(partition_index=each, offset=wanted[TopicPartition(topic, each)])
                    for each in partitions
                ],
            )
            for topic, partitions in by_topic(sorted(some)).items()
        ]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)
        found: dict[TopicPartition, int | ProtocolError] = {}
        for topic in (await node.call(DELETE_RECORDS, request, DeleteRecordsResponse)).topics:
            for each in topic.partitions:
                place = TopicPartition(topic.name, each.partition_index)
                failed = each.error_code != NONE
                found[place] = broker_error(each.error_code, str(place)) if failed else each.low_watermark
        return found

    return driver.ask(wanted, PartitionLeaderStrategy(), delete)


def list_offsets(
    driver: AdminApiDriver,
    at: ByPartition[int],
    *,
    isolation: IsolationLevel,
) -> Results[TopicPartition, ListedOffset]:
    wanted = {
        each: int(spec)
        for each, spec in by_partition(at, "at", '{TopicPartition("orders", 0): OffsetSpec.LATEST}').items()
    }
    for place, spec in wanted.items():
        if spec < min(OffsetSpec):
            raise UserError(f"{place}: {spec} is neither a timestamp from 0 up nor an OffsetSpec")

    async def look_up(
        node: BrokerConnection, some: list[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset | ProtocolError]:
        _check_version(node, {wanted[each] for each in some})
        queries = {each: OffsetQuery(wanted[each]) for each in sorted(some)}
        return await lookups.list_offsets(node, queries, isolation, node.cluster.time_left_s())

    return driver.ask(wanted, PartitionLeaderStrategy(), look_up)


def _check_version(node: BrokerConnection, specs: Iterable[int]) -> None:
    version = node.version_for(LIST_OFFSETS)
    for spec in specs:
        if spec in SUPPORTED_SINCE and version < SUPPORTED_SINCE[OffsetSpec(spec)]:
            name = OffsetSpec(spec).name
            raise UnsupportedVersionError(f"the broker at {node.address} is too old to be asked for {name} offsets")
