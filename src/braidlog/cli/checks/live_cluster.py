"""A running cluster: can clients reach what it advertises, and is it set up to keep what it acknowledges."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from braidlog.cli.checks import cluster_brokers, lagging_replicas
from braidlog.cli.checks.cluster_brokers import check_clocks, check_ensemble, check_racks, check_reach, check_unread
from braidlog.cli.checks.data_directories import judge_disk
from braidlog.cli.checks.finding import OK, Finding, listing, ok, problem, warning
from braidlog.cli.checks.lagging_replicas import check_lagging, check_min_isr
from braidlog.cli.commands.configs import settings_of_topics
from braidlog.cli.watching.metrics_pages import HTTP_LISTEN, MetricsPage, MetricsPages, broker_settings
from braidlog.client.admin.admin import admin_over
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.cluster_view import NO_LEADER, TopicView
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import NONE, ProtocolError

_MIN_ISR: Final = "min.insync.replicas"
_UNCLEAN: Final = "unclean.leader.election.enable"
_ZOOKEEPER: Final = "zookeeper.connect"
_ACKS_ALL: Final = "braidlog_acks_all_produces_total"
_BETWEEN_LOOKS_S: Final = 1.0


def check_cluster(cluster: ClusterConnection, metrics: Sequence[str] = ()) -> list[Finding]:
    """`metrics` are addresses of metrics pages, beside those that brokers tell of."""
    topics = cluster.metadata(None)
    findings = [ok("connection", f"cluster {cluster.cluster_id} answers at {cluster.address}")]
    advertised = check_advertised(cluster)
    findings += advertised.values()
    findings += check_partitions(topics)
    settings = _settings_of(cluster, topics)
    findings += check_min_isr(topics, {name: each.min_insync for name, each in settings.items()})
    reached = [broker_id for broker_id, each in advertised.items() if each.status == OK]
    together, pages = _check_together(cluster, topics, reached, metrics)
    findings += together
    findings += _check_log_dirs(cluster)
    own = [each for each in settings.values() if not each.is_internal]
    findings += check_safety(own, len(cluster.addresses), _with_acks_all(pages))
    return findings


def _check_together(
    cluster: ClusterConnection, topics: Sequence[TopicView], reached: Sequence[int], metrics: Sequence[str]
) -> tuple[list[Finding], Mapping[int, MetricsPage]]:
    """What brokers are to each other; of one that is alone nothing."""
    admin = admin_over(cluster).within(cluster.timeout_s)
    up = {each.broker_id: each for each in admin.describe_cluster().brokers}
    told = broker_settings(admin, reached, (HTTP_LISTEN, _ZOOKEEPER))
    findings = check_ensemble({broker_id: each.get(_ZOOKEEPER) for broker_id, each in told.items()})
    findings += check_racks(up.values(), topics)
    readers = MetricsPages(cluster.cluster_id, metrics, cluster.timeout_s)
    names = (*cluster_brokers.NAMES, *lagging_replicas.NAMES, _ACKS_ALL)
    pages = readers.read(admin, up, names, told)
    if len(up) > 1 or metrics:
        findings += check_unread(pages.unread)
    findings += check_reach(pages.read, up)
    findings += check_clocks(pages.read)
    lagging = lagging_replicas.lagging_replicas(topics)
    later = pages.read
    if any(each.broker in pages.read for each in lagging):
        # What their time goes into shows between two looks.
        time.sleep(_BETWEEN_LOOKS_S)
        later = readers.read(admin, up, names, told).read
    findings += check_lagging(topics, up, pages.read, later)
    return findings, pages.read


def _with_acks_all(pages: Mapping[int, MetricsPage]) -> frozenset[str]:
    """Topics that producers have written to with acks=all since the brokers started."""
    return frozenset(
        sample.labels["topic"] for page in pages.values() for sample in page.samples(_ACKS_ALL) if sample.value > 0
    )


# Advertised listeners


def check_advertised(cluster: ClusterConnection) -> dict[int, Finding]:
    """By broker. Every client is sent on to these addresses, whatever it first connected to."""
    findings: dict[int, Finding] = {}
    for broker_id, (host, port) in sorted(cluster.addresses.items()):
        message = f"broker {broker_id} tells clients to connect to {host}:{port}"
        advice = f"set advertised.listeners of broker {broker_id} to an address that clients reach, and start it again"
        findings[broker_id] = _check_address(cluster, host, port, message, advice)
    return findings


def _check_address(cluster: ClusterConnection, host: str, port: int, message: str, advice: str) -> Finding:
    name = "advertised listener"
    try:
        addresses = {str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError as reason:
        return problem(name, f"{message}, which cannot be looked up from here ({reason.strerror or reason})", advice)
    local_only = all(_is_loopback(address) for address in addresses)
    if local_only and not _is_loopback(cluster.peer):
        return problem(name, f"{message}, which on every other machine is that machine itself", advice)
    try:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        with ClusterConnection(address, cluster.timeout_s, cluster.settings) as there:
            there.metadata([])
            if there.cluster_id != cluster.cluster_id:
                return problem(name, f"{message}, where another cluster answers ({there.cluster_id})", advice)
    except UserError as reason:
        cause = _system_error(reason)
        if cause is not None:
            return problem(name, f"{message}, where nothing answers from here ({cause.strerror or cause})", advice)
        return problem(name, f"{message}, where something else answers ({reason})", advice)
    reach = "on this machine only" if local_only else "from here"
    return ok(name, f"{message}, which works {reach}")


def _system_error(reason: BaseException) -> OSError | None:
    """What the system said, if there was no answer at all."""
    cause: BaseException | None = reason
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    return cause


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


# Partitions and directories


def check_partitions(topics: Sequence[TopicView]) -> list[Finding]:
    leaderless: list[str] = []
    behind: list[str] = []
    count = 0
    for topic in topics:
        for partition in topic.partitions:
            count += 1
            name = f"{topic.name}-{partition.index}"
            if partition.leader == NO_LEADER:
                leaderless.append(name)
            elif len(partition.isr) < len(partition.replicas):
                behind.append(name)
    findings: list[Finding] = []
    if leaderless:
        findings.append(
            problem(
                "leaders",
                f"{len(leaderless)} of {count} partitions have no leader: {listing(leaderless)}",
                "start the brokers that hold them; `braidlog topics describe --unavailable` shows which",
            )
        )
    else:
        findings.append(ok("leaders", f"all {count} partitions have a leader"))
    if behind:
        findings.append(
            warning(
                "replicas",
                f"{len(behind)} of {count} partitions have replicas out of sync: {listing(behind)}",
                "see that their brokers run and keep up; `braidlog topics describe --under-replicated` shows which",
            )
        )
    return findings


def _check_log_dirs(cluster: ClusterConnection) -> list[Finding]:
    logs = admin_over(cluster)
    findings: list[Finding] = []
    for broker_id in cluster.broker_ids:
        try:
            found = logs.describe_log_dirs([broker_id], partitions=[])[broker_id]
        except (UserError, ProtocolError):
            # That the broker cannot be reached is reported by the check of what it advertises.
            continue
        for directory in found:
            where = f"broker {broker_id}: {directory.path}"
            if directory.error is not None:
                advice = "mend the disk and start the broker again; its log says what failed"
                findings.append(problem("data directory", f"{where} is offline", advice))
            elif directory.total_bytes and directory.usable_bytes is not None:
                findings.append(judge_disk(where, directory.total_bytes, directory.usable_bytes))
    return findings


# Settings that decide what survives


class TopicSafety(NamedTuple):
    name: str
    replicas: int
    min_insync: int
    unclean_election: bool
    is_internal: bool = False


def _settings_of(cluster: ClusterConnection, topics: Sequence[TopicView]) -> dict[str, TopicSafety]:
    known = {topic.name: topic for topic in topics if topic.partitions and topic.error_code == NONE}
    found: dict[str, TopicSafety] = {}
    for name, configs in settings_of_topics(cluster, sorted(known), (_MIN_ISR, _UNCLEAN)).items():
        values = {name: config.value for name, config in configs.items()}
        found[name] = TopicSafety(
            name,
            min(len(partition.replicas) for partition in known[name].partitions),
            int(values.get(_MIN_ISR) or 1),
            values.get(_UNCLEAN) == "true",
            known[name].is_internal,
        )
    return found


def check_safety(topics: Sequence[TopicSafety], brokers: int, acks_all: Collection[str] = ()) -> list[Finding]:
    """`acks_all` are topics of which is known that producers use it."""
    name = "replication"
    findings: list[Finding] = []
    wishful = [topic.name for topic in topics if topic.replicas < topic.min_insync]
    if wishful:
        findings.append(
            warning(
                name,
                f"fewer replicas than {_MIN_ISR}, so that acks=all means fewer copies than it says: {listing(wishful)}",
                f"lower {_MIN_ISR} with `braidlog configs alter`, or give the topics more replicas",
            )
        )
    brittle = [topic.name for topic in topics if topic.replicas == topic.min_insync > 1]
    if brittle:
        findings.append(
            warning(
                name,
                f"as many replicas as {_MIN_ISR}, so that one broker down refuses acks=all: {listing(brittle)}",
                f"have one replica more than {_MIN_ISR}",
            )
        )
    if brokers > 1:
        findings += _check_copies(topics, acks_all)
    elif not findings:
        findings.append(ok(name, "one broker: every record has one copy, and acks=all means that one"))
    unclean = [topic.name for topic in topics if topic.unclean_election]
    if unclean:
        findings.append(
            warning(
                "unclean election",
                f"a replica that lags may become leader and drop acknowledged records: {listing(unclean)}",
                f"set {_UNCLEAN}=false unless being up matters more than the records",
            )
        )
    else:
        findings.append(ok("unclean election", "off: only replicas in sync become leaders"))
    return findings


def _check_copies(topics: Sequence[TopicSafety], acks_all: Collection[str]) -> list[Finding]:
    """What only a cluster of several brokers can do better."""
    name = "replication"
    findings: list[Finding] = []
    single = [topic.name for topic in topics if topic.replicas == 1]
    if single:
        findings.append(
            warning(
                name,
                f"only one copy of {listing(single)}",
                "create topics with --replication-factor 3, so that a broker can fail",
            )
        )
    loose = [topic.name for topic in topics if topic.replicas > 1 and topic.min_insync == 1]
    if loose:
        used = [each for each in loose if each in acks_all]
        seen = f"; producers use acks=all with {listing(used)}" if used else ""
        findings.append(
            warning(
                name,
                f"with {_MIN_ISR}=1 acks=all is content with the leader alone: {listing(loose)}{seen}",
                f"set {_MIN_ISR}=2 where acknowledged records must survive a broker",
            )
        )
    if not findings:
        findings.append(ok(name, f"every topic has more replicas than {_MIN_ISR}, which is above 1"))
    return findings
