"""Replicated topics of a cluster of our brokers and Kafka's, under traffic that the history checker judges."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

from confluent_kafka.admin import NewTopic

from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support import confluent
from support.cluster import View
from support.eventually import eventually
from support.mixed_cluster import Member
from support.raw import ask
from support.replica_logs import differing_compacted_replicas, differing_replicas
from support.replicated_traffic import PARTITIONS, Kind, Traffic

REPLICATED_SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # A leader misses a follower that is stuck before the controller does; one on a busy machine is not stuck.
    "replica.lag.time.max.ms": "8000",
    "zookeeper.session.timeout.ms": "15000",
    # Whoever leads after a fault goes on leading, so that the next fault meets whom it means to.
    "auto.leader.rebalance.enable": "false",
}
# So long after a fault all is as before, on a machine that is busy with other things.
WHOLE_WITHIN_S: Final = 120.0
GOES_ON_WITHIN_S: Final = 90.0
_numbers = itertools.count(1)


class Replica(Protocol):
    """A broker on loopback that copies partitions from others."""

    @property
    def id(self) -> int: ...

    @property
    def port(self) -> int: ...

    @property
    def data_dir(self) -> Path: ...


class Brokers(Protocol):
    """A cluster of brokers of either make."""

    @property
    def brokers(self) -> Sequence[Replica]: ...

    @property
    def running(self) -> Sequence[Replica]: ...

    @property
    def bootstrap_servers(self) -> str: ...

    def agreed(self) -> View: ...

    def logs(self) -> str: ...


class Replicated:
    """Topics with a writer of each kind of client, and how their replicas are."""

    def __init__(self, cluster: Brokers, kinds: Iterable[Kind], replicas: Sequence[Sequence[int]], min_isr: int):
        self.cluster = cluster
        self.replicas = replicas
        self.topics = {f"{kind.name}-{next(_numbers)}": kind for kind in kinds}
        new = [
            NewTopic(
                topic,
                len(replicas),
                replica_assignment=[list(each) for each in replicas],
                config={**kind.configs, "min.insync.replicas": str(min_isr)},
            )
            for topic, kind in self.topics.items()
        ]
        client = confluent.admin(cluster.bootstrap_servers)
        for created in client.create_topics(new).values():
            created.result(60)
        self.await_isrs()
        self.traffic = Traffic(cluster.bootstrap_servers, self.topics)

    def isrs(self, broker: Replica) -> list[set[int]]:
        """Of each partition, as this broker tells them; empty where it does not answer for all."""
        wanted = [MetadataRequestTopic(name=topic) for topic in self.topics]
        try:
            answer = ask(broker.port, "Metadata", 9, MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        except OSError:
            return []
        assert isinstance(answer, MetadataResponse)
        return [
            set(each.isr_nodes)
            for topic in answer.topics
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        ]

    def await_isrs(self, without: int | None = None) -> None:
        """Until all who run say that all replicas are in sync but this one."""
        wanted = [{each for each in replicas if each != without} for replicas in self.replicas] * len(self.topics)
        asked = [broker for broker in self.cluster.running if broker.id != without]
        seen: dict[int, list[set[int]]] = {}

        def right() -> bool:
            seen.update({broker.id: self.isrs(broker) for broker in asked})
            return all(each == wanted for each in seen.values())

        try:
            eventually(right, WHOLE_WITHIN_S)
        except AssertionError:
            raise AssertionError(f"in-sync replicas {seen}, not {wanted}\n{self.cluster.logs()}") from None

    def go_on(self) -> None:
        self.traffic.await_progress(GOES_ON_WITHIN_S)

    def end(self, broker: Member, kill: bool) -> None:
        """The others go on without it; a start comes after its session, whose node Kafka would stumble over."""
        if kill:
            broker.kill()
        else:
            broker.stop()
        self.cluster.agreed()

    def stick(self, broker: Member) -> None:
        """A follower is stuck until it has left every ISR, and catches up again."""
        with self.traffic.running():
            broker.pause()
            try:
                self.await_isrs(without=broker.id)
            finally:
                broker.resume()
            self.await_isrs()
            self.go_on()
        self.check()

    def check(self) -> None:
        """Nothing is lost, doubled or given up, and every replica holds the same bytes."""
        verdict = self.traffic.verdict()
        assert self.traffic.problems == []
        assert [str(finding) for finding in verdict.findings] == []
        assert verdict.gave_up == 0
        assert verdict.read > 0
        directories = {broker.id: broker.data_dir for broker in self.cluster.brokers}
        for compacted, differing in ((False, differing_replicas), (True, differing_compacted_replicas)):
            counts = {
                f"{topic}-{number}": len(self.replicas[number])
                for topic, kind in self.topics.items()
                if kind.rules.compacted == compacted
                for number in range(PARTITIONS)
            }
            assert differing(directories, counts) == []
