"""Overrides follow the store: on an embedded one in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from braidlog.broker.config_changes import ConfigChangeListener
from braidlog.broker.control_epochs import ControlEpochs
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.cluster import paths, records, registration
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.image import ClusterImage, ImageDelta
from braidlog.cluster.store import CoordinationStore, ensure_path
from braidlog.core.clock import ManualClock
from braidlog.core.tasks import Tasks
from support.control_requests import DELETED, led_by, update_metadata
from support.memory_journal import MemoryJournalFiles


class World:
    def __init__(self, store: CoordinationStore, tasks: Tasks) -> None:
        self.store = store
        self.cache = MetadataCache("cluster", ControlEpochs(lambda: 1))
        self.cache.add_listener(self)
        self.listener = ConfigChangeListener(store, self.cache, tasks)
        self.changes: list[dict[str, dict[str, str]]] = []
        self._changed = asyncio.Event()

    async def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        self.changes.append({entity: dict(overrides) for entity, overrides in delta.configs_changed.items()})
        self._changed.set()

    async def put(self, entity: str, overrides: dict[str, str]) -> None:
        path, data = paths.config(entity), records.encode_config(overrides)
        await ensure_path(self.store, path)
        await self.store.set(path, data)

    async def notify(self, data: bytes) -> None:
        await self.store.create(paths.CONFIG_CHANGE, data, sequential=True)

    async def know(self, *topics: str) -> None:
        for name in topics:
            await self.cache.update(update_metadata(name, {0: led_by(1)}))
        self._changed.clear()

    async def next_change(self) -> dict[str, dict[str, str]]:
        await self._changed.wait()
        self._changed.clear()
        return self.changes[-1]


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
    session = store.connect()
    await registration.prepare_store(session)
    tasks = Tasks("test")
    yield World(session, tasks)
    await tasks.close()
    await store.close()


async def test_everything_is_read_at_start_and_again_after_a_lost_session() -> None:
    async with world() as w:
        await w.put("topics/orders", {"retention.ms": "1"})
        await w.put("brokers/<default>", {"log.retention.ms": "2"})
        await w.put("topics/plain", {})
        await w.put("groups/billing", {"consumer.session.timeout.ms": "50000"})
        await w.listener.start()
        assert set(w.cache.image.configs) == {"topics/orders", "brokers/<default>", "groups/billing"}
        # No notification tells of these, as if it had been purged.
        await w.store.delete(paths.config("groups/billing"))
        await w.put("topics/orders", {"retention.ms": "3"})
        await w.listener.start()
        assert w.cache.image.topic_config("orders") == {"retention.ms": "3"}
        assert "groups/billing" not in w.cache.image.configs


@pytest.mark.parametrize(
    "notification",
    [
        b'{"version":1,"entity_type":"topics","entity_name":"orders"}',
        b'{"version":2,"entity_path":"topics/orders"}',
    ],
)
async def test_a_notification_makes_its_entity_be_read_again(notification: bytes) -> None:
    async with world() as w:
        await w.listener.start()
        await w.know("orders")
        for value in ("1", "2"):
            await w.put("topics/orders", {"retention.ms": value})
            await w.notify(notification)
            assert await w.next_change() == {"topics/orders": {"retention.ms": value}}


@pytest.mark.parametrize(
    ("entity", "notification"),
    [
        ("users/alice", b'{"version":2,"entity_path":"users/alice"}'),
        ("users/<default>", b'{"version":2,"entity_path":"users/<default>"}'),
        ("users/alice/clients/app", b'{"version":2,"entity_path":"users/alice/clients/app"}'),
        ("clients/app", b'{"version":1,"entity_type":"clients","entity_name":"app"}'),
        ("ips/192.0.2.7", b'{"version":2,"entity_path":"ips/192.0.2.7"}'),
        ("brokers/<default>", b'{"version":1,"entity_type":"brokers","entity_name":"<default>"}'),
    ],
)
async def test_every_kind_of_entity_is_followed(entity: str, notification: bytes) -> None:
    async with world() as w:
        await w.put(entity, {"consumer_byte_rate": "1"})
        await w.listener.start()
        assert w.cache.image.config(entity) == {"consumer_byte_rate": "1"}
        await w.put(entity, {"consumer_byte_rate": "2"})
        await w.notify(notification)
        w._changed.clear()
        assert await w.next_change() == {entity: {"consumer_byte_rate": "2"}}
        # Gone with its node.
        await w.store.delete(paths.config(entity))
        await w.notify(notification)
        assert await w.next_change() == {entity: {}}
        assert entity not in w.cache.image.configs


async def test_what_happens_between_the_watch_and_the_load_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as w:
        children = w.store.children
        changed = False

        async def children_then_a_change(path: str, watch: object = None) -> list[str]:
            nonlocal changed
            found = await children(path, watch)  # type: ignore[arg-type]
            if path == f"{paths.CONFIG}/ips" and not changed:
                # The topics' nodes were listed already.
                changed = True
                await w.put("topics/late", {"retention.ms": "1"})
                await w.notify(records.encode_config_change("topics/late"))
            return found

        await w.know("late")
        monkeypatch.setattr(w.store, "children", children_then_a_change)
        await w.listener.start()
        assert await w.next_change() == {"topics/late": {"retention.ms": "1"}}


async def test_notifications_of_one_entity_cost_one_read_and_old_ones_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as w:
        await w.notify(records.encode_config_change("topics/before"))
        await w.listener.start()
        await w.know("orders")
        asked: list[str] = []
        get_many = w.store.get_many

        async def counting(wanted: list[str]) -> object:
            asked.extend(wanted)
            return await get_many(wanted)

        monkeypatch.setattr(w.store, "get_many", counting)
        await w.put("topics/orders", {"retention.ms": "1"})
        operations = [records.encode_config_change("topics/orders")] * 3
        await asyncio.gather(*(w.notify(data) for data in operations))
        await w.listener.catch_up()
        assert asked.count(paths.config("topics/orders")) == 1
        assert not any("before" in path or path.endswith("0000000000") for path in asked)
        asked.clear()
        await w.listener.catch_up()
        assert asked == []


async def test_catching_up_needs_no_watch() -> None:
    async with world() as w:
        await w.listener.start()
        await w.put("brokers/1", {"log.retention.ms": "1"})
        await w.notify(records.encode_config_change("brokers/1"))
        await w.listener.catch_up()
        assert w.cache.image.config("brokers/1") == {"log.retention.ms": "1"}


async def test_what_cannot_be_read_keeps_nothing_else_back() -> None:
    async with world() as w:
        await w.put("topics/good", {})
        await w.know("good", "bad")
        await w.store.create(paths.config("topics/bad"), b"{")
        await w.put("topics/good", {"retention.ms": "1"})
        await w.notify(b"nonsense")
        await w.notify(records.encode_config_change("topics/bad"))
        await w.notify(records.encode_config_change("users/alice"))
        await w.notify(records.encode_config_change("topics/good"))
        await w.listener.catch_up()
        assert dict(w.cache.image.configs.items()) == {"topics/good": {"retention.ms": "1"}}


async def test_a_new_topic_has_the_overrides_it_was_created_with() -> None:
    async with world() as w:
        await w.listener.start()
        await w.put("topics/orders", {"retention.ms": "1"})
        await w.cache.update(update_metadata("orders", {0: led_by(1)}))
        assert w.cache.image.topic_config("orders") == {"retention.ms": "1"}


async def test_the_overrides_of_a_topic_that_is_being_deleted_do_not_come_back() -> None:
    async with world() as w:
        await w.listener.start()
        await w.know("orders")
        await w.put("topics/orders", {"retention.ms": "1"})
        await w.notify(records.encode_config_change("topics/orders"))
        await w.next_change()
        await w.cache.update(update_metadata("orders", {0: DELETED}))
        # Its node stays until all replicas are deleted: the last change, and a new session, find it.
        await w.put("topics/orders", {"retention.ms": "2"})
        await w.notify(records.encode_config_change("topics/orders"))
        await w.listener.catch_up()
        assert w.cache.image.topic_config("orders") == {}
        await w.listener.start()
        assert w.cache.image.topic_config("orders") == {}


async def test_the_overrides_of_a_topic_that_is_made_while_all_are_read_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as w:
        await w.listener.start()
        children = w.store.children
        made: list[asyncio.Task[object]] = []

        async def children_then_a_topic(path: str, watch: object = None) -> list[str]:
            found = await children(path, watch)  # type: ignore[arg-type]
            if path == f"{paths.CONFIG}/ips" and not made:
                # The topics' nodes were listed already.
                await w.put("topics/orders", {"retention.ms": "1"})
                made.append(asyncio.ensure_future(w.cache.update(update_metadata("orders", {0: led_by(1)}))))
                # As many turns as it takes, where nothing makes it wait.
                for _ in range(20):
                    await asyncio.sleep(0)
            return found

        monkeypatch.setattr(w.store, "children", children_then_a_topic)
        await w.listener.start()
        await made[0]
        assert w.cache.image.topic_config("orders") == {"retention.ms": "1"}
