"""Settings of one topic; where a topic sets none, the broker setting named by `config.topic.SYNONYMS` counts."""

from __future__ import annotations

from typing import Final

from braidlog.config.log_settings import MAX_LONG
from braidlog.config.rules import (
    CLEANUP,
    COMPRESSION,
    GZIP_LEVEL,
    RELEASE,
    THROTTLED_REPLICAS,
    TIMESTAMP_TYPE,
    at_least,
    between,
)
from braidlog.config.setting import BOOLEAN, DOUBLE, INT, LIST, LONG, LOW, MEDIUM, STRING, Setting

TIERED: Final = "there is no tiered storage"

SETTINGS: Final = (
    Setting("cleanup.policy", LIST, "delete", MEDIUM, rule=CLEANUP,
        doc="What happens to old segments: `delete` drops them by age and size, `compact` keeps the last "
        "record of every key, both together do both.",
    ),
    Setting("compression.gzip.level", INT, -1, MEDIUM, rule=GZIP_LEVEL,
        doc="How hard gzip works when the broker has to recompress with it; -1 leaves it to the library.",
    ),
    Setting("compression.lz4.level", INT, 9, MEDIUM, rule=between(1, 17),
        doc="How hard lz4 works when the broker has to recompress with it.",
    ),
    Setting("compression.type", STRING, "producer", MEDIUM, rule=COMPRESSION,
        doc="The codec batches are stored with; `producer` keeps whatever the producer chose, so nothing "
        "is recompressed.",
    ),
    Setting("compression.zstd.level", INT, 3, MEDIUM, rule=between(-131_072, 22),
        doc="How hard zstd works when the broker has to recompress with it.",
    ),
    Setting("delete.retention.ms", LONG, 86_400_000, MEDIUM, rule=at_least(0),
        doc="How long compaction keeps a tombstone, so that a reader starting from the beginning still "
        "sees the deletion.",
    ),
    Setting("file.delete.delay.ms", LONG, 60000, MEDIUM, rule=at_least(0),
        doc="How long a removed segment stays on disk under a `.deleted` name before its bytes are freed.",
    ),
    Setting("flush.messages", LONG, MAX_LONG, MEDIUM, rule=at_least(1),
        doc="Sync the log to disk after this many records; the default leaves it to the operating system "
        "and to replication.",
    ),
    Setting("flush.ms", LONG, MAX_LONG, MEDIUM, rule=at_least(0),
        doc="Sync the log to disk when this long has passed since it was last synced, as often as "
        "log.flush.scheduler.interval.ms lets the broker look; the default leaves it to the operating system.",
    ),
    Setting("follower.replication.throttled.replicas", LIST, "", MEDIUM, rule=THROTTLED_REPLICAS,
        doc="Follower replicas held to the replication throttle, as partition:broker pairs, or `*` for all.",
    ),
    Setting("index.interval.bytes", INT, 4096, MEDIUM, rule=at_least(0),
        doc="Bytes of log between two entries of the offset index; fewer make look-ups shorter and the "
        "index larger.",
    ),
    Setting("leader.replication.throttled.replicas", LIST, "", MEDIUM, rule=THROTTLED_REPLICAS,
        doc="Leader replicas held to the replication throttle, as partition:broker pairs, or `*` for all.",
    ),
    Setting("local.retention.bytes", LONG, -2, MEDIUM, rule=at_least(-2), no_effect=TIERED,
        doc="Bytes of a tiered partition kept on local disk; -2 means the same as retention.bytes.",
    ),
    Setting("local.retention.ms", LONG, -2, MEDIUM, rule=at_least(-2), no_effect=TIERED,
        doc="Age up to which a tiered partition stays on local disk; -2 means the same as retention.ms.",
    ),
    Setting("max.compaction.lag.ms", LONG, MAX_LONG, MEDIUM, rule=at_least(1),
        doc="The longest a record may wait before compaction must consider it, however little is dirty.",
    ),
    Setting("max.message.bytes", INT, 1_048_588, MEDIUM, rule=at_least(0),
        doc="The largest record batch (compressed, with its header) that the topic takes.",
    ),
    Setting("message.downconversion.enable", BOOLEAN, True, LOW,
        doc="Whether old consumers are served by converting batches to their format; off means they get "
        "an error.",
    ),
    Setting("message.format.version", STRING, "3.0-IV1", MEDIUM, rule=RELEASE,
        doc="The release of Kafka in whose format records are stored: message sets v0 before 0.10, v1 before 0.11, "
        "else record batches. Counts only where inter.broker.protocol.version is before 3.0.",
    ),
    Setting("message.timestamp.after.max.ms", LONG, MAX_LONG, MEDIUM, rule=at_least(0),
        doc="How far in the future a producer's timestamp may lie before the record is refused.",
    ),
    Setting("message.timestamp.before.max.ms", LONG, MAX_LONG, MEDIUM, rule=at_least(0),
        doc="How far in the past a producer's timestamp may lie before the record is refused.",
    ),
    Setting("message.timestamp.difference.max.ms", LONG, MAX_LONG, MEDIUM, rule=at_least(0),
        doc="Obsolete: both bounds at once, used where message.timestamp.before.max.ms or .after.max.ms "
        "is not set.",
    ),
    Setting("message.timestamp.type", STRING, "CreateTime", MEDIUM, rule=TIMESTAMP_TYPE,
        doc="Whose time a record carries: `CreateTime` the producer's, `LogAppendTime` the broker's at "
        "the moment of the append.",
    ),
    Setting("min.cleanable.dirty.ratio", DOUBLE, 0.5, MEDIUM, rule=between(0, 1),
        doc="Share of a compacted log that must be uncleaned before a cleaning is worth it.",
    ),
    Setting("min.compaction.lag.ms", LONG, 0, MEDIUM, rule=at_least(0),
        doc="How long a record stays out of compaction's reach, so that readers this far behind see every "
        "update.",
    ),
    Setting("min.insync.replicas", INT, 1, MEDIUM, rule=at_least(1),
        doc="How many in-sync replicas must have a record before acks=all is answered; with fewer the "
        "produce is refused.",
    ),
    Setting("preallocate", BOOLEAN, False, MEDIUM,
        doc="Reserve room for a new segment's full size on disk when it is created; what is left of it is given "
        "back when the next one begins, and at a clean stop.",
    ),
    Setting("remote.log.copy.disable", BOOLEAN, False, MEDIUM, no_effect=TIERED,
        doc="Stop copying this topic's segments to tiered storage.",
    ),
    Setting("remote.log.delete.on.disable", BOOLEAN, False, MEDIUM, no_effect=TIERED,
        doc="Delete what was tiered once tiering is switched off for the topic.",
    ),
    Setting("remote.storage.enable", BOOLEAN, False, MEDIUM, no_effect=TIERED,
        doc="Keep old segments in tiered storage; refused when set to true.",
    ),
    Setting("retention.bytes", LONG, -1, MEDIUM,
        doc="Bytes a partition may hold before its oldest segments go; -1 sets no limit.",
    ),
    Setting("retention.ms", LONG, 604_800_000, MEDIUM, rule=at_least(-1),
        doc="Age at which a segment goes, by its newest record; -1 keeps everything.",
    ),
    Setting("segment.bytes", INT, 1_073_741_824, MEDIUM, rule=at_least(14),
        doc="Size at which the active segment is closed and the next begins; retention and compaction "
        "work on whole closed segments.",
    ),
    Setting("segment.index.bytes", INT, 10_485_760, MEDIUM, rule=at_least(4),
        doc="Largest size of a segment's offset index; a full index also closes the segment.",
    ),
    Setting("segment.jitter.ms", LONG, 0, MEDIUM, rule=at_least(0),
        doc="Up to this much, at random, is taken off segment.ms, so that many partitions do not roll at "
        "once.",
    ),
    Setting("segment.ms", LONG, 604_800_000, MEDIUM, rule=at_least(1),
        doc="Age at which the active segment is closed even if small, so that retention and compaction "
        "can reach it.",
    ),
    Setting("unclean.leader.election.enable", BOOLEAN, False, MEDIUM,
        doc="Whether a replica that was not in sync may become leader when no other is left, losing "
        "acknowledged records.",
    ),
)
