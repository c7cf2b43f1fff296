"""What a topic may set, and the settings that its logs work with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from braidlog.config import known
from braidlog.config.broker import BrokerSettings
from braidlog.config.log_settings import MAX_LONG, LogSettings
from braidlog.config.message_format import broker_format_version, topic_format_version
from braidlog.config.rules import Value
from braidlog.config.setting import Setting
from braidlog.core.protocol_errors import InvalidConfigError

# Topic setting -> the broker setting that counts where the topic says nothing; the others have a fixed default.
SYNONYMS: Final = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.downconversion.enable": "log.message.downconversion.enable",
    "message.format.version": "log.message.format.version",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.difference.max.ms": "log.message.timestamp.difference.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}


def broker_default(setting: Setting, broker: BrokerSettings) -> Value:
    """What the broker gives a topic that does not set this."""
    match setting.key:
        case "retention.ms":
            return broker.log_retention_ms
        case "segment.ms":
            return broker.log_roll_ms
        case "segment.jitter.ms":
            return broker.log_roll_jitter_ms
        case "flush.ms":
            return broker.log_flush_interval_ms
        case "message.format.version":
            return broker_format_version(broker)
        case key:
            return broker.get(SYNONYMS[key]) if key in SYNONYMS else setting.default


def validate_overrides(overrides: Mapping[str, str | None], broker: BrokerSettings) -> None:
    """Raises InvalidConfigError for an unknown key, a bad value, or values that do not go together."""
    effective(overrides, broker)


def effective(overrides: Mapping[str, str | None], broker: BrokerSettings) -> dict[str, Value]:
    """Every topic setting's typed value, checked."""
    settings = known.topic_settings()
    for key, text in overrides.items():
        if key not in settings:
            raise InvalidConfigError(_unknown(key))
        if text is None:
            raise InvalidConfigError(f"{key} was given without a value: leave it out to take the default")
    values = _broker_defaults(broker).copy()
    for key, text in overrides.items():
        values[key] = settings[key].parse(text)
    _check_together(values)
    return values


def _broker_defaults(broker: BrokerSettings) -> dict[str, Value]:
    """Worked out once per broker: a start with ten thousand topics asks ten thousand times, in several threads.

    So the table is put in place whole: a reader that finds it finds all of it.
    """
    if not broker.topic_defaults:
        broker.topic_defaults.update(
            {key: broker_default(setting, broker) for key, setting in known.topic_settings().items()}
        )
    return broker.topic_defaults


def log_settings(overrides: Mapping[str, str], broker: BrokerSettings) -> LogSettings:
    """What the logs of a topic with these overrides work with."""
    values = effective(overrides, broker)
    # The obsolete setting of both bounds counts where the newer ones are at their default (KIP-937).
    for bound in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        if values[bound] == MAX_LONG:
            values[bound] = values["message.timestamp.difference.max.ms"]
    values["message.format.version"] = topic_format_version(overrides.get("message.format.version"), broker)
    return LogSettings(**{key.replace(".", "_"): value for key, value in values.items()})  # type: ignore[arg-type]


def early_expiry(settings: LogSettings) -> str | None:
    """What is wrong where records may come that have outlived their retention already; none where nothing is."""
    retention, bound = settings.retention_ms, settings.message_timestamp_before_max_ms
    # Without a bound nothing says how old a record may be.
    if not settings.deletes or settings.uses_log_append_time or bound == MAX_LONG or not 0 <= retention < bound:
        return None
    return (
        f"retention.ms ({retention}) is below message.timestamp.before.max.ms ({bound}): records are accepted that are "
        "old enough to be deleted at once, and segments are closed early for them; raise the one or lower the other"
    )


def _check_together(values: Mapping[str, Value]) -> None:
    least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise InvalidConfigError(
            f"min.compaction.lag.ms ({least}) is above max.compaction.lag.ms ({most}): a record would have to be "
            "compacted before it may be"
        )
    for key in ("remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable"):
        if values[key]:
            raise InvalidConfigError(f"{key} cannot be true: braidlog has no tiered storage")


def _unknown(key: str) -> str:
    """Names the setting that was probably meant."""
    from difflib import get_close_matches

    topic_key = next((name for name, broker_key in SYNONYMS.items() if broker_key == key), None)
    if topic_key is not None:
        return f"Unknown topic config name: {key} (a broker setting; for a topic it is {topic_key})"
    close = get_close_matches(key, known.topic_settings(), n=1)
    return f"Unknown topic config name: {key}" + (f" (did you mean {close[0]}?)" if close else "")
