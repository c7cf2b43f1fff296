"""The windows over which quotas are measured, and the throttles that exist only as dynamic settings."""

from __future__ import annotations

from typing import Final

from braidlog.config.log_settings import MAX_LONG
from braidlog.config.rules import at_least
from braidlog.config.setting import CLASS, INT, LONG, LOW, MEDIUM, PER_BROKER, Setting

JAVA: Final = "Java classes cannot be loaded"
UNLIMITED: Final = "no client is slowed down"

SETTINGS: Final = (
    Setting("quota.window.num", INT, 11, LOW, rule=at_least(1),
        doc="Samples kept for client quotas.",
    ),
    Setting("quota.window.size.seconds", INT, 1, LOW, rule=at_least(1),
        doc="Length of one sample of the client quotas.",
    ),
    Setting("replication.quota.window.num", INT, 11, LOW, rule=at_least(1),
        doc="Samples kept for replication throttles.",
    ),
    Setting("replication.quota.window.size.seconds", INT, 1, LOW, rule=at_least(1),
        doc="Length of one sample of the replication throttles; what was not copied in one sample may be made up for.",
    ),
    Setting("alter.log.dirs.replication.quota.window.num", INT, 11, LOW, rule=at_least(1),
        doc="Samples kept for the throttle of moves between directories.",
    ),
    Setting("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, LOW, rule=at_least(1),
        doc="Length of one sample of that throttle; what was not copied in one sample may be made up for.",
    ),
    Setting("controller.quota.window.num", INT, 11, LOW, rule=at_least(1),
        doc="Samples kept for the quota of topic and partition changes.",
    ),
    Setting("controller.quota.window.size.seconds", INT, 1, LOW, rule=at_least(1),
        doc="Length of one sample of the quota of topic and partition changes.",
    ),
    Setting("client.quota.callback.class", CLASS, None, LOW, no_effect=JAVA, protects=UNLIMITED,
        doc="Class that decides about client quotas.",
    ),
)

# Never read from a file: they are set while replicas are being moved, and removed afterwards (KIP-73, KIP-113).
DYNAMIC_ONLY: Final = (
    Setting("leader.replication.throttled.rate", LONG, MAX_LONG, MEDIUM, rule=at_least(0), mode=PER_BROKER,
        doc="Bytes per second that a broker's throttled leaders send to followers that are not in sync; 0 stops them.",
    ),
    Setting("follower.replication.throttled.rate", LONG, MAX_LONG, MEDIUM, rule=at_least(0), mode=PER_BROKER,
        doc="Bytes per second that a broker's throttled followers receive until they are in sync; 0 stops them.",
    ),
    Setting("replica.alter.log.dirs.io.max.bytes.per.second", LONG, MAX_LONG, MEDIUM, rule=at_least(0),
        mode=PER_BROKER,
        doc="Bytes per second used for moving replicas between a broker's data directories; 0 stops moves.",
    ),
)
