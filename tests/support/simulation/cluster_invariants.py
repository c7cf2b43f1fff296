"""What must hold in a cluster, beside what `store_history` looks at in every transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from braidlog.broker.broker import Broker
from braidlog.client import TopicPartition
from braidlog.cluster.image import ClusterImage
from braidlog.testing.simulated.cluster import SimulatedCluster
from support.simulation.invariants import InvariantBroken
from support.simulation.store_history import StoreHistory

STORED_FIRST: Final = "brokers know only what is stored"
UNIQUE_IDS: Final = "producer ids are unique"
CONVERGES: Final = "metadata converges"
NEVER_RETURN: Final = "deleted topics never return"
NOTHING_LOST: Final = "nothing acknowledged is lost"
ANSWERED_LATE: Final = "what is answered is stored"


class Acknowledged(NamedTuple):
    topic: str
    topic_id: bytes
    partition: int
    offset: int
    value: bytes


class ClusterHistory:
    def __init__(self, store: StoreHistory) -> None:
        self.store = store
        self.producer_ids: dict[int, str] = {}
        self.acknowledged: list[Acknowledged] = []
        # Acknowledgements in all, also of topics that were deleted before they came.
        self.deliveries = 0

    def got_producer_id(self, producer_id: int, broker: str) -> None:
        other = self.producer_ids.get(producer_id)
        if other is not None:
            raise InvariantBroken(f"{UNIQUE_IDS}: {producer_id} was given by {other} and then by {broker}")
        self.producer_ids[producer_id] = broker

    def was_answered(self, happened: bool, what: str) -> None:
        if not happened:
            raise InvariantBroken(f"{ANSWERED_LATE}: {what} was answered, and is not in the store")


def leaders_are_known_to_the_store(cluster: SimulatedCluster, store: StoreHistory) -> None:
    """Of each broker's own partitions, after every step."""
    for broker in cluster.brokers:
        if not broker.is_up:
            continue
        parts = broker.parts
        for partition in parts.registry.partitions():
            key = (partition.topic_id, partition.index)
            where = f"{partition.topic}-{partition.index}"
            stored = store.leader_epochs.get(key, -1)
            if partition.leader_epoch > stored:
                raise InvariantBroken(
                    f"{STORED_FIRST}: {broker.name} has {where} in leader epoch {partition.leader_epoch}, "
                    f"the store has {stored}"
                )
            if partition.leader == parts.broker_id:
                store.led(where, (*key, partition.leader_epoch), partition.leader)
    store.check()


def difference(stored: ClusterImage, parts: Broker, store: StoreHistory) -> str | None:
    """How this broker's metadata and logs differ from the store; None if they do not."""
    image = parts.metadata_cache.image
    returned = [topic.name for topic in image.topics.values() if topic.topic_id in store.deleted]
    if returned:
        return f"{NEVER_RETURN}: {returned} are in the metadata still"
    for key in parts.logs.partitions:
        topic_id = parts.logs.topic_id(key)
        if any(
            (index, broker) == (key.partition, parts.broker_id) and topic_id in (None, left)
            for left, index, broker in store.left
        ):
            # Moved away, perhaps while this broker was down: then the log stays, as with Kafka on ZooKeeper. A power
            # cut may have taken the file that has its topic's id.
            continue
        if topic_id in store.deleted:
            return f"{NEVER_RETURN}: the log of {key} is there still"
        info = stored.partition(key)
        if info is None or parts.broker_id not in info.replicas:
            return f"{CONVERGES}: the log of {key} is here, the store knows of none"
    if image.controller_id != stored.controller_id:
        return f"{CONVERGES}: the controller is {stored.controller_id}, known is {image.controller_id}"
    if _addresses(image) != _addresses(stored):
        return f"{CONVERGES}: the brokers are {_addresses(stored)}, known are {_addresses(image)}"
    if (known := _topics(image)) != (there := _topics(stored)):
        different = sorted(dict(known.items() ^ there.items()))
        return f"{CONVERGES}: {different}: {[there.get(name) for name in different]}, known is " + str(
            [known.get(name) for name in different]
        )
    overrides, known_overrides = _overrides(stored), _overrides(image)
    # Those of no topic at all may be known or not: written while the topic went, they stay in the store, as with Kafka.
    needed = {entity: found for entity, found in overrides.items() if _is_there(entity, stored)}
    if not needed.items() <= known_overrides.items() <= overrides.items():
        return f"{CONVERGES}: the overrides are {overrides}, known are {known_overrides}"
    for topic in stored.topics.values():
        for index, info in enumerate(topic.partitions):
            held = parts.registry.get(topic.name, index)
            if info.leader == parts.broker_id and (held is None or held.log is None or held.topic_id != topic.topic_id):
                return f"{CONVERGES}: this broker leads {topic.name}-{index} and does not know"
    return None


def _addresses(image: ClusterImage) -> dict[int, str]:
    return {broker.id: str(broker.endpoints) for broker in image.brokers.values()}


def _topics(image: ClusterImage) -> dict[str, tuple[object, ...]]:
    return {
        topic.name: (
            topic.topic_id,
            *((info.leader, info.leader_epoch, info.isr, info.replicas) for info in topic.partitions),
        )
        for topic in image.topics.values()
    }


def _overrides(image: ClusterImage) -> dict[str, Mapping[str, str]]:
    return {entity: dict(found) for entity, found in image.configs.items() if found}


def _is_there(entity: str, stored: ClusterImage) -> bool:
    kind, _, name = entity.partition("/")
    return kind != "topics" or name in stored.topics


def nothing_acknowledged_is_lost(
    history: ClusterHistory, read: Mapping[TopicPartition, Mapping[int, bytes]], ids: Mapping[str, bytes]
) -> None:
    """`read` is what every partition holds by offset, `ids` are the topics there are."""
    values = {partition: frozenset(found.values()) for partition, found in read.items()}
    for each in history.acknowledged:
        partition = TopicPartition(each.topic, each.partition)
        if ids.get(each.topic) == each.topic_id:
            found = read.get(partition, {}).get(each.offset)
            if found != each.value:
                raise InvariantBroken(
                    f"{NOTHING_LOST}: {partition} had {each.value!r} acknowledged at {each.offset}, there is {found!r}"
                )
        elif each.value in values.get(partition, frozenset()):
            raise InvariantBroken(
                f"{NEVER_RETURN}: {partition} holds {each.value!r}, which was written to a deleted topic of that name"
            )


def first(found: Iterable[str | None]) -> str | None:
    return next((each for each in found if each is not None), None)
