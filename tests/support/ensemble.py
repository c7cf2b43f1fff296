"""Three brokers of one cluster, each of them Apache Kafka's or ours, as is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from braidlog.testing.cluster import CLUSTER_SETTINGS
from braidlog.wire.generated.metadata import MetadataRequest, MetadataResponse
from support.eventually import eventually
from support.migrating_cluster import IDS, MigratingBroker, MigratingCluster
from support.mixed_replication import REPLICATED_SETTINGS
from support.raw import ask

# After a broker has come back every replica is in sync again within this, on a machine that is busy with other tests.
WHOLE_WITHIN_S: Final = 120.0


class Ensemble(MigratingCluster):
    """Brokers 1, 2 and 3, which start as these kinds."""

    def __init__(self, directory: Path, connect: str, kinds: Sequence[str], settings: Mapping[str, str]) -> None:
        super().__init__(directory, connect)
        self.set({**CLUSTER_SETTINGS, **REPLICATED_SETTINGS, **settings})
        for broker, kind in zip(self.brokers, kinds, strict=True):
            broker.kind = kind

    def hand_over_to(self, broker_id: int) -> None:
        """Restart controllers until this broker has taken over."""
        while (controller := self.controller()).id != broker_id:
            controller.stop()
            self.agreed()
            controller.start(controller.kind)
        self.await_whole()

    def await_whole(self) -> None:
        """Until all brokers say that every replica is in sync."""
        self.agreed(lambda view: len(view.brokers) == len(self.brokers))
        lacking: dict[int, list[str]] = {}

        def whole() -> bool:
            lacking.update({broker.id: _out_of_sync(broker) for broker in self.brokers})
            return not any(lacking.values())

        try:
            eventually(whole, WHOLE_WITHIN_S)
        except AssertionError:
            raise AssertionError(f"not in sync: {lacking}\n{self.logs()}") from None


def _out_of_sync(broker: MigratingBroker) -> list[str]:
    """The partitions whose replicas are not all in sync, as this broker tells."""
    try:
        answer = ask(broker.port, "Metadata", 9, MetadataRequest(topics=None, allow_auto_topic_creation=False))
    except OSError as problem:
        return [str(problem)]
    assert isinstance(answer, MetadataResponse)
    return [
        f"{topic.name}-{partition.partition_index} {partition.isr_nodes} of {partition.replica_nodes}"
        for topic in answer.topics
        for partition in topic.partitions
        if set(partition.isr_nodes) != set(partition.replica_nodes)
    ]


@contextmanager
def start_ensemble(
    directory: Path, connect: str, kinds: Sequence[str], settings: Mapping[str, str] | None = None
) -> Iterator[Ensemble]:
    """The last one comes first: it begins the cluster, and is its controller."""
    ensemble = Ensemble(directory, connect, kinds, settings or {})
    try:
        for broker in reversed(ensemble.brokers):
            broker.start(broker.kind)
        ensemble.agreed(lambda view: len(view.brokers) == len(IDS))
        yield ensemble
    finally:
        ensemble.end()
