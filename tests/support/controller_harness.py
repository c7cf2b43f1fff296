"""Contexts and clusters that the controller's tests start from."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count

from braidlog.cluster import registration
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.image import BrokerInfo, ClusterImage, ImageDelta, PartitionInfo, TopicImage
from braidlog.cluster.records import BrokerRecord
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.config.broker import BrokerSettings
from braidlog.controller.controller import Controller
from braidlog.controller.plan import ControllerContext
from braidlog.core.clock import ManualClock
from braidlog.core.types import BrokerId, Endpoint, LeaderEpoch
from support.memory_journal import MemoryJournalFiles

EPOCH = 5
RECORD = BrokerRecord((Endpoint("PLAINTEXT", "h", 9092),), {"PLAINTEXT": "PLAINTEXT"})


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(each) for each in numbers)


def partition(
    leader: int, isr: tuple[int, ...], replicas: tuple[int, ...], epoch: int = 0, **more: tuple[BrokerId, ...]
) -> PartitionInfo:
    return PartitionInfo(
        BrokerId(leader), LeaderEpoch(epoch), ids(*isr), ids(*replicas), controller_epoch=1, partition_epoch=0, **more
    )


def topic(name: str, *partitions: PartitionInfo) -> TopicImage:
    return TopicImage(name, name.encode().ljust(16, b"-"), partitions or (partition(1, (1,), (1,)),))


def context(
    *topics: TopicImage,
    brokers: Mapping[int, str | None] | None = None,
    settings: Mapping[str, str] | None = None,
    configs: Mapping[str, Mapping[str, str]] | None = None,
) -> ControllerContext:
    known = {
        BrokerId(each): BrokerInfo(BrokerId(each), each, (), rack=rack)
        for each, rack in ({1: None} if brokers is None else brokers).items()
    }
    image = ClusterImage().apply(ImageDelta(topics_created=topics, brokers=known, configs_changed=configs or {}))
    numbers = count(1)
    return ControllerContext(
        image, EPOCH, BrokerSettings(settings or {}), random.Random(4), lambda: next(numbers).to_bytes(16, "big")
    )


class RecordingListener:
    def __init__(self) -> None:
        self.deltas: list[ImageDelta] = []
        self.image = ClusterImage()
        self._changed = asyncio.Event()

    async def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        self.deltas.append(delta)
        self.image = image
        self._changed.set()

    async def next_change(self) -> ImageDelta:
        await self._changed.wait()
        self._changed.clear()
        return self.deltas[-1]


class OneBroker:
    """A registered broker with its controller on a store in memory."""

    def __init__(self, files: MemoryJournalFiles, clock: ManualClock) -> None:
        self.files = files
        self.store = EmbeddedStore.open(files, clock)
        self.session: EmbeddedSession = self.store.connect()
        self.listener = RecordingListener()
        self.controller = Controller(self.session, BrokerId(1), lambda: BrokerSettings({}), clock, random.Random(1))
        self.controller.add_listener(self.listener)

    async def start(self, *, bump_leader_epochs: bool = False) -> None:
        await registration.prepare_store(self.session)
        await registration.cluster_id(self.session)
        await registration.register(self.session, BrokerId(1), RECORD)
        await self.controller.start(bump_leader_epochs=bump_leader_epochs)


@asynccontextmanager
async def one_broker(
    files: MemoryJournalFiles | None = None, clock: ManualClock | None = None
) -> AsyncIterator[OneBroker]:
    broker = OneBroker(files or MemoryJournalFiles(), clock or ManualClock())
    await broker.start()
    yield broker
    await broker.controller.stop()
    await broker.store.close()
