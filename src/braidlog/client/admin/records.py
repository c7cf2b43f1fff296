"""Records at the start of partitions, which can be deleted, and the offsets that partitions have."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from braidlog.client.admin.api_driver import AdminCalls
from braidlog.client.admin.broker_connection import BrokerConnection
from braidlog.client.admin.cluster_connection import LIST_OFFSETS
from braidlog.client.admin.lookup_strategies import PartitionLeaderStrategy, by_topic
from braidlog.client.admin.results import Results
from braidlog.client.arguments import ByPartition, by_partition
from braidlog.client.broker_errors import broker_error
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import NONE, ProtocolError, UnsupportedVersionError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

DELETE_RECORDS: Final = 21
# Deletes all records that there are.
ALL_RECORDS: Final = -1


class OffsetSpec(IntEnum):
    """Offsets that have a name; any number from 0 up is a timestamp in milliseconds instead."""

    LATEST = -1
    EARLIEST = -2
    # Of the record with the largest timestamp.
    MAX_TIMESTAMP = -3
    # With tiered storage: the first offset on the broker's own disk, and the last in the other tier.
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


# The first versions of ListOffsets that can be asked for each.
_SINCE: Final = {OffsetSpec.MAX_TIMESTAMP: 7, OffsetSpec.EARLIEST_LOCAL: 8, OffsetSpec.LATEST_TIERED: 9}


class IsolationLevel(IntEnum):
    READ_UNCOMMITTED = 0
    # The latest offset is then the last stable one: before the first open transaction.
    READ_COMMITTED = 1


class ListedOffset(NamedTuple):
    """An offset, -1 where no record has the timestamp or a later one; -1 also stands for what is not known."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class RecordCalls(AdminCalls):
    def delete_records(self, before: ByPartition[int]) -> Results[TopicPartition, int]:
        """Delete the records before an offset (`ALL_RECORDS`: all); by partition where it now starts."""
        wanted = by_partition(before, "before", '{TopicPartition("orders", 0): 42}')

        def delete(node: BrokerConnection, some: list[TopicPartition]) -> dict[TopicPartition, int | ProtocolError]:
            topics = [
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(partition_index=each, offset=wanted[TopicPartition(topic, each)])
                        for each in partitions
                    ],
                )
                for topic, partitions in by_topic(some).items()
            ]
            request = DeleteRecordsRequest(topics=topics, timeout_ms=self._driver.timeout_ms)
            found: dict[TopicPartition, int | ProtocolError] = {}
            for topic in node.call(DELETE_RECORDS, request, DeleteRecordsResponse).topics:
                for each in topic.partitions:
                    place = TopicPartition(topic.name, each.partition_index)
                    failed = each.error_code != NONE
                    found[place] = broker_error(each.error_code, str(place)) if failed else each.low_watermark
            return found

        return self._driver.ask(wanted, PartitionLeaderStrategy(), delete)

    def list_offsets(
        self,
        at: ByPartition[int],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> Results[TopicPartition, ListedOffset]:
        """By partition the offset at an `OffsetSpec`, or of the first record at or after a timestamp."""
        wanted = {
            each: int(spec)
            for each, spec in by_partition(at, "at", '{TopicPartition("orders", 0): OffsetSpec.LATEST}').items()
        }
        for place, spec in wanted.items():
            if spec < min(OffsetSpec):
                raise UserError(f"{place}: {spec} is neither a timestamp from 0 up nor an OffsetSpec")

        def look_up(
            node: BrokerConnection, some: list[TopicPartition]
        ) -> dict[TopicPartition, ListedOffset | ProtocolError]:
            _check_version(node, {wanted[each] for each in some})
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                topics=[
                    ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            ListOffsetsPartition(partition_index=each, timestamp=wanted[TopicPartition(topic, each)])
                            for each in partitions
                        ],
                    )
                    for topic, partitions in by_topic(some).items()
                ],
            )
            found: dict[TopicPartition, ListedOffset | ProtocolError] = {}
            for topic in node.call(LIST_OFFSETS, request, ListOffsetsResponse).topics:
                for each in topic.partitions:
                    place = TopicPartition(topic.name, each.partition_index)
                    found[place] = _listed(each, place)
            return found

        return self._driver.ask(wanted, PartitionLeaderStrategy(), look_up)


def _check_version(node: BrokerConnection, specs: Iterable[int]) -> None:
    version = node.version_for(LIST_OFFSETS)
    for spec in specs:
        if spec in _SINCE and version < _SINCE[OffsetSpec(spec)]:
            name = OffsetSpec(spec).name
            raise UnsupportedVersionError(f"the broker at {node.address} is too old to be asked for {name} offsets")


def _listed(answer: ListOffsetsPartitionResponse, place: TopicPartition) -> ListedOffset | ProtocolError:
    if answer.error_code != NONE:
        return broker_error(answer.error_code, str(place))
    if answer.old_style_offsets:
        # Version 0 answers with a list.
        return ListedOffset(answer.old_style_offsets[0], -1, -1)
    return ListedOffset(answer.offset, answer.timestamp, answer.leader_epoch)
