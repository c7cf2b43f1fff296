"""What happens to a cluster: brokers are stopped, killed and paused past their session, and the controller killed.

After each fault the brokers that are left agree on it within a stated time, and all of them once it is over.
"""

from __future__ import annotations

from typing import Final

from braidlog.testing import Cluster, ClusterBroker
from support.cluster import View, agreed_view

# How soon all brokers know of a change, on a machine that is busy with other tests; a death takes the session, too.
KNOWN_WITHIN_S: Final = 60.0


def session_s(cluster: Cluster) -> float:
    return int(cluster.brokers[0].settings["zookeeper.session.timeout.ms"]) / 1000


def whole(cluster: Cluster, topic: str, partitions: int, within_s: float = KNOWN_WITHIN_S) -> View:
    """What all brokers say once they know each other and lead all partitions."""

    def led(view: View) -> bool:
        leaders = view.leaders.get(topic, ())
        return len(view.brokers) == len(cluster.brokers) and len(leaders) == partitions and min(leaders) >= 0

    return agreed_view(cluster.brokers, led, within_s)


def controller_of(cluster: Cluster) -> ClusterBroker:
    view = agreed_view(cluster.brokers, lambda view: view.controller >= 0, KNOWN_WITHIN_S)
    return cluster.brokers[view.controller]


def others(cluster: Cluster, broker: ClusterBroker) -> list[ClusterBroker]:
    return [each for each in cluster.brokers if each is not broker]


def missed(cluster: Cluster, broker: ClusterBroker) -> View:
    """What the others say once they go on without a broker."""
    return agreed_view(
        others(cluster, broker),
        lambda view: broker.id not in view.brokers and view.controller not in (-1, broker.id),
        session_s(cluster) + KNOWN_WITHIN_S,
    )


def live_through_faults(cluster: Cluster, topic: str, partitions: int, controllers: int = 1) -> None:
    """One of each kind, on different brokers, then so many controllers killed one after the other."""
    first, second, third = cluster.brokers
    first.stop()
    missed(cluster, first)
    first.start()
    whole(cluster, topic, partitions)

    second.kill()
    missed(cluster, second)
    second.start()
    whole(cluster, topic, partitions)

    third.pause()
    missed(cluster, third)
    third.resume()
    whole(cluster, topic, partitions, session_s(cluster) + KNOWN_WITHIN_S)

    for _ in range(controllers):
        controller = controller_of(cluster)
        controller.kill()
        missed(cluster, controller)
        controller.start()
        whole(cluster, topic, partitions)
