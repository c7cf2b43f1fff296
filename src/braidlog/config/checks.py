"""Broker settings that do not go together; called once at start and before a change at run time."""

from __future__ import annotations

from braidlog.config.authorizer import authorizer_settings
from braidlog.config.broker import BrokerSettings
from braidlog.config.message_format import check_format
from braidlog.core.protocol_errors import InvalidConfigError

_CLEANER_MAP_FLOOR = 1 << 20


def check_broker(settings: BrokerSettings) -> None:
    """Raises InvalidConfigError that names both settings and what would be right."""
    _check_identity(settings)
    _check_log(settings)
    _check_network(settings)
    _check_replication(settings)
    _check_groups(settings)
    authorizer_settings(settings)


def _require(good: bool, problem: str) -> None:
    if not good:
        raise InvalidConfigError(problem)


def _check_identity(settings: BrokerSettings) -> None:
    broker_id, node_id = settings.get_int("broker.id"), settings.get_int("node.id")
    _require(
        broker_id == node_id,
        f"broker.id ({broker_id}) and node.id ({node_id}) are the same thing: set one of them, or both alike",
    )
    _require(broker_id >= -1, f"broker.id ({broker_id}) must be 0 or more")


def _check_log(settings: BrokerSettings) -> None:
    _require(settings.log_roll_ms >= 1, "log.roll.ms must be 1 or more")
    _require(settings.log_roll_jitter_ms >= 0, "log.roll.jitter.ms must be 0 or more")
    _require(settings.log_retention_ms != 0, "log.retention.ms must be 1 or more, or -1 to keep everything")
    directories = settings.log_dirs
    _require(bool(directories), "log.dirs (or log.dir) must name at least one data directory")
    doubled = sorted({directory for directory in directories if directories.count(directory) > 1})
    _require(not doubled, f"log.dirs names {', '.join(doubled)} twice")
    if settings.is_set("log.message.format.version") or settings.is_set("inter.broker.protocol.version"):
        problem = check_format(settings)
        _require(problem is None, problem or "")
    threads = settings.get_int("log.cleaner.threads")
    if settings.get_bool("log.cleaner.enable") and threads > 0:
        share = settings.get_int("log.cleaner.dedupe.buffer.size") // threads
        _require(
            share > _CLEANER_MAP_FLOOR,
            f"log.cleaner.dedupe.buffer.size leaves {share} bytes to each of log.cleaner.threads: "
            "more than 1 MiB is needed",
        )


def _check_network(settings: BrokerSettings) -> None:
    queued, largest = settings.get_int("queued.max.request.bytes"), settings.get_int("socket.request.max.bytes")
    _require(
        queued <= 0 or queued >= largest,
        f"queued.max.request.bytes ({queued}) must hold one request of socket.request.max.bytes ({largest})",
    )
    idle = settings.get_int("connections.max.idle.ms")
    delay = settings.get_int("connection.failed.authentication.delay.ms")
    _require(
        idle < 0 or delay < idle,
        f"connection.failed.authentication.delay.ms ({delay}) must be below connections.max.idle.ms ({idle})",
    )
    overrides = connection_overrides(settings.get_str("max.connections.per.ip.overrides"))
    _require(
        settings.get_int("max.connections.per.ip") > 0 or bool(overrides),
        "max.connections.per.ip of 0 allows no connections: name the allowed hosts in max.connections.per.ip.overrides",
    )


def connection_overrides(text: str) -> dict[str, int]:
    """max.connections.per.ip.overrides as host -> connections."""
    counts: dict[str, int] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = pair.rpartition(":")
        count = count.strip()
        # An int has no more digits; Python refuses to convert thousands of them.
        if not colon or not host or not count.isdecimal() or len(count) > 10:
            raise InvalidConfigError(f"max.connections.per.ip.overrides: {pair!r} is not of the form host:connections")
        counts[host.strip()] = int(count)
    return counts


def _check_replication(settings: BrokerSettings) -> None:
    wait = settings.get_int("replica.fetch.wait.max.ms")
    for ceiling in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        limit = settings.get_int(ceiling)
        _require(wait <= limit, f"replica.fetch.wait.max.ms ({wait}) must not be above {ceiling} ({limit})")


def _check_groups(settings: BrokerSettings) -> None:
    prefixes = ("group.consumer.", "group.share.", "group.coordinator.", "offsets.")
    if not any(key.startswith(prefixes) for key in settings.static):
        return  # the defaults are good, and reading them would load their tables
    acks = settings.get_int("offsets.commit.required.acks")
    copies = settings.get_int("offsets.topic.replication.factor")
    _require(-1 <= acks <= copies, f"offsets.commit.required.acks ({acks}) must lie between -1 and {copies}")
    codec = settings.get_int("offsets.topic.compression.codec")
    _require(0 <= codec <= 4, f"offsets.topic.compression.codec ({codec}) must be 0, 1, 2, 3 or 4")
    _require(
        "classic" in settings.get_list("group.coordinator.rebalance.protocols"),
        "group.coordinator.rebalance.protocols must include classic, which most clients speak",
    )
    _require(
        "share" not in settings.get_list("group.coordinator.rebalance.protocols"),
        "group.coordinator.rebalance.protocols cannot include share: braidlog has no share groups",
    )
    _require(
        bool(settings.get_list("group.consumer.assignors")),
        "group.consumer.assignors must name at least one: uniform, range",
    )
    for group in ("group.consumer.", "group.share."):
        for what in ("heartbeat.interval.ms", "session.timeout.ms"):
            low, value, high = (settings.get_int(f"{group}{bound}{what}") for bound in ("min.", "", "max."))
            _require(
                low <= value <= high,
                f"{group}{what} ({value}) must lie between {group}min.{what} ({low}) and {group}max.{what} ({high})",
            )
