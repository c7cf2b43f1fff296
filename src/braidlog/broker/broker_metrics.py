"""The pages of the side port: /metrics for Prometheus, /healthz and /readyz for what restarts or routes.

The numbers of the metrics page are mostly read off their owners when the page is asked for.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final

from braidlog.broker.authorization.authorizer import AclAuthorizer, Authorizer
from braidlog.broker.cluster_metrics import cluster_metrics
from braidlog.broker.coordinators.coordinators import Coordinators
from braidlog.broker.quotas.client_quotas import ClientQuotas, QuotaSensor
from braidlog.cluster.quota_entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from braidlog.core.protocol_errors import name_of
from braidlog.core.time_slice import run_in_slices
from braidlog.core.version import VERSION as BRAIDLOG_VERSION
from braidlog.metrics import CONTENT_TYPE, MetricsRegistry
from braidlog.net.exchange import RequestTimes
from braidlog.net.http import Page
from braidlog.replication.topic_metrics import TopicMetrics
from braidlog.storage.log.unified_log import UnifiedLog

if TYPE_CHECKING:
    from braidlog.broker.authentication.sasl_authenticator import SaslListener
    from braidlog.broker.server import Server
    from braidlog.net.tls_socket import TlsAcceptor

# A stall is seen if it lasts longer than this, short of at most this much.
_LAG_EVERY_S: Final = 0.05
# `LoopLag.longest` covers between one and two of these.
_LAG_PERIOD_S: Final = 60.0

# Kafka's numbers.
_STARTING: Final = 1
_RUNNING: Final = 3
_STOPPING: Final = 6

_TOPIC_COUNTERS: Final[tuple[tuple[str, Callable[[TopicMetrics], float]], ...]] = (
    ("kafka_server_brokertopicmetrics_messagesin_total", lambda meter: meter.messages_in),
    ("kafka_server_brokertopicmetrics_bytesin_total", lambda meter: meter.bytes_in),
    ("kafka_server_brokertopicmetrics_bytesout_total", lambda meter: meter.bytes_out),
    ("kafka_server_brokertopicmetrics_totalproducerequests_total", lambda meter: meter.produces),
    ("kafka_server_brokertopicmetrics_totalfetchrequests_total", lambda meter: meter.fetches),
    ("kafka_server_brokertopicmetrics_failedproducerequests_total", lambda meter: meter.failed_produces),
    ("kafka_server_brokertopicmetrics_failedfetchrequests_total", lambda meter: meter.failed_fetches),
    ("kafka_server_brokertopicmetrics_producemessageconversions_total", lambda meter: meter.produce_conversions),
    ("kafka_server_brokertopicmetrics_fetchmessageconversions_total", lambda meter: meter.fetch_conversions),
    ("braidlog_acks_all_produces_total", lambda meter: meter.acks_all_produces),
)

_LOG_GAUGES: Final[tuple[tuple[str, Callable[[UnifiedLog], float]], ...]] = (
    ("kafka_log_log_size", lambda log: log.size),
    ("kafka_log_log_numlogsegments", lambda log: len(log.segments)),
    ("kafka_log_log_logstartoffset", lambda log: log.log_start_offset),
    ("kafka_log_log_logendoffset", lambda log: log.log_end_offset),
    ("kafka_cluster_partition_laststableoffsetlag", lambda log: log.high_watermark - log.last_stable_offset),
)

_LOGIN_COUNTERS: Final[tuple[tuple[str, Callable[[SaslListener | TlsAcceptor], float]], ...]] = (
    ("successful_authentication", lambda listener: listener.succeeded),
    ("failed_authentication", lambda listener: listener.failed),
    ("successful_reauthentication", lambda listener: listener.reauthenticated),
    ("failed_reauthentication", lambda listener: listener.failed_reauthentications),
)

Samples = Iterator[tuple[tuple[str, ...], float]]


def http_pages(server: Server) -> dict[str, Callable[[], Awaitable[Page]]]:
    metrics = broker_metrics(server)

    async def metrics_page() -> Page:
        return Page(200, await run_in_slices(metrics.text_in_slices()), CONTENT_TYPE)

    return {
        "/metrics": metrics_page,
        "/healthz": lambda: _health(server),
        "/readyz": lambda: _readiness(server),
    }


async def _readiness(server: Server) -> Page:
    """Without a session the broker goes on serving, unless it is to refuse what it alone would acknowledge."""
    broker = server.broker
    if not broker.ready:
        return Page(503, "not ready\n")
    if broker.has_session():
        return Page(200, "ready\n")
    refuses = broker.produce.has_session is not None
    return Page(503 if refuses else 200, "no ZooKeeper session: serving what this broker leads, changing nothing\n")


async def _health(server: Server) -> Page:
    """Alive; a failed data directory is worth saying, but restarting would not mend it."""
    failed = [directory for directory in server.broker.logs.directories if not directory.is_online]
    if not failed:
        return Page(200, "ok\n")
    message = "".join(f"data directory {directory.path} is offline: {directory.failure}\n" for directory in failed)
    return Page(200, "ok, but degraded\n" + message)


def broker_metrics(server: Server) -> MetricsRegistry:
    """Every metric of a broker that has started."""
    registry = server.broker.metrics
    _topics(registry, server)
    _requests(registry, server)
    _connections(registry, server)
    _authorizer(registry, server.broker.authorizer)
    _quotas(registry, server.broker.client_quotas)
    cluster_metrics(registry, server.broker)
    _logs(registry, server)
    _coordinators(registry, server.broker.coordinators)
    _process(registry, server)
    return registry


def _topics(registry: MetricsRegistry, server: Server) -> None:
    meters = server.broker.replica_manager.meters
    for name, read in _TOPIC_COUNTERS:

        def samples(read: Callable[[TopicMetrics], float] = read) -> Samples:
            for topic, meter in meters.items():
                yield (topic,), read(meter)

        registry.read_each(name, samples)


def _requests(registry: MetricsRegistry, server: Server) -> None:
    dispatch = server.broker.dispatch
    clock = server.environment.clock
    total = registry.histograms("kafka_network_requestmetrics_totaltimems")
    local = registry.histograms("kafka_network_requestmetrics_localtimems")
    remote = registry.histograms("kafka_network_requestmetrics_remotetimems")
    for route in dispatch.routes.values():
        route.times = RequestTimes(clock, total.of(route.name), local.of(route.name), remote.of(route.name))

    def requests() -> Samples:
        for route in dispatch.routes.values():
            yield (route.name,), route.requests

    def errors() -> Samples:
        for (request, code), count in dispatch.errors.items():
            yield (request, name_of(code)), count

    registry.read_each("kafka_network_requestmetrics_requests_total", requests)
    registry.read_each("kafka_network_requestmetrics_errors_total", errors)
    registry.read(
        "kafka_network_requestchannel_requestqueuesize", lambda: sum(listener.busy() for listener in server.listeners)
    )


def _authorizer(registry: MetricsRegistry, authorizer: Authorizer) -> None:
    if isinstance(authorizer, AclAuthorizer):
        name = "kafka_server_authorizer_metrics_authorization"
        registry.read(f"{name}_allowed_total", lambda: authorizer.allowed_count)
        registry.read(f"{name}_denied_total", lambda: authorizer.denied_count)
        registry.read("kafka_server_authorizer_metrics_acls_total_count", lambda: authorizer.rules.count)


def _connections(registry: MetricsRegistry, server: Server) -> None:
    def count() -> Samples:
        for listener in server.listeners:
            yield (listener.name,), listener.connections

    def created() -> Samples:
        for listener in server.listeners:
            yield (listener.name,), listener.accepted

    def closed() -> Samples:
        for listener in server.listeners:
            yield (listener.name,), listener.accepted - listener.connections

    registry.read_each("kafka_server_socket_server_metrics_connection_count", count)
    registry.read_each("kafka_server_socket_server_metrics_connection_creation_total", created)
    registry.read_each("kafka_server_socket_server_metrics_connection_close_total", closed)
    registry.read(
        "kafka_network_socketserver_expiredconnectionskilledcount",
        lambda: (
            sum(listener.closed_idle for listener in server.listeners)
            + sum(listener.expired for listener in server.sasl_listeners.values())
        ),
    )
    for name, read in _LOGIN_COUNTERS:

        def logins(read: Callable[[SaslListener | TlsAcceptor], float] = read) -> Samples:
            for listener in server.listeners:
                sasl = server.sasl_listeners.get(listener.name)
                if sasl is not None:
                    yield (listener.name,), read(sasl)
                elif listener.tls is not None:
                    yield (listener.name,), read(listener.tls)

        registry.read_each(f"kafka_server_socket_server_metrics_{name}_total", logins)
    registry.read_each(
        "braidlog_connections_refused_total",
        lambda: [(("limit",), server.quotas.refused), (("rate",), server.quotas.throttled)],
    )
    memory = server.broker.memory
    pools = {"requests": memory.requests, "conversions": memory.conversions}
    registry.read("kafka_network_socketserver_memorypoolused", lambda: memory.requests.used)
    registry.read(
        "kafka_network_socketserver_memorypoolavailable", lambda: max(0, memory.requests.limit - memory.requests.used)
    )
    registry.read_each(
        "braidlog_memory_used_bytes",
        lambda: [*(((name,), pool.used) for name, pool in pools.items()), (("answers",), memory.answers.used)],
    )
    registry.read_each(
        "braidlog_memory_limit_bytes",
        lambda: [*(((name,), pool.limit) for name, pool in pools.items()), (("answers",), memory.answers.limit)],
    )
    registry.read_each("braidlog_memory_waits_total", lambda: [((name,), pool.waits) for name, pool in pools.items()])
    registry.read("braidlog_unread_answers_connections_closed_total", lambda: memory.answers.closed)
    registry.read("braidlog_turns_waiting", lambda: server.broker.fair_queue.waiting)
    registry.read(
        "braidlog_malformed_requests_total", lambda: server.limits.malformed + server.broker.dispatch.malformed
    )


def _quotas(registry: MetricsRegistry, quotas: ClientQuotas) -> None:
    def used(key: str, read: Callable[[QuotaSensor], float]) -> Callable[[], Samples]:
        def samples() -> Samples:
            for sensor in quotas.last_used(key):
                yield (sensor.user, sensor.client_id), read(sensor)

        return samples

    def rate(sensor: QuotaSensor) -> float:
        return sensor.rate.per_second(quotas.now_ms())

    def tokens(sensor: QuotaSensor) -> float:
        assert sensor.bucket is not None
        return sensor.bucket.measure(quotas.now_ms())

    for kind, key, measured in (
        ("produce", PRODUCER_BYTE_RATE, "byte_rate"),
        ("fetch", CONSUMER_BYTE_RATE, "byte_rate"),
        ("request", REQUEST_PERCENTAGE, "request_time"),
        ("controllermutation", CONTROLLER_MUTATION_RATE, "mutation_rate"),
    ):
        registry.read_each(f"kafka_server_{kind}_{measured}", used(key, rate))
        throttled = used(key, lambda sensor: sensor.throttle_ms)
        registry.read_each(f"kafka_server_{kind}_throttle_time_ms_total", throttled)
    registry.read_each("kafka_server_controllermutation_tokens", used(CONTROLLER_MUTATION_RATE, tokens))
    registry.read("kafka_server_request_exempt_request_time", lambda: quotas.exempt.per_second(quotas.now_ms()))
    registry.read("braidlog_throttled_connections", lambda: quotas.throttled)
    registry.read("braidlog_quota_sensors", lambda: len(quotas.sensors))


def _logs(registry: MetricsRegistry, server: Server) -> None:
    broker = server.broker
    for name, read in _LOG_GAUGES:

        def samples(read: Callable[[UnifiedLog], float] = read) -> Samples:
            for partition in broker.registry.partitions():
                if partition.log is not None:
                    yield (partition.topic, str(partition.index)), read(partition.log)

        registry.read_each(name, samples)
    directories = broker.logs.directories
    registry.read(
        "kafka_log_logmanager_offlinelogdirectorycount",
        lambda: sum(1 for directory in directories if not directory.is_online),
    )
    registry.read_each(
        "kafka_log_logmanager_logdirectoryoffline",
        lambda: [((directory.path,), 0 if directory.is_online else 1) for directory in directories],
    )
    broker.committer.sync_times = registry.histogram("kafka_log_logflushstats_logflushtimems")
    cleaner = broker.cleaner

    def uncleanable() -> Samples:
        for directory in directories:
            logs = broker.logs.registry.logs_in(directory)
            yield (directory.path,), sum(1 for partition in cleaner.uncleanable if partition in logs)

    registry.read_each("kafka_log_logcleanermanager_uncleanable_partitions_count", uncleanable)


def _process(registry: MetricsRegistry, server: Server) -> None:
    broker = server.broker

    def state() -> int:
        if broker.is_stopping:
            return _STOPPING
        return _RUNNING if broker.ready else _STARTING

    registry.read("kafka_server_kafkaserver_brokerstate", state)
    registry.read("braidlog_time_seconds", lambda: server.environment.clock.wall_ms() / 1000)
    identity = (BRAIDLOG_VERSION, str(broker.broker_id), broker.cluster_id)
    registry.read_each("braidlog_info", lambda: [(identity, 1)])
    registry.read("braidlog_event_loop_lag_seconds", lambda: server.loop_lag.last)
    registry.read("braidlog_event_loop_lag_max_seconds", lambda: server.loop_lag.longest)
    registry.read("process_start_time_seconds", _start_time())
    registry.read("process_cpu_seconds_total", time.process_time)
    idle = Idle()
    # One thread serves sockets and requests alike: both of Kafka's idle shares are the same number here.
    registry.read("kafka_network_socketserver_networkprocessoravgidlepercent", idle.share)
    registry.read("kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent", lambda: idle.last)
    if os.path.exists("/proc/self/statm"):
        registry.read("process_resident_memory_bytes", _resident_bytes)
        registry.read("process_open_fds", lambda: len(os.listdir("/proc/self/fd")))
    try:
        import resource
    except ImportError:
        return
    registry.read("process_max_fds", lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0])


class LoopLag:
    """How long callbacks keep the event loop from everyone else, by how late a timer fires."""

    def __init__(self) -> None:
        # Of the last timer.
        self.last = 0.0
        self._now = 0.0
        self._before = 0.0
        self._until = 0.0

    @property
    def longest(self) -> float:
        """In the last minute at least, so that no scrape misses it."""
        return max(self._now, self._before)

    def note(self, now: float, lag: float) -> None:
        if now >= self._until:
            # What was noted longer ago than a whole period is forgotten.
            self._before = self._now if now < self._until + _LAG_PERIOD_S else 0.0
            self._now = 0.0
            self._until = now + _LAG_PERIOD_S
        self.last = max(0.0, lag)
        self._now = max(self._now, self.last)

    async def watch(self) -> None:
        while True:
            due = time.monotonic() + _LAG_EVERY_S
            await asyncio.sleep(_LAG_EVERY_S)
            now = time.monotonic()
            self.note(now, now - due)


class Idle:
    """Share of time without work between two looks at it, from the processor time that was used meanwhile."""

    def __init__(self) -> None:
        self._wall = time.monotonic()
        self._cpu = time.thread_time()
        self.last = 1.0

    def share(self) -> float:
        wall, cpu = time.monotonic(), time.thread_time()
        elapsed = wall - self._wall
        if elapsed > 0:
            self.last = min(1.0, max(0.0, 1.0 - (cpu - self._cpu) / elapsed))
        self._wall, self._cpu = wall, cpu
        return self.last


def _start_time() -> Callable[[], float]:
    started = time.time() - time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID)
    return lambda: started


def _resident_bytes() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _coordinators(registry: MetricsRegistry, coordinators: Coordinators) -> None:
    groups, transactions = coordinators.groups, coordinators.transactions

    def group_states() -> list[tuple[tuple[str, ...], float]]:
        counts = Counter(
            (group.kind, group.state_name()) for shard in groups.active_shards() for group in shard.groups.values()
        )
        return [(labels, count) for labels, count in sorted(counts.items())]

    def transaction_states() -> list[tuple[tuple[str, ...], float]]:
        counts = Counter(
            transaction.state.name
            for shard in transactions.active_shards()
            for transaction in shard.transactions.values()
        )
        return [((state,), count) for state, count in sorted(counts.items())]

    registry.read_each("kafka_coordinator_group_groupmetadatamanager_numgroups", group_states)
    registry.read(
        "kafka_coordinator_group_groupmetadatamanager_numoffsets",
        lambda: sum(shard.offsets.count for shard in groups.active_shards()),
    )
    registry.read_each("braidlog_transactional_ids", transaction_states)
    registry.read_each(
        "braidlog_coordinator_partitions_loading",
        lambda: [((each.topic,), len(each.loading_partitions())) for each in (groups, transactions)],
    )
