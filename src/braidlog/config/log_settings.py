"""The settings of one partition's log: every topic setting as a typed field, with Kafka 3.9's defaults.

Annotations are evaluated here (no `from __future__ import annotations`), and the value is a named tuple: a
dataclass of this many fields costs three milliseconds at every start, this a third of it.
"""

from typing import Final, NamedTuple

MAX_LONG: Final = 9223372036854775807
MAX_INT: Final = 2147483647

CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
COMPACT: Final = "compact"
DELETE: Final = "delete"
# The broker stores batches with the codec the producer chose.
PRODUCER_CODEC: Final = "producer"
# local.retention.* of -2 means "the same as retention.*".
SAME_AS_RETENTION: Final = -2


class LogSettings(NamedTuple):
    """The effective settings of a topic; field names are the setting's key with dots turned into underscores.

    A new instance (`settings._replace(retention_ms=1)`) takes the old one's place when a setting changes, so
    a reader that keeps a reference sees one consistent set.
    """

    cleanup_policy: tuple[str, ...] = (DELETE,)
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = PRODUCER_CODEC
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = MAX_LONG
    flush_ms: int = MAX_LONG
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = SAME_AS_RETENTION
    local_retention_ms: int = SAME_AS_RETENTION
    max_compaction_lag_ms: int = MAX_LONG
    max_message_bytes: int = 1_048_588
    message_downconversion_enable: bool = True
    message_format_version: str = "3.0-IV1"
    message_timestamp_after_max_ms: int = MAX_LONG
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_difference_max_ms: int = MAX_LONG
    message_timestamp_type: str = CREATE_TIME
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False

    @property
    def compacts(self) -> bool:
        return COMPACT in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return DELETE in self.cleanup_policy

    @property
    def uses_log_append_time(self) -> bool:
        return self.message_timestamp_type == LOG_APPEND_TIME

    def __repr__(self) -> str:
        changed = (
            f"{name}={getattr(self, name)!r}" for name in self._fields if getattr(self, name) != getattr(DEFAULTS, name)
        )
        return f"LogSettings({', '.join(changed)})"


DEFAULTS: Final = LogSettings()
