from __future__ import annotations

import asyncio

from braidlog.cluster import paths
from braidlog.controller.requests import ConfigChange, ConfigChanges, ConfigResource, NewTopic
from braidlog.core.clock import ManualClock
from support.controller_harness import one_broker


def test_old_config_notices_are_purged() -> None:
    async def run() -> None:
        clock = ManualClock()
        async with one_broker(clock=clock) as broker:
            await broker.controller.create_topics([NewTopic("t")])
            change = ConfigChanges(ConfigResource(2, "t"), (ConfigChange("retention.ms", 0, "9"),))
            await broker.writes.incremental_alter_configs([change])
            await broker.writes.incremental_alter_configs([change])
            assert len(await broker.session.children(paths.CONFIG_CHANGES)) == 2
            clock.advance(16 * 60)
            await broker.writes.incremental_alter_configs([change])
            assert await broker.session.children(paths.CONFIG_CHANGES) == ["config_change_0000000002"]

    asyncio.run(run())


def test_a_check_of_new_topics_writes_nothing() -> None:
    async def run() -> None:
        async with one_broker() as broker:
            good, bad = await broker.writes.create_topics([NewTopic("t"), NewTopic("a b")], validate_only=True)
            assert good.error is None
            assert good.partitions == 1
            assert bad.error is not None
            assert await broker.session.children(paths.TOPICS) == []

    asyncio.run(run())
