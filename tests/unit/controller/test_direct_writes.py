from __future__ import annotations

import asyncio

from braidlog.cluster import paths, records
from braidlog.controller.requests import ConfigChange, ConfigChanges, ConfigResource, NewTopic
from braidlog.controller.users.client_quotas import EntityChanges, QuotaChange
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


def test_the_node_above_settings_of_groups_is_made_with_the_first() -> None:
    async def run() -> None:
        async with one_broker() as broker:
            group = ConfigResource(32, "billing")
            set_it = ConfigChanges(group, (ConfigChange("consumer.session.timeout.ms", 0, "50000"),))
            await broker.writes.incremental_alter_configs([set_it], validate_only=True)
            assert not await broker.session.exists(paths.GROUP_CONFIGS)
            assert [each.error for each in await broker.writes.incremental_alter_configs([set_it])] == [None]
            path = paths.config("groups/billing")
            stored = records.decode_config(path, (await broker.session.get(path)).data)
            assert stored == {"consumer.session.timeout.ms": "50000"}

    asyncio.run(run())


def quota(rate: float | None, **names: str | None) -> EntityChanges:
    named = tuple((kind.replace("_", "-"), name) for kind, name in names.items())
    return EntityChanges(named, (QuotaChange("producer_byte_rate", rate),))


def test_quotas_of_a_users_clients_make_the_nodes_above_them() -> None:
    async def run() -> None:
        async with one_broker() as broker:
            wanted = [quota(1.0, user="ann", client_id="app"), quota(2.0, user="ann"), quota(3.0, client_id=None)]
            assert await broker.writes.alter_client_quotas(wanted) == [None] * 3
            stored = {
                path: records.decode_config(path, (await broker.session.get(paths.config(path))).data)
                for path in ("users/ann/clients/app", "users/ann", "clients/<default>")
            }
            assert [each["producer_byte_rate"] for each in stored.values()] == ["1", "2", "3"]
            assert len(await broker.session.children(paths.CONFIG_CHANGES)) == 3
            assert await broker.writes.alter_client_quotas([quota(9.0, user="bob")], validate_only=True) == [None]
            assert "bob" not in await broker.session.children(paths.config("users"))

    asyncio.run(run())


def test_quotas_that_another_changes_meanwhile_are_decided_again() -> None:
    async def run() -> None:
        async with one_broker() as broker:
            path = paths.config("users/ann")
            await broker.writes.alter_client_quotas([quota(1.0, user="ann")])
            real = broker.session.multi
            interfered = False

            async def multi(operations: object) -> object:
                nonlocal interfered
                if not interfered:
                    interfered = True
                    await broker.session.set(path, records.encode_config({"consumer_byte_rate": "5"}))
                return await real(operations)  # type: ignore[arg-type]

            broker.session.multi = multi  # type: ignore[method-assign, assignment]
            assert await broker.writes.alter_client_quotas([quota(7.0, user="ann")]) == [None]
            stored = records.decode_config(path, (await broker.session.get(path)).data)
            assert stored == {"consumer_byte_rate": "5", "producer_byte_rate": "7"}

    asyncio.run(run())
