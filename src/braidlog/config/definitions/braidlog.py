"""Settings that Kafka does not have, and the few whose default differs from Kafka's."""

from __future__ import annotations

from typing import Final

from braidlog.config.rules import ADDRESS_OR_EMPTY, at_least, one_of
from braidlog.config.setting import BOOLEAN, LIST, LONG, LOW, MEDIUM, PASSWORD, STRING, Setting

SETTINGS: Final = (
    Setting("braidlog.http.listen", STRING, "127.0.0.1:9464", MEDIUM, rule=ADDRESS_OR_EMPTY,
        doc="Where /metrics, /healthz and /readyz are served, as host:port; empty switches them off.",
    ),
    Setting("braidlog.memory.max", LONG, 0, MEDIUM, rule=at_least(0),
        doc="Bytes that requests, records being decompressed or converted, and unread answers may take together; 0 "
        "means half of the machine's or the container's memory, at most 1 GiB.",
    ),
    Setting("braidlog.store.dir", STRING, None, LOW,
        doc="Where the embedded coordination store keeps its files; the first data directory where not set.",
    ),
    Setting("braidlog.store.socket", STRING, None, LOW,
        doc="Unix socket at which a process of this machine serves a coordination store to several brokers; "
        "a broker that is served in several workers has it set. In place of zookeeper.connect.",
    ),
    Setting("braidlog.host", STRING, None, LOW,
        doc="The machine of this broker, where several brokers share one: replicas of a partition are placed on "
        "different machines while there are any. In workers it is the machine's name unless set.",
    ),
    Setting("braidlog.inter.broker.requests.on.any.listener", BOOLEAN, False, LOW,
        doc="Take requests that only brokers send, such as StopReplica, on every listener as Kafka does, and not only "
        "on the one between brokers. On ZooKeeper only.",
    ),
    Setting("braidlog.session.loss", STRING, "serve", LOW, rule=one_of("serve", "refuse"),
        doc="What a broker without a ZooKeeper session does with records of acks=0 and 1: `serve` goes on, as Kafka "
        "does, `refuse` takes none until there is a session again.",
    ),
    Setting("braidlog.zookeeper.sasl.username", STRING, None, MEDIUM,
        doc="User for SASL DIGEST-MD5 towards ZooKeeper; with the password it stands for the section `Client` of the "
        "JAAS file that Kafka is given by `java.security.auth.login.config`.",
    ),
    Setting("braidlog.zookeeper.sasl.password", PASSWORD, None, MEDIUM,
        doc="Password of that user.",
    ),
    Setting("braidlog.allow.settings.without.effect", LIST, "", LOW,
        doc="Settings that may be there although they protect nothing yet, by name, or `*` for all; each is warned "
        "about at start.",
    ),
    Setting("braidlog.log.format", STRING, "text", LOW, rule=one_of("text", "json"),
        doc="How the broker's own log lines are written: `text` for people, `json` for collectors.",
    ),
    Setting("braidlog.log.level", STRING, "INFO", LOW,
        rule=one_of("DEBUG", "INFO", "WARNING", "ERROR", any_case=True),
        doc="Least severity of the broker's own log lines.",
    ),
)

# Key -> (Kafka's default, why ours differs).
DIFFERENCES: Final = {
    "group.coordinator.rebalance.protocols": (
        "classic",
        "the newer group protocol is complete here, so it need not be switched on first (as from Kafka 4.0 on)",
    ),
    "group.consumer.migration.policy": (
        "disabled",
        "a group moves to the newer protocol, and back, member by member, without a pause (as from Kafka 4.0 on)",
    ),
    "listeners": (
        "PLAINTEXT://:9092",
        "an unprotected broker listens on the loopback interface unless listeners says otherwise",
    ),
    "log.dir": (
        "/tmp/kafka-logs",
        "data that is meant to stay does not belong in a temporary directory, nor into that of a Kafka",
    ),
}
