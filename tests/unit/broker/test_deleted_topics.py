from __future__ import annotations

import asyncio

import pytest

from braidlog.broker import deleted_topics
from braidlog.broker.control_epochs import ControlEpochs
from braidlog.broker.deleted_topics import DeletedTopics
from braidlog.broker.local_control_channel import LocalControlChannel
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.cluster import paths, registration
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.cluster.store import StoreUnavailableError
from braidlog.core.clock import ManualClock
from braidlog.core.tasks import Tasks
from support.control_requests import led_by, topic_id, update_metadata
from support.memory_journal import MemoryJournalFiles

OVERRIDES = {"segment.bytes": "2000"}


class World:
    def __init__(self, session: EmbeddedSession) -> None:
        self.session = session
        self.epoch = 1
        epochs = ControlEpochs(lambda: self.epoch)
        self.cache = MetadataCache("cluster", epochs)
        self.tasks = Tasks("test")
        # No replica manager: nothing here is about logs.
        self.channel = LocalControlChannel(None, self.cache)  # type: ignore[arg-type]
        deleted = DeletedTopics(session, self.cache, self.channel, self.tasks)
        epochs.on_first_request = deleted.look

    async def settle(self) -> None:
        """Until nothing of it is under way."""
        work = [task for task in asyncio.all_tasks() if "forgetting" in task.get_name()]
        await asyncio.gather(*work)


async def world() -> World:
    session = EmbeddedStore.open(MemoryJournalFiles(), ManualClock()).connect()
    await registration.prepare_store(session)
    return World(session)


async def test_what_went_before_the_controller_knew_of_a_registration_is_forgotten() -> None:
    w = await world()
    for name in ("orders", "bills"):
        await w.session.create(paths.topic(name), b"")
    await w.channel.send(update_metadata("orders", {0: led_by(1)}, broker_epoch=1))
    await w.channel.send(update_metadata("bills", {0: led_by(1)}, broker_epoch=1))
    await w.settle()
    assert set(w.cache.image.topics) == {"orders", "bills"}
    w.epoch = 2
    # Registered anew; a deletion ends before the controller sees that, so that it does not tell this broker of it.
    await w.settle()
    await w.session.delete(paths.topic("orders"))
    await w.channel.send(update_metadata(broker_epoch=2))
    await w.settle()
    assert set(w.cache.image.topics) == {"bills"}


async def test_overrides_that_were_read_at_the_start_go_with_their_topic() -> None:
    w = await world()
    await w.cache.load_configs({"topics/gone": OVERRIDES, "topics/there": OVERRIDES, "brokers/1": {"a": "b"}})
    await w.session.create(paths.config("topics/there"), b"")
    await w.channel.send(update_metadata(broker_epoch=1))
    await w.settle()
    assert set(w.cache.image.configs) == {"topics/there", "brokers/1"}


async def test_a_topic_made_again_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    w = await world()
    get_many = w.session.get_many

    async def get_slowly(wanted: list[str]) -> object:
        found = await get_many(wanted)
        await w.channel.send(update_metadata("orders", {0: led_by(1)}, made=1, broker_epoch=1))
        return found

    monkeypatch.setattr(w.session, "get_many", get_slowly)
    await w.channel.send(update_metadata("orders", {0: led_by(1)}, broker_epoch=1))
    await w.settle()
    assert w.cache.image.topics["orders"].topic_id == topic_id("orders", made=1)


async def test_a_store_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleted_topics, "_RETRY_S", 0)
    w = await world()
    sync, refusals = w.session.sync, [StoreUnavailableError("no connection")]

    async def sync_later() -> None:
        if refusals:
            raise refusals.pop()
        await sync()

    monkeypatch.setattr(w.session, "sync", sync_later)
    await w.channel.send(update_metadata("orders", {0: led_by(1)}, broker_epoch=1))
    await w.settle()
    assert not w.cache.image.topics


async def test_what_a_controller_did_not_tell_before_it_lost_its_office_is_forgotten_with_the_next() -> None:
    w = await world()
    for name in ("orders", "bills"):
        await w.session.create(paths.topic(name), b"")
        await w.channel.send(update_metadata(name, {0: led_by(1)}, controller_epoch=1, broker_epoch=1))
    await w.settle()
    # Its nodes go when every replica is deleted, whether or not brokers without one have been told.
    await w.session.delete(paths.topic("orders"))
    await w.channel.send(update_metadata(controller_epoch=1, broker_epoch=1))
    await w.settle()
    assert set(w.cache.image.topics) == {"orders", "bills"}
    await w.channel.send(update_metadata(controller_epoch=2, broker_epoch=1))
    await w.settle()
    assert set(w.cache.image.topics) == {"bills"}
