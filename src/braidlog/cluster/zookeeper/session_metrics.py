"""What is counted of the connection to ZooKeeper: every change of its state, under Kafka's names."""

from __future__ import annotations

from enum import StrEnum

from braidlog.metrics import MetricsRegistry


class SessionState(StrEnum):
    CONNECTING = "CONNECTING"
    CONNECTED = "CONNECTED"
    EXPIRED = "EXPIRED"
    AUTH_FAILED = "AUTH_FAILED"
    CLOSED = "CLOSED"


class SessionMetrics:
    """One for all successive sessions of a broker: a name can be registered once."""

    def __init__(self, registry: MetricsRegistry) -> None:
        prefix = "kafka_server_sessionexpirelistener_zookeeper"
        self.sync_connects = registry.counter(f"{prefix}syncconnects_total")
        self.disconnects = registry.counter(f"{prefix}disconnects_total")
        self.expires = registry.counter(f"{prefix}expires_total")
        self.auth_failures = registry.counter(f"{prefix}authfailures_total")
        self.sasl_authentications = registry.counter(f"{prefix}saslauthentications_total")
        self.request_latency_ms = registry.histogram("kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms")
        self.state = SessionState.CLOSED
        registry.read_each(
            "kafka_server_sessionexpirelistener_sessionstate",
            lambda: [((each.value,), float(each is self.state)) for each in SessionState],
        )
