"""Who the broker is, where it listens, and what a connection or a request may cost."""

from __future__ import annotations

from typing import Final

from braidlog.config.log_settings import MAX_INT
from braidlog.config.rules import SECURITY_PROTOCOL, at_least
from braidlog.config.setting import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LONG, LOW, MEDIUM, PER_BROKER, STRING, Setting

ONE_LOOP: Final = "one event loop serves every connection; add brokers to use more cores"
ONE_IN_WORK: Final = "each connection has one request in work and the next waits in its socket"
SETUP: Final = "connections between brokers have one setup timeout"
AUTHORIZER: Final = "the authorizer is ready before any listener opens"
RELEASES: Final = "every released version of every API is always on, unreleased ones never"
EVENTS: Final = "waiting requests complete by events and leave nothing to purge"
ONE_PLANE: Final = "controller and data requests share their listeners"
SHARED: Final = "the controller's requests would come in beside those of clients"

SETTINGS: Final = (
    Setting("broker.id", INT, -1, HIGH,
        doc="Number of this broker, unique in its cluster and written into its data directories.",
    ),
    Setting("broker.id.generation.enable", BOOLEAN, True, MEDIUM,
        doc="Let a broker without an id take one from the coordination store.",
    ),
    Setting("reserved.broker.max.id", INT, 1000, MEDIUM, rule=at_least(0),
        doc="Largest id that people may assign; generated ids start above it.",
    ),
    Setting("broker.rack", STRING, None, MEDIUM,
        doc="Where the broker stands, for spreading replicas over racks and for reading from the nearest.",
    ),
    Setting("listeners", STRING, "PLAINTEXT://127.0.0.1:9092", HIGH, mode=PER_BROKER,
        doc="Where the broker listens, as NAME://host:port, comma separated; an empty host means every "
        "interface.",
    ),
    Setting("advertised.listeners", STRING, None, HIGH, mode=PER_BROKER,
        doc="The addresses that clients connect to, where they differ from the listeners (behind NAT, in a "
        "container).",
    ),
    Setting("listener.security.protocol.map", STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", LOW, mode=PER_BROKER,
        doc="Which security protocol each listener name stands for, as NAME:PROTOCOL pairs.",
    ),
    Setting("control.plane.listener.name", STRING, None, HIGH, no_effect=ONE_PLANE, protects=SHARED,
        doc="Listener that only the controller uses.",
    ),
    Setting("inter.broker.listener.name", STRING, None, MEDIUM,
        doc="Listener over which brokers talk to each other; by default the one of "
        "security.inter.broker.protocol.",
    ),
    Setting("security.inter.broker.protocol", STRING, "PLAINTEXT", MEDIUM, rule=SECURITY_PROTOCOL,
        doc="Security protocol between brokers, where inter.broker.listener.name is not set.",
    ),
    Setting("early.start.listeners", STRING, None, HIGH, no_effect=AUTHORIZER,
        doc="Listeners that open before the authorizer is ready.",
    ),
    Setting("socket.send.buffer.bytes", INT, 102_400, HIGH,
        doc="Kernel send buffer of each connection; -1 leaves it to the system.",
    ),
    Setting("socket.receive.buffer.bytes", INT, 102_400, HIGH,
        doc="Kernel receive buffer of each connection; -1 leaves it to the system.",
    ),
    Setting("socket.request.max.bytes", INT, 104_857_600, HIGH, rule=at_least(1),
        doc="Largest request accepted; a longer one closes its connection.",
    ),
    Setting("socket.listen.backlog.size", INT, 50, MEDIUM, rule=at_least(1),
        doc="Connections that may wait to be accepted.",
    ),
    Setting("max.connections.per.ip", INT, MAX_INT, MEDIUM, rule=at_least(0), mode=CLUSTER_WIDE,
        doc="Connections allowed from one address; one more is closed at once.",
    ),
    Setting("max.connections.per.ip.overrides", STRING, "", MEDIUM, mode=CLUSTER_WIDE,
        doc="Exceptions from max.connections.per.ip, as host:count pairs.",
    ),
    Setting("max.connections", INT, MAX_INT, MEDIUM, rule=at_least(0), mode=CLUSTER_WIDE,
        doc="Connections allowed in all, or with the prefix `listener.name.<listener>.` on that listener; "
        "over it, accepting waits until others leave.",
    ),
    Setting("max.connection.creation.rate", INT, MAX_INT, MEDIUM, rule=at_least(0), mode=CLUSTER_WIDE,
        doc="Connections accepted per second in all, or with the prefix `listener.name.<listener>.` on that "
        "listener; those that come faster wait. 0 lets one in every second.",
    ),
    Setting("connections.max.idle.ms", LONG, 600_000, MEDIUM,
        doc="A connection without traffic for this long is closed; 0 or less keeps it for ever.",
    ),
    Setting("connection.failed.authentication.delay.ms", INT, 100, LOW, rule=at_least(0),
        doc="Pause before a client whose login failed is told so and its connection closed.",
    ),
    Setting("num.network.threads", INT, 3, HIGH, rule=at_least(1), mode=CLUSTER_WIDE, no_effect=ONE_LOOP,
        doc="Threads that read requests and write responses.",
    ),
    Setting("num.io.threads", INT, 8, HIGH, rule=at_least(1), mode=CLUSTER_WIDE, no_effect=ONE_LOOP,
        doc="Threads that process requests.",
    ),
    Setting("background.threads", INT, 10, HIGH, rule=at_least(1), mode=CLUSTER_WIDE, no_effect=ONE_LOOP,
        doc="Threads for background work.",
    ),
    Setting("queued.max.requests", INT, 500, HIGH, rule=at_least(1), no_effect=ONE_IN_WORK,
        doc="Requests that may wait for a thread before reading stops.",
    ),
    Setting("queued.max.request.bytes", LONG, -1, MEDIUM,
        doc="Bytes of requests in work before the next large one is received; -1 leaves it to braidlog.memory.max.",
    ),
    Setting("request.timeout.ms", INT, 30000, HIGH,
        doc="How long this broker waits for the controller and other brokers to answer, and for transaction markers "
        "to be committed.",
    ),
    Setting("socket.connection.setup.timeout.ms", LONG, 10000, MEDIUM,
        doc="How long the broker waits for an outgoing connection.",
    ),
    Setting("socket.connection.setup.timeout.max.ms", LONG, 30000, MEDIUM, no_effect=SETUP,
        doc="Longest wait for an outgoing connection after repeated failures.",
    ),
    Setting("fetch.max.bytes", INT, 57_671_680, MEDIUM, rule=at_least(1024),
        doc="Most bytes in one fetch response, whatever the consumer asks for; a first batch that is "
        "larger is still returned.",
    ),
    Setting("max.incremental.fetch.session.cache.slots", INT, 1000, MEDIUM, rule=at_least(0),
        doc="Fetch sessions remembered; consumers beyond it send full requests.",
    ),
    Setting("max.request.partition.size.limit", INT, 2000, MEDIUM, rule=at_least(1),
        doc="Most partitions described in one DescribeTopicPartitions response.",
    ),
    Setting("fetch.purgatory.purge.interval.requests", INT, 1000, MEDIUM, no_effect=EVENTS,
        doc="Completed fetches that may pile up before they are purged.",
    ),
    Setting("producer.purgatory.purge.interval.requests", INT, 1000, MEDIUM, no_effect=EVENTS,
        doc="Completed produces that may pile up before they are purged.",
    ),
    Setting("delete.records.purgatory.purge.interval.requests", INT, 1, MEDIUM, no_effect=EVENTS,
        doc="Completed record deletions that may pile up before they are purged.",
    ),
    Setting("delete.topic.enable", BOOLEAN, True, HIGH,
        doc="Whether topics can be deleted at all.",
    ),
    Setting("unstable.api.versions.enable", BOOLEAN, False, HIGH, internal=True, no_effect=RELEASES,
        doc="Offer API versions that are not released yet.",
    ),
    Setting("unstable.feature.versions.enable", BOOLEAN, False, HIGH, internal=True, no_effect=RELEASES,
        doc="Offer feature versions that are not released yet.",
    ),
)
