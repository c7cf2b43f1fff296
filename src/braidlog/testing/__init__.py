"""What tests are run with: a real broker for anybody's tests, and a simulated world for braidlog's own.

    with braidlog.testing.Broker() as broker:
        topic = broker.create_topic(partitions=3)
        ...  # any client, at broker.bootstrap_servers

    with braidlog.testing.Broker(tls=True, users={"alice": "secret"}) as broker:
        ...  # any client, with broker.client_settings("confluent-kafka", user="alice")

    with braidlog.testing.Cluster() as cluster:
        cluster.brokers[0].kill()

The pytest plugin (`braidlog.testing.plugin`) registers itself; nothing is imported here before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from braidlog.local_cluster.broker_process import BrokerFailed
    from braidlog.testing.cluster import Cluster, ClusterBroker
    from braidlog.testing.running_broker import Broker, Kind

__all__ = ["Broker", "BrokerFailed", "Cluster", "ClusterBroker", "Kind"]

# A type checker reads the imports above: to it, any other name is a mistake.
if not TYPE_CHECKING:
    _HOMES = {
        "Broker": "braidlog.testing.running_broker",
        "BrokerFailed": "braidlog.local_cluster.broker_process",
        "Cluster": "braidlog.testing.cluster",
        "ClusterBroker": "braidlog.testing.cluster",
        "Kind": "braidlog.testing.running_broker",
    }

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
