"""Contexts and clusters that the controller's tests start from."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, TypeVar

from braidlog.cluster import registration
from braidlog.cluster.control_requests import ControlRequest, ControlResponse
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.image import BrokerInfo, ClusterImage, ImageDelta, PartitionInfo, TopicImage
from braidlog.cluster.records import BrokerRecord
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.config.broker import BrokerSettings
from braidlog.controller.controller import Controller
from braidlog.controller.direct_writes import DirectWrites
from braidlog.controller.plan import ControllerContext
from braidlog.core.clock import ManualClock
from braidlog.core.types import BrokerId, Endpoint, LeaderEpoch
from support.memory_journal import MemoryJournalFiles

R = TypeVar("R")

EPOCH = 5
RECORD = BrokerRecord((Endpoint("PLAINTEXT", "h", 9092),), {"PLAINTEXT": "PLAINTEXT"})


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(each) for each in numbers)


def partition(
    leader: int, isr: tuple[int, ...], replicas: tuple[int, ...], epoch: int = 0, **more: Any
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


class RecordingChannel:
    """Takes every request; `before_answer` runs before each one is answered."""

    def __init__(self) -> None:
        self.requests: list[ControlRequest] = []
        self.before_answer: Callable[[ControlRequest], Awaitable[None]] | None = None
        self._sent = asyncio.Event()

    async def send(self, request: ControlRequest) -> ControlResponse:
        self.requests.append(request)
        self._sent.set()
        if self.before_answer is not None:
            await self.before_answer(request)
        return ControlResponse(0)

    async def reach(self) -> None:
        return None

    def when_broken(self, callback: Callable[[], None]) -> None:
        return None

    async def close(self) -> None:
        return None

    async def next_request(self) -> ControlRequest:
        await self._sent.wait()
        self._sent.clear()
        return self.requests[-1]

    def of(self, kind: type[R]) -> list[R]:
        return [request for request in self.requests if isinstance(request, kind)]


class OneBroker:
    """A registered broker with its controller on a store in memory."""

    def __init__(self, files: MemoryJournalFiles, clock: ManualClock) -> None:
        self.files = files
        self.store = EmbeddedStore.open(files, clock)
        self.session: EmbeddedSession = self.store.connect()
        self.channel = RecordingChannel()
        self.controller = Controller(self.session, BrokerId(1), lambda: BrokerSettings({}), clock, random.Random(1))
        self.writes = DirectWrites(
            lambda: self.session, lambda: self.controller.image, lambda: BrokerSettings({}), clock, random.Random(2)
        )

    async def start(self, *, bump_leader_epochs: bool = False) -> None:
        await registration.prepare_store(self.session)
        await registration.cluster_id(self.session)
        await registration.register(self.session, BrokerId(1), RECORD)
        await self.controller.start(lambda broker: self.channel, bump_leader_epochs=bump_leader_epochs)

    async def settled(self) -> None:
        """What others wrote has reached the controller, too."""
        await self.session.sync()
        await asyncio.sleep(0)
        await self.controller._require().settled()


@asynccontextmanager
async def one_broker(
    files: MemoryJournalFiles | None = None, clock: ManualClock | None = None
) -> AsyncIterator[OneBroker]:
    broker = OneBroker(files or MemoryJournalFiles(), clock or ManualClock())
    await broker.start()
    yield broker
    await broker.controller.stop()
    await broker.store.close()
