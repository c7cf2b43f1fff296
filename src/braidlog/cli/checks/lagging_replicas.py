"""Replicas that are not in sync: whose they are, by how much and since when they lag, and why.

leader's page     how many records a replica lacks, since when, and when it last fetched
follower's page   whether its fetcher reaches the leader; what its time goes into: waiting for the leader, or writing
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from braidlog.cli.checks.cluster_brokers import FETCHER_UNREACHABLE, duration
from braidlog.cli.checks.finding import Finding, listing, problem, warning
from braidlog.cli.watching.metrics_pages import MetricsPage
from braidlog.client.cluster_view import NO_LEADER, TopicView

_RECORDS: Final = "braidlog_replica_behind_records"
_SECONDS: Final = "braidlog_replica_behind_seconds"
_SILENT: Final = "braidlog_replica_silent_seconds"
_WAITED: Final = "braidlog_replica_fetcher_wait_seconds_total"
_WRITING: Final = "braidlog_replica_fetcher_append_seconds_total"
# What these checks look for on metrics pages.
NAMES: Final = (_RECORDS, _SECONDS, _SILENT, _WAITED, _WRITING, FETCHER_UNREACHABLE)

# Followers ask at least twice a second (replica.fetch.wait.max.ms).
_SILENT_S: Final = 10.0


class LaggingReplica(NamedTuple):
    topic: str
    partition: int
    broker: int
    leader: int

    @property
    def partition_name(self) -> str:
        return f"{self.topic}-{self.partition}"


class Lag(NamedTuple):
    """None where the leader does not tell."""

    records: float | None
    seconds: float | None
    silent_s: float | None

    def __str__(self) -> str:
        known = []
        if self.records is not None:
            known.append(f"{self.records:.0f} records")
        if self.seconds is not None:
            known.append(f"for {duration(self.seconds)}")
        return f" ({', '.join(known)})" if known else ""


class Cause(NamedTuple):
    text: str
    advice: str


def lagging_replicas(topics: Sequence[TopicView]) -> list[LaggingReplica]:
    return [
        LaggingReplica(topic.name, partition.index, broker, partition.leader)
        for topic in topics
        for partition in topic.partitions
        if partition.leader != NO_LEADER
        for broker in partition.replicas
        if broker not in partition.isr
    ]


def check_lagging(
    topics: Sequence[TopicView],
    up: Mapping[int, object],
    first: Mapping[int, MetricsPage],
    second: Mapping[int, MetricsPage],
) -> list[Finding]:
    """By broker and cause; the pages were read twice, some time apart, where there is anything to explain."""
    failed = {
        (topic.name, partition.index, broker)
        for topic in topics
        for partition in topic.partitions
        for broker in partition.offline
    }
    by_cause: dict[tuple[int, Cause], list[str]] = {}
    for replica in lagging_replicas(topics):
        lag = lag_of(replica, second)
        if replica.broker not in up:
            cause = Cause("it is down", "start it again; its log says why it ended")
        elif (replica.topic, replica.partition, replica.broker) in failed:
            cause = Cause("its data directory has failed", "mend the disk and start the broker again")
        else:
            cause = cause_of(replica, lag, first, second)
        by_cause.setdefault((replica.broker, cause), []).append(f"{replica.partition_name}{lag}")
    return [
        warning("lagging replicas", f"broker {broker} is behind with {listing(names)}: {cause.text}", cause.advice)
        for (broker, cause), names in sorted(by_cause.items())
    ]


def lag_of(replica: LaggingReplica, pages: Mapping[int, MetricsPage]) -> Lag:
    page = pages.get(replica.leader)
    if page is None:
        return Lag(None, None, None)
    labels = {"topic": replica.topic, "partition": str(replica.partition), "broker": str(replica.broker)}
    return Lag(page.total(_RECORDS, **labels), page.total(_SECONDS, **labels), page.total(_SILENT, **labels))


def cause_of(
    replica: LaggingReplica, lag: Lag, first: Mapping[int, MetricsPage], second: Mapping[int, MetricsPage]
) -> Cause:
    """Of a replica whose broker is up, and its directory as well."""
    leader = str(replica.leader)
    before, after = first.get(replica.broker), second.get(replica.broker)
    if after is None:
        return Cause(
            "why is not known, as its metrics page was not read", "see its log, and name its page with --metrics"
        )
    unreachable = after.total(FETCHER_UNREACHABLE, leader=leader)
    if unreachable:
        return Cause(
            f"it does not reach broker {leader}, its leader",
            f"see that it can connect to what broker {leader} advertises to brokers; its log says what fails",
        )
    if unreachable is None or (lag.silent_s is not None and lag.silent_s > _SILENT_S):
        return Cause(f"it does not fetch from broker {leader}, its leader", "see its log; it may have just started")
    waited, writing = _spent(_WAITED, leader, before, after), _spent(_WRITING, leader, before, after)
    if waited + writing <= 0:
        return Cause(f"its fetches from broker {leader} do not end", f"see whether broker {leader} answers at all")
    share = writing / (waited + writing)
    if share > 0.5:
        return Cause(
            f"it is slow to write what it fetches ({share:.0%} of its fetcher's time goes there): its disk, or its "
            "processor",
            "look at the disk (`iostat -x 1`) and the load of its machine, or give it fewer replicas",
        )
    return Cause(
        f"it waits for broker {leader} ({1 - share:.0%} of its fetcher's time goes there): the network, a throttle, or "
        "the leader's disk; or it is catching up",
        "look at the network of both; if the number of records does not fall, raise num.replica.fetchers or a throttle",
    )


def _spent(name: str, leader: str, before: MetricsPage | None, after: MetricsPage) -> float:
    """Between the two looks; since its start, where there is one look."""
    earlier = before.total(name, leader=leader) if before is not None else None
    return max(0.0, (after.total(name, leader=leader) or 0.0) - (earlier or 0.0))


def check_min_isr(topics: Sequence[TopicView], min_isr: Mapping[str, int]) -> list[Finding]:
    """Partitions that refuse acks=all now."""
    refusing = [
        f"{topic.name}-{partition.index}"
        for topic in topics
        for partition in topic.partitions
        if partition.leader != NO_LEADER
        and len(partition.isr) < min(min_isr.get(topic.name, 1), len(partition.replicas))
    ]
    if not refusing:
        return []
    return [
        problem(
            "replicas",
            f"fewer in sync than min.insync.replicas, so that acks=all is refused: {listing(refusing)}",
            "start the brokers of the other replicas; `braidlog topics describe --under-min-isr` shows which",
        )
    ]
