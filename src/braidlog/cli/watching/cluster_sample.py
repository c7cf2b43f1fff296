"""What a cluster does between two looks at it: rates of brokers and topics, lag of groups, replicas out of sync.

Brokers, partitions and groups are asked over the Kafka protocol, as any cluster can be. Bytes and requests stand on the
metrics pages of brokers; where one is not read, the records that brokers take are counted by the ends of logs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from braidlog.cli.replica_states import OFFLINE, UNDER_REPLICATED, broker_rows, partition_rows
from braidlog.cli.watching.metrics_pages import MetricsPage, MetricsPages
from braidlog.client.admin.admin import Admin
from braidlog.client.admin.cluster_description import BrokerDescription, ClusterDescription
from braidlog.client.admin.records import ListedOffset, OffsetSpec
from braidlog.client.admin.topics import TopicDescription
from braidlog.core.types import TopicPartition

_TOPICS: Final = "kafka_server_brokertopicmetrics_"
BYTES_IN: Final = _TOPICS + "bytesin_total"
BYTES_OUT: Final = _TOPICS + "bytesout_total"
RECORDS_IN: Final = _TOPICS + "messagesin_total"
REPLICATED_IN: Final = _TOPICS + "replicationbytesin_total"
REQUESTS: Final = "kafka_network_requestmetrics_requests_total"
IDLE: Final = "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent"
UNDER_MIN_ISR: Final = "kafka_server_replicamanager_underminisrpartitioncount"
MEMORY: Final = "process_resident_memory_bytes"
_BEHIND_RECORDS: Final = "braidlog_replica_behind_records"
_BEHIND_SECONDS: Final = "braidlog_replica_behind_seconds"
_NAMES: Final = (
    BYTES_IN, BYTES_OUT, RECORDS_IN, REPLICATED_IN, REQUESTS, IDLE, UNDER_MIN_ISR, MEMORY, _BEHIND_RECORDS,
    _BEHIND_SECONDS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GroupLag:
    group: str
    state: str
    # Offsets between what is committed and the ends of partitions; None where nothing is committed.
    lag: int | None


@dataclass(frozen=True, slots=True)
class ClusterSample:
    at_s: float
    cluster: ClusterDescription
    topics: tuple[TopicDescription, ...]
    pages: Mapping[int, MetricsPage]
    # Why the page of a broker was not read.
    unread: Mapping[int, str]
    # The ends of logs, of what groups read and where pages are lacking.
    ends: Mapping[TopicPartition, int]
    groups: tuple[GroupLag, ...]

    @property
    def brokers(self) -> dict[int, BrokerDescription]:
        return {each.broker_id: each for each in self.cluster.brokers}


class ClusterSampler:
    def __init__(self, admin: Admin, pages: MetricsPages, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._pages = pages
        self._clock = clock

    def take(self) -> ClusterSample:
        """Raises BraidlogError or ProtocolError where the cluster does not answer."""
        admin = self._admin
        cluster = admin.describe_cluster()
        topics = tuple(admin.describe_topics().succeeded.values())
        pages = self._pages.read(admin, {each.broker_id: each for each in cluster.brokers}, _NAMES)
        listed = admin.list_groups()
        committed = admin.list_group_offsets([each.group_id for each in listed]).succeeded if listed else {}
        wanted = {place for offsets in committed.values() for place in offsets}
        if pages.unread:
            wanted |= {TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions}
        led = {
            TopicPartition(topic.name, each.partition)
            for topic in topics
            for each in topic.partitions
            if each.leader is not None
        }
        at_s = self._clock()
        ends = {
            place: listed_offset.offset
            for place, listed_offset in (
                admin.list_offsets(dict.fromkeys(sorted(wanted & led), OffsetSpec.LATEST)).outcomes.items()
                if wanted & led
                else ()
            )
            if isinstance(listed_offset, ListedOffset)
        }
        groups = tuple(
            GroupLag(
                each.group_id,
                "-" if each.state is None else str(each.state.value),
                _lag({place: kept.offset for place, kept in committed.get(each.group_id, {}).items()}, ends),
            )
            for each in listed
        )
        return ClusterSample(at_s, cluster, topics, pages.read, pages.unread, ends, groups)


def _lag(committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int | None:
    known = [max(0, ends[place] - offset) for place, offset in committed.items() if place in ends]
    return sum(known) if known else None


def report(before: ClusterSample, now: ClusterSample) -> dict[str, Any]:
    """What `braidlog top` shows and prints as JSON; None is what is not known."""
    up = now.brokers
    partitions = partition_rows(now.topics, up, {})
    states = [row["state"] for row in partitions]
    brokers = [
        {**row, "controller": row["broker"] == now.cluster.controller_id, **_broker_rates(row["broker"], before, now)}
        for row in broker_rows(partitions, up)
    ]
    under_min_isr = [page.total(UNDER_MIN_ISR) for page in now.pages.values()]
    return {
        "cluster_id": now.cluster.cluster_id,
        "controller": now.cluster.controller_id,
        "seconds": round(now.at_s - before.at_s, 3),
        "partitions": len(partitions),
        "offline": states.count(OFFLINE),
        "under_replicated": states.count(UNDER_REPLICATED),
        "under_min_isr": None if now.unread else int(sum(each or 0 for each in under_min_isr)),
        **{name: _sum(row[name] for row in brokers if row["address"] is not None) for name in _RATES},
        "brokers": brokers,
        "topics": _topic_rates(before, now),
        "groups": _group_lags(before, now),
        "not_in_sync": _not_in_sync(now),
        "unread_metrics": {str(broker): why for broker, why in sorted(now.unread.items())},
    }


_RATES: Final = ("bytes_in_per_second", "bytes_out_per_second", "records_in_per_second", "requests_per_second")


def _broker_rates(broker: int, before: ClusterSample, now: ClusterSample) -> dict[str, float | None]:
    earlier, page = before.pages.get(broker), now.pages.get(broker)
    records = page_rate(RECORDS_IN, earlier, page)
    return {
        "bytes_in_per_second": page_rate(BYTES_IN, earlier, page),
        "bytes_out_per_second": page_rate(BYTES_OUT, earlier, page),
        "replicated_in_per_second": page_rate(REPLICATED_IN, earlier, page),
        "records_in_per_second": _records_by_ends(broker, before, now) if records is None else records,
        "requests_per_second": page_rate(REQUESTS, earlier, page),
        "idle": None if page is None else page.total(IDLE),
        "memory_bytes": None if page is None else page.total(MEMORY),
    }


def page_rate(name: str, earlier: MetricsPage | None, page: MetricsPage | None, **labels: str) -> float | None:
    """A second, between two readings of a page; None also where the broker was started again between them."""
    if earlier is None or page is None:
        return None
    # A topic's counter is there from its first record on, others always.
    count = (page.total(name, **labels) or 0.0) - (earlier.total(name, **labels) or 0.0)
    elapsed = page.ended - earlier.ended
    return round(count / elapsed, 1) if count >= 0 and elapsed > 0 else None


def _records_by_ends(broker: int, before: ClusterSample, now: ClusterSample) -> float | None:
    """Of what the broker leads now."""
    elapsed = now.at_s - before.at_s
    grown = [
        max(0, now.ends[place] - before.ends[place])
        for topic in now.topics
        for each in topic.partitions
        if each.leader == broker
        and (place := TopicPartition(topic.name, each.partition)) in now.ends
        and place in before.ends
    ]
    return round(sum(grown) / elapsed, 1) if grown and elapsed > 0 else None


def _sum(values: Any) -> float | None:
    """None where one of them is not known: less than all is not the whole."""
    known = list(values)
    return None if not known or None in known else sum(known)


def _topic_rates(before: ClusterSample, now: ClusterSample) -> list[dict[str, Any]]:
    """Topics that records go to or come from, as far as pages tell; the busiest first."""
    rows: list[dict[str, Any]] = []
    for topic in now.topics:
        rates = {
            column: _sum_known(
                page_rate(name, before.pages.get(broker), page, topic=topic.name) for broker, page in now.pages.items()
            )
            for column, name in (
                ("bytes_in_per_second", BYTES_IN),
                ("bytes_out_per_second", BYTES_OUT),
                ("records_in_per_second", RECORDS_IN),
            )
        }
        if any(rates.values()):
            rows.append({"topic": topic.name, "partitions": len(topic.partitions), **rates})
    return sorted(rows, key=lambda row: -(row["bytes_in_per_second"] or 0) - (row["bytes_out_per_second"] or 0))


def _sum_known(values: Any) -> float | None:
    known = [each for each in values if each is not None]
    return sum(known) if known else None


def _group_lags(before: ClusterSample, now: ClusterSample) -> list[dict[str, Any]]:
    """The furthest behind first."""
    earlier = {each.group: each.lag for each in before.groups}
    elapsed = now.at_s - before.at_s
    rows: list[dict[str, Any]] = []
    for each in now.groups:
        then = earlier.get(each.group)
        change = None if then is None or each.lag is None or elapsed <= 0 else round((each.lag - then) / elapsed, 1)
        rows.append({"group": each.group, "state": each.state, "lag": each.lag, "lag_change_per_second": change})
    return sorted(rows, key=lambda row: (-(row["lag"] if row["lag"] is not None else -1), row["group"]))


def _not_in_sync(now: ClusterSample) -> list[dict[str, Any]]:
    """Replicas, with how far behind they are where their leader's page tells."""
    rows: list[dict[str, Any]] = []
    for topic in now.topics:
        for each in topic.partitions:
            page = now.pages.get(each.leader) if each.leader is not None else None
            for broker in each.replicas:
                if broker in each.in_sync and each.leader is not None:
                    continue
                labels = {"topic": topic.name, "partition": str(each.partition), "broker": str(broker)}
                rows.append(
                    {
                        "topic": topic.name,
                        "partition": each.partition,
                        "leader": each.leader,
                        "broker": broker,
                        "behind_records": None if page is None else page.total(_BEHIND_RECORDS, **labels),
                        "behind_seconds": None if page is None else page.total(_BEHIND_SECONDS, **labels),
                    }
                )
    return rows
