"""Settings that people write into a server.properties although Kafka 3.9 does not list them among its own.

Kafka's authorizer reads its settings by itself; quotas for every client were dropped with Kafka 3.0, in favour of those
that are set at run time, but a file that still has them relies on them.
"""

from __future__ import annotations

from typing import Final

from braidlog.config.definitions.quotas import UNLIMITED
from braidlog.config.log_settings import MAX_LONG
from braidlog.config.rules import at_least
from braidlog.config.setting import BOOLEAN, HIGH, LONG, MEDIUM, STRING, Setting

OBSOLETE: Final = "dropped with Kafka 3.0: set quotas of `<default>` client ids at run time"

SETTINGS: Final = (
    Setting("super.users", STRING, "", MEDIUM,
        doc="Users who may do everything whatever the ACLs say, as User:name, with semicolons between them.",
    ),
    Setting("allow.everyone.if.no.acl.found", BOOLEAN, False, MEDIUM,
        doc="Whether everybody may use what no ACL is about.",
    ),
    Setting("authorizer.zookeeper.url", STRING, None, MEDIUM,
        doc="ZooKeeper servers that hold the ACLs; has to be the same as zookeeper.connect.",
    ),
    Setting("quota.producer.default", LONG, MAX_LONG, HIGH, rule=at_least(1), no_effect=OBSOLETE, protects=UNLIMITED,
        doc="Obsolete: bytes per second that a client may produce, where nothing is said of it.",
    ),
    Setting("quota.consumer.default", LONG, MAX_LONG, HIGH, rule=at_least(1), no_effect=OBSOLETE, protects=UNLIMITED,
        doc="Obsolete: bytes per second that a client may consume, where nothing is said of it.",
    ),
)

# Names that an older Kafka had -> what to set instead.
FORMER: Final = {
    "host.name": "set listeners to PLAINTEXT://<host>:<port>",
    "port": "set listeners to PLAINTEXT://<host>:<port>",
    "advertised.host.name": "set advertised.listeners to PLAINTEXT://<host>:<port>",
    "advertised.port": "set advertised.listeners to PLAINTEXT://<host>:<port>",
    "log.cleanup.interval.mins": "set log.retention.check.interval.ms",
    "replica.lag.max.messages": "replica.lag.time.max.ms alone decides who is in sync",
    "replica.fetch.max.wait.ms": "set replica.fetch.wait.max.ms",
    "zookeeper.sync.time.ms": "remove it",
    "kafka.csv.metrics.reporter.enabled": "metrics are served as Prometheus text, see docs/METRICS.md",
    "kafka.csv.metrics.dir": "metrics are served as Prometheus text, see docs/METRICS.md",
}
