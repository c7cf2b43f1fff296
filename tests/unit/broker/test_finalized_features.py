from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from braidlog.broker.finalized_features import NO_EPOCH, FinalizedFeatures
from braidlog.cluster import paths
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.core.clock import ManualClock
from braidlog.core.tasks import Tasks
from support.memory_journal import MemoryJournalFiles


class Scene:
    def __init__(self) -> None:
        self.store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
        self.session = self.store.connect()
        self.tasks = Tasks("test")
        self.features = FinalizedFeatures(self.session, self.tasks)
        self.heard: list[Mapping[str, int]] = []
        self.features.on_change(self.heard.append)

    async def settled(self) -> None:
        """Until what the watch has started is done."""
        await asyncio.sleep(0)
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name().startswith("test:")))


def on_scene(body: Callable[[Scene], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            scene = Scene()
            await body(scene)
            await scene.store.close()

        asyncio.run(run())

    return test


def written(*levels: tuple[str, int], status: int = 1) -> bytes:
    inside = ",".join(f'"{name}":{{"max_version_level":{level}}}' for name, level in levels)
    return f'{{"features":{{{inside}}},"version":2,"status":{status}}}'.encode()


@on_scene
async def test_a_change_is_heard_of_by_a_watch(scene: Scene) -> None:
    await scene.features.start()
    assert (scene.features.levels, scene.features.epoch) == ({}, NO_EPOCH)
    await scene.session.create(paths.FEATURE, written(("group.version", 1)))
    await scene.settled()
    assert (scene.features.levels, scene.features.epoch) == ({"group.version": 1}, 0)
    await scene.session.set(paths.FEATURE, written())
    await scene.settled()
    assert (scene.features.levels, scene.features.epoch) == ({}, 1)
    await scene.session.set(paths.FEATURE, written(("group.version", 1)))
    await scene.settled()
    await scene.session.delete(paths.FEATURE)
    await scene.settled()
    assert scene.heard == [{"group.version": 1}, {}, {"group.version": 1}, {}]
    assert scene.features.epoch == NO_EPOCH


@on_scene
async def test_what_kafka_has_disabled_or_nobody_understands_counts_as_nothing(scene: Scene) -> None:
    await scene.session.create(paths.FEATURE, written(("group.version", 1)))
    await scene.features.start()
    await scene.session.set(paths.FEATURE, written(("group.version", 1), status=0))
    await scene.settled()
    assert scene.features.levels == {}
    await scene.session.set(paths.FEATURE, written(("group.version", 1)))
    await scene.settled()
    await scene.session.set(paths.FEATURE, b"nonsense")
    await scene.settled()
    assert (scene.features.levels, scene.features.epoch) == ({}, 3)


@on_scene
async def test_a_new_session_reads_what_changed_without_one(scene: Scene) -> None:
    await scene.features.start()
    await scene.store.expire(scene.session)
    scene.features.session_lost()
    session = scene.store.connect()
    await session.create(paths.FEATURE, written(("transaction.version", 2)))
    await scene.features.session_opened(session)
    assert scene.features.levels == {"transaction.version": 2}
    await session.set(paths.FEATURE, written())
    await scene.settled()
    assert scene.features.levels == {}
