"""What only a cluster has to count, under Kafka's names: in-sync replicas, followers, fetchers and the controller.

A partition that is led here has a line with the number of its replicas and of those in sync. Lines that tell of trouble
(under-replicated, a follower that is behind) are there only while the trouble is: thousands of zeros help nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from braidlog.controller.gauges import STATE_NAMES
from braidlog.metrics import MetricsRegistry
from braidlog.replication.partition import Partition
from braidlog.replication.progress import RemoteReplica, ReplicaProgress

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.interbroker.replica_fetcher import ReplicaFetcher
    from braidlog.broker.interbroker.replica_fetcher_manager import FetcherId, ReplicaFetcherManager

# Beyond the longest timeout: what its coordinator needs to notice and to abort.
_LATE_TRANSACTION_MS: Final = 5 * 60 * 1000
_REPLICA_MANAGER: Final = "kafka_server_replicamanager_"

Samples = Iterator[tuple[tuple[str, ...], float]]


def cluster_metrics(registry: MetricsRegistry, broker: Broker) -> None:
    """Add them to the page of a broker that has started."""
    _replica_manager(registry, broker)
    _each_partition(registry, broker)
    _followers(registry, broker)
    _fetchers(registry, broker)
    _waiting(registry, broker)
    _controller(registry, broker)


def _led(broker: Broker) -> Iterator[Partition]:
    for partition in broker.registry.partitions():
        if partition.leader == broker.broker_id:
            yield partition


def _min_isr(partition: Partition) -> int:
    return partition.min_isr(partition.log) if partition.log is not None else 1


def _is_under_replicated(partition: Partition) -> bool:
    return len(partition.isr) < len(partition.replicas)


def _is_under_min_isr(partition: Partition) -> bool:
    return len(partition.isr) < _min_isr(partition)


def _is_at_min_isr(partition: Partition) -> bool:
    return len(partition.isr) == _min_isr(partition)


def _replica_manager(registry: MetricsRegistry, broker: Broker) -> None:
    def count(name: str, wanted: Callable[[Partition], bool]) -> None:
        registry.read(_REPLICA_MANAGER + name, lambda: sum(1 for each in _led(broker) if wanted(each)))

    def has_late_transaction(partition: Partition) -> bool:
        longest_ms = broker.settings.current.get_int("transaction.max.timeout.ms") + _LATE_TRANSACTION_MS
        now_ms = broker.environment.clock.wall_ms()
        return partition.log is not None and partition.log.producer_state.has_late_transaction(now_ms, longest_ms)

    count("leadercount", lambda each: True)
    count("underreplicatedpartitions", _is_under_replicated)
    count("underminisrpartitioncount", _is_under_min_isr)
    count("atminisrpartitioncount", _is_at_min_isr)
    count("reassigningpartitions", lambda each: each.is_reassigning)
    count("partitionswithlatetransactionscount", has_late_transaction)
    registry.read(_REPLICA_MANAGER + "partitioncount", lambda: len(broker.registry))
    registry.read(
        _REPLICA_MANAGER + "offlinereplicacount",
        lambda: sum(1 for each in broker.registry.partitions() if each.log is None),
    )
    registry.read(
        _REPLICA_MANAGER + "produceridcount",
        lambda: sum(
            len(each.log.producer_state.producers) for each in broker.registry.partitions() if each.log is not None
        ),
    )
    replication = broker.replica_manager.replication_context
    registry.read(_REPLICA_MANAGER + "isrshrinks_total", lambda: replication.isr_shrinks)
    registry.read(_REPLICA_MANAGER + "isrexpands_total", lambda: replication.isr_expands)
    registry.read(_REPLICA_MANAGER + "failedisrupdates_total", lambda: replication.failed_isr_updates)
    topics = "kafka_server_brokertopicmetrics_"
    registry.read(topics + "replicationbytesin_total", lambda: replication.bytes_in)
    registry.read(topics + "replicationbytesout_total", lambda: replication.bytes_out)
    registry.read(topics + "reassignmentbytesin_total", lambda: replication.reassignment_bytes_in)
    registry.read(topics + "reassignmentbytesout_total", lambda: replication.reassignment_bytes_out)
    registry.read("kafka_server_leaderreplication_byte_rate", replication.leader_quota.byte_rate)
    registry.read("kafka_server_followerreplication_byte_rate", replication.follower_quota.byte_rate)
    registry.read("kafka_server_alterlogdirsreplication_byte_rate", broker.moves.quota.byte_rate)


def _each_partition(registry: MetricsRegistry, broker: Broker) -> None:
    prefix = "kafka_cluster_partition_"

    def numbers(name: str, read: Callable[[Partition], int]) -> None:
        registry.read_each(
            prefix + name, lambda: [((each.topic, str(each.index)), read(each)) for each in _led(broker)]
        )

    def troubles(name: str, has: Callable[[Partition], bool]) -> None:
        registry.read_each(
            prefix + name, lambda: [((each.topic, str(each.index)), 1) for each in _led(broker) if has(each)]
        )

    numbers("replicascount", lambda each: len(each.replicas))
    numbers("insyncreplicascount", lambda each: len(each.isr))
    troubles("underreplicated", _is_under_replicated)
    troubles("underminisr", _is_under_min_isr)
    # Of a partition with one replica that is always so, and no trouble.
    troubles("atminisr", lambda each: len(each.replicas) > 1 and _is_at_min_isr(each))


def _followers(registry: MetricsRegistry, broker: Broker) -> None:
    """Replicas that are not in sync, as the leader sees them."""
    clock = broker.environment.clock

    def samples(read: Callable[[Partition, ReplicaProgress, RemoteReplica], float | None]) -> Callable[[], Samples]:
        def each() -> Samples:
            for partition in _led(broker):
                progress = partition.progress
                if progress is None or not _is_under_replicated(partition):
                    continue
                for replica in progress.remotes.values():
                    if replica.broker_id in partition.isr:
                        continue
                    value = read(partition, progress, replica)
                    if value is not None:
                        yield (partition.topic, str(partition.index), str(replica.broker_id)), value

        return each

    def behind(partition: Partition, progress: ReplicaProgress, replica: RemoteReplica) -> float | None:
        """None of one that has not fetched in this leader epoch."""
        if partition.log is None or replica.log_end_offset < 0:
            return None
        return max(0, partition.log.log_end_offset - replica.log_end_offset)

    def silent(partition: Partition, progress: ReplicaProgress, replica: RemoteReplica) -> float:
        return clock.monotonic() - max(replica.fetched_s, progress.began_s)

    registry.read_each("braidlog_replica_behind_records", samples(behind))
    registry.read_each(
        "braidlog_replica_behind_seconds",
        samples(lambda partition, progress, replica: progress.behind_s(replica, clock.monotonic())),
    )
    registry.read_each("braidlog_replica_silent_seconds", samples(silent))


def _fetchers(registry: MetricsRegistry, broker: Broker) -> None:
    """A broker that is alone has none."""
    fetchers: ReplicaFetcherManager | None = broker.replica_fetcher_manager
    prefix = "kafka_server_replicafetchermanager_"
    registry.read(prefix + "maxlag", lambda: fetchers.max_lag if fetchers else 0)
    registry.read(prefix + "minfetchrate", lambda: fetchers.min_fetch_rate() if fetchers else 0)
    registry.read(prefix + "failedpartitionscount", lambda: fetchers.failed_partitions if fetchers else 0)
    registry.read(prefix + "deadthreadcount", lambda: fetchers.dead_fetchers if fetchers else 0)
    if fetchers is None:
        return
    known = fetchers.fetchers
    clock = broker.environment.clock

    def lags() -> Samples:
        for at, fetcher in known.items():
            name = _fetcher_name(at)
            for state in fetcher.partitions:
                yield (name, state.key.topic, str(state.key.partition)), state.lag

    registry.read_each("kafka_server_fetcherlagmetrics_consumerlag", lags)

    def each(name: str, read: Callable[[ReplicaFetcher], float]) -> None:
        registry.read_each(
            name, lambda: [((_fetcher_name(at), str(at.leader)), read(fetcher)) for at, fetcher in known.items()]
        )

    each("kafka_server_fetcherstats_requests_total", lambda fetcher: fetcher.requests)
    each("kafka_server_fetcherstats_bytes_total", lambda fetcher: fetcher.bytes)
    each("braidlog_replica_fetcher_wait_seconds_total", lambda fetcher: fetcher.wait_s)
    each("braidlog_replica_fetcher_append_seconds_total", lambda fetcher: fetcher.append_s)

    def unreachable(fetcher: ReplicaFetcher) -> float:
        since = fetcher.unreachable_since
        return 0.0 if since is None else clock.monotonic() - since

    each("braidlog_replica_fetcher_unreachable_seconds", unreachable)


def _fetcher_name(at: FetcherId) -> str:
    """As Kafka calls its thread."""
    return f"ReplicaFetcherThread-{at.number}-{at.leader}"


def _waiting(registry: MetricsRegistry, broker: Broker) -> None:
    """What waits for an event or its deadline: Kafka's purgatories."""
    groups = broker.coordinators.groups

    def sizes() -> Samples:
        partitions = list(broker.registry.partitions())
        yield ("Fetch",), broker.fetch.waiting
        yield ("Produce",), broker.committer.waiting + sum(len(each.waits) for each in partitions)
        yield ("DeleteRecords",), sum(each.waiting_deletions for each in partitions)
        yield (
            ("Rebalance",),
            sum(
                group.state_name() == "PreparingRebalance"
                for shard in groups.active_shards()
                for group in shard.groups.values()
            ),
        )

    registry.read_each("kafka_server_delayedoperationpurgatory_purgatorysize", sizes)
    fetch, replication = broker.fetch, broker.replica_manager.replication_context
    registry.read_each(
        "kafka_server_delayedfetchmetrics_expires_total",
        lambda: [(("follower",), fetch.expired_followers), (("consumer",), fetch.expired_consumers)],
    )
    registry.read("kafka_server_delayedproducemetrics_expires_total", lambda: replication.expired_produces)
    sessions = broker.sessions
    registry.read("kafka_server_fetchsessioncache_numincrementalfetchsessions", lambda: len(sessions))
    registry.read("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", lambda: sessions.partitions)
    registry.read("kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total", lambda: sessions.evicted)


def _controller(registry: MetricsRegistry, broker: Broker) -> None:
    controller = broker.controller
    gauges = controller.gauges
    prefix = "kafka_controller_kafkacontroller_"
    registry.read(prefix + "activecontrollercount", lambda: gauges.active_controller_count)
    registry.read(prefix + "activebrokercount", lambda: gauges.active_broker_count)
    registry.read(prefix + "offlinepartitionscount", lambda: gauges.offline_partitions_count)
    registry.read(prefix + "preferredreplicaimbalancecount", lambda: gauges.preferred_replica_imbalance_count)
    registry.read(prefix + "globaltopiccount", lambda: gauges.global_topic_count)
    registry.read(prefix + "globalpartitioncount", lambda: gauges.global_partition_count)
    registry.read(prefix + "controllerstate", lambda: gauges.controller_state)
    registry.read(prefix + "topicstodeletecount", lambda: gauges.topics_to_delete_count)
    registry.read(prefix + "topicsineligibletodeletecount", lambda: gauges.topics_ineligible_to_delete_count)
    registry.read(prefix + "replicastodeletecount", lambda: gauges.replicas_to_delete_count)
    registry.read(prefix + "replicasineligibletodeletecount", lambda: gauges.replicas_ineligible_to_delete_count)
    stats = controller.stats
    registry.read("kafka_controller_controllerstats_uncleanleaderelections_total", lambda: stats.unclean_elections)
    registry.read("braidlog_leader_elections_total", lambda: stats.elections)
    times = registry.histograms("kafka_controller_controllerstats_timems")
    for state, name in STATE_NAMES.items():
        times.use(stats.times[state], name)
    registry.histograms("kafka_controller_controllereventmanager_eventqueuetimems").use(stats.queue_times)
    registry.read("kafka_controller_controllereventmanager_eventqueuesize", lambda: controller.waiting_events)
    channels = "kafka_controller_controllerchannelmanager_"
    registry.read(channels + "totalqueuesize", lambda: sum(controller.waiting_requests.values()))
    registry.read_each(
        channels + "queuesize", lambda: [((str(each),), size) for each, size in controller.waiting_requests.items()]
    )
    registry.read_each(
        "braidlog_controller_unreachable_seconds",
        lambda: [((str(each),), seconds) for each, seconds in controller.unreachable_s.items()],
    )
