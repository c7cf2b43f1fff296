"""Clusters for tests as a user starts them, and what their brokers say of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.testing.cluster import CLUSTER_SETTINGS, Cluster
from braidlog.wire.generated.metadata import MetadataRequest, MetadataResponse
from support.eventually import eventually
from support.raw import ask

# Short, so that a death is noticed soon; two of the test ZooKeeper's ticks are the least that it grants.
SESSION_TIMEOUT_MS: Final = 3000
BASE_SETTINGS: Final = {**CLUSTER_SETTINGS, "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS)}


def start_cluster(
    zookeeper: ZooKeeper, directory: Path, count: int = 3, settings: Mapping[str, str] | None = None
) -> Cluster:
    """Of its own, beside the one that tests share; to be used in a `with`."""
    return Cluster(count, settings={**BASE_SETTINGS, **(settings or {})}, directory=directory, zookeeper=zookeeper)


class Reachable(Protocol):
    """A broker of any kind."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class View(NamedTuple):
    """The cluster as one broker describes it to clients."""

    brokers: frozenset[int]
    controller: int
    # Topic -> the leader of each partition.
    leaders: dict[str, tuple[int, ...]]


def view_of(broker: Reachable) -> View | None:
    """None where the broker does not answer."""
    try:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = ask(broker.port, "Metadata", 9, request, broker.host)
    except OSError:
        return None
    assert isinstance(answer, MetadataResponse)
    return View(
        frozenset(each.node_id for each in answer.brokers),
        answer.controller_id,
        {
            str(topic.name): tuple(each.leader_id for each in sorted(topic.partitions, key=lambda p: p.partition_index))
            for topic in answer.topics
        },
    )


def agreed_view(brokers: Iterable[Reachable], right: Callable[[View], bool], within_s: float) -> View:
    """What all these brokers say once they say the same, and that is right; fails after `within_s`."""
    asked = list(brokers)
    views: list[View | None] = []

    def agreed() -> bool:
        views[:] = [view_of(broker) for broker in asked]
        first = views[0]
        return first is not None and all(view == first for view in views) and right(first)

    try:
        eventually(agreed, within_s)
    except AssertionError:
        raise AssertionError(f"within {within_s} s the brokers do not agree on what is right: {views}") from None
    assert views[0] is not None
    return views[0]
