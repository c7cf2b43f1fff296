"""Copies of partitions: how followers fetch, when they count as in sync, who leads."""

from __future__ import annotations

from typing import Final

from braidlog.config.rules import RELEASE, at_least, one_of
from braidlog.config.setting import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LONG, MEDIUM, STRING, Setting

KRAFT: Final = "belongs to KRaft controllers"
SELECTORS: Final = (
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "org.apache.kafka.common.replica.LeaderSelector",
)
KERNEL: Final = "the kernel sizes the buffers of connections between brokers"
MOVER: Final = "replicas move between directories in their executors"

SETTINGS: Final = (
    Setting("default.replication.factor", INT, 1, MEDIUM,
        doc="Copies of a topic that is created without a number.",
    ),
    Setting("replica.lag.time.max.ms", LONG, 30000, HIGH,
        doc="A follower that has not caught up for this long leaves the in-sync replicas.",
    ),
    Setting("replica.socket.timeout.ms", INT, 30000, HIGH,
        doc="How long a follower waits for its leader to answer.",
    ),
    Setting("replica.socket.receive.buffer.bytes", INT, 65536, HIGH, no_effect=KERNEL,
        doc="Kernel receive buffer of a follower's connection to its leader.",
    ),
    Setting("replica.fetch.max.bytes", INT, 1_048_576, MEDIUM, rule=at_least(0),
        doc="Bytes a follower asks for per partition; a larger first batch is still returned.",
    ),
    Setting("replica.fetch.wait.max.ms", INT, 500, HIGH,
        doc="How long a leader may hold a follower's fetch open while there is nothing new.",
    ),
    Setting("replica.fetch.backoff.ms", INT, 1000, MEDIUM, rule=at_least(0),
        doc="Pause after a failed fetch of a partition.",
    ),
    Setting("replica.fetch.min.bytes", INT, 1, HIGH,
        doc="Bytes a follower waits for before its fetch is answered.",
    ),
    Setting("replica.fetch.response.max.bytes", INT, 10_485_760, MEDIUM, rule=at_least(0),
        doc="Bytes a follower asks for in one response.",
    ),
    Setting("num.replica.fetchers", INT, 1, HIGH, mode=CLUSTER_WIDE,
        doc="Connections that fetch from each leader broker.",
    ),
    Setting("num.replica.alter.log.dirs.threads", INT, None, HIGH, no_effect=MOVER,
        doc="Threads that move replicas between data directories.",
    ),
    Setting("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, HIGH,
        doc="How often high watermarks are written to disk.",
    ),
    Setting("replica.selector.class", STRING, None, MEDIUM, rule=one_of(*SELECTORS),
        doc="Which replica a consumer reads from: one in its rack, or, if not set, the leader.",
    ),
    Setting("auto.leader.rebalance.enable", BOOLEAN, True, HIGH,
        doc="Give leadership back to preferred replicas on its own.",
    ),
    Setting("leader.imbalance.per.broker.percentage", INT, 10, HIGH,
        doc="Share of a broker's partitions led elsewhere above which leaders move back.",
    ),
    Setting("leader.imbalance.check.interval.seconds", LONG, 300, HIGH, rule=at_least(1),
        doc="How often the balance of leaders is looked at.",
    ),
    Setting("unclean.leader.election.enable", BOOLEAN, False, HIGH, mode=CLUSTER_WIDE,
        doc="Whether a replica that was not in sync may become leader when no other is left, where a "
        "topic does not say.",
    ),
    Setting("unclean.leader.election.interval.ms", LONG, 300_000, MEDIUM, rule=at_least(1), internal=True,
        no_effect=KRAFT,
        doc="How often leaderless partitions are tried for an unclean election.",
    ),
    Setting("inter.broker.protocol.version", STRING, "3.9-IV0", MEDIUM, rule=RELEASE,
        doc="Versions of requests that are sent to other brokers, at most: those of this release of Kafka. Older than "
        "2.8 counts as 2.8.",
    ),
    Setting("controlled.shutdown.enable", BOOLEAN, True, MEDIUM,
        doc="Move leaders to other brokers before stopping.",
    ),
    Setting("controlled.shutdown.max.retries", INT, 3, MEDIUM,
        doc="Attempts to move leaders away before stopping without it.",
    ),
    Setting("controlled.shutdown.retry.backoff.ms", LONG, 5000, MEDIUM,
        doc="Pause between two attempts to move leaders away.",
    ),
    Setting("controller.socket.timeout.ms", INT, 30000, MEDIUM,
        doc="How long the controller waits for a broker to answer.",
    ),
)
