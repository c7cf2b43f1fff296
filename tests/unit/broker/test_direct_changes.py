from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from braidlog.broker import direct_changes
from braidlog.broker.control_epochs import ControlEpochs
from braidlog.broker.direct_changes import DirectChanges
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.cluster.store import SessionExpiredError
from braidlog.controller.requests import NewTopic, NewTopicResult
from braidlog.core.protocol_errors import (
    InvalidReplicationFactorError,
    LeaderNotAvailableError,
    NotControllerError,
    TopicAlreadyExistsError,
)
from support.control_requests import led_by, update_metadata

ERRORS = {"there": TopicAlreadyExistsError(), "wide": InvalidReplicationFactorError()}


class Cluster:
    """Both ways to make topics: by the controller the cache has them at once, by the store in a while."""

    def __init__(self, *, active: bool, resigns: bool = False) -> None:
        self.active = active
        self._resigns = resigns
        self.cache = MetadataCache("cluster", ControlEpochs(lambda: 1))
        self.changes = DirectChanges(self, Store(self), self.cache)  # type: ignore[arg-type]
        self.asked: list[str] = []
        self.written = asyncio.Event()
        self.refuses: Exception | None = None

    async def create_topics(self, wanted: Sequence[NewTopic]) -> list[NewTopicResult]:
        self.asked.append("controller")
        if self._resigns:
            raise NotControllerError
        for each in wanted:
            await self.cache.update(update_metadata(each.name, {0: led_by(1)}))
        return [NewTopicResult(each.name) for each in wanted]

    async def create(self, *names: str) -> dict[str, int | None]:
        results = await self.changes.create_topics([NewTopic(name) for name in names])
        return {result.name: None if result.error is None else result.error.code for result in results}


class Store:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create_topics(self, wanted: Sequence[NewTopic]) -> list[NewTopicResult]:
        self._cluster.asked.append("store")
        self._cluster.written.set()
        if self._cluster.refuses is not None:
            raise self._cluster.refuses
        return [NewTopicResult(each.name, ERRORS.get(each.name)) for each in wanted]


async def test_the_controller_here_creates_topics_at_once() -> None:
    cluster = Cluster(active=True)
    assert await cluster.create("orders") == {"orders": None}
    assert cluster.asked == ["controller"]


async def test_elsewhere_their_leaders_are_awaited_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_changes, "_LONGEST_WAIT_S", 0.01)
    cluster = Cluster(active=False)
    assert await cluster.create("orders", "there", "wide") == {
        "orders": LeaderNotAvailableError.code,
        "there": LeaderNotAvailableError.code,
        "wide": InvalidReplicationFactorError.code,
    }
    assert cluster.asked == ["store"]


async def test_the_word_of_the_controller_ends_the_wait() -> None:
    cluster = Cluster(active=False)
    creating = asyncio.create_task(cluster.create("there"))
    await cluster.written.wait()
    await cluster.cache.update(update_metadata("there", {0: led_by(1)}))
    assert await creating == {"there": None}


async def test_a_controller_that_has_just_resigned_leaves_it_to_the_store() -> None:
    cluster = Cluster(active=True, resigns=True)
    cluster.refuses = SessionExpiredError("the session is over")
    assert await cluster.create("orders") == {"orders": LeaderNotAvailableError.code}
    assert cluster.asked == ["controller", "store"]
