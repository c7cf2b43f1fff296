from __future__ import annotations

import asyncio

import pytest

from braidlog.broker.coordinators.deleted_partitions import DeletedPartitions
from braidlog.cluster import paths
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.records import TopicRecord, encode_topic
from braidlog.cluster.registration import prepare_store
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.cluster.store import StoreConnectionError
from braidlog.core.clock import ManualClock
from braidlog.core.tasks import Tasks
from braidlog.core.types import TopicPartition
from support.memory_journal import MemoryJournalFiles


async def with_topic() -> EmbeddedSession:
    session = EmbeddedStore.open(MemoryJournalFiles(), ManualClock()).connect()
    await prepare_store(session)
    await session.create(paths.topic("t"), encode_topic(TopicRecord(bytes(range(16)), ((1,), (1,)))))
    return session


async def is_gone(session: EmbeddedSession, topic: str, index: int) -> bool:
    answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    DeletedPartitions(session, Tasks("test")).is_gone(TopicPartition(topic, index), answer.set_result)
    return await answer


async def test_what_the_store_has_not_is_gone() -> None:
    session = await with_topic()
    assert not await is_gone(session, "t", 1)
    assert await is_gone(session, "t", 2)
    assert await is_gone(session, "never", 0)


async def test_a_topic_that_is_being_deleted_is_as_good_as_gone() -> None:
    session = await with_topic()
    await session.create(paths.deleted_topic("t"), b"")
    assert await is_gone(session, "t", 0)


async def test_what_cannot_be_read_counts_as_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(self: EmbeddedSession) -> None:
        raise StoreConnectionError("no connection")

    session = await with_topic()
    monkeypatch.setattr(EmbeddedSession, "sync", fails)
    assert not await is_gone(session, "never", 0)
