from __future__ import annotations

import pytest

from braidlog.cluster import paths, records
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.store import BadVersionError, Create, SetData
from braidlog.controller.fenced_store import FencedStore
from braidlog.controller.plan import Put, Remove
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import NotControllerError
from braidlog.core.types import BrokerId
from support.memory_journal import MemoryJournalFiles

ONE, TWO = BrokerId(1), BrokerId(2)


def opened() -> EmbeddedStore:
    return EmbeddedStore.open(MemoryJournalFiles(), ManualClock())


async def test_one_broker_is_elected_and_the_epoch_rises_with_each() -> None:
    store = opened()
    first, second = store.connect(), store.connect()
    assert (await FencedStore.elect(first, ONE, 0)).epoch == 1
    with pytest.raises(NotControllerError, match="/controller in the store"):
        await FencedStore.elect(second, TWO, 0)
    assert records.decode_controller(paths.CONTROLLER, (await second.get(paths.CONTROLLER)).data) == 1
    await first.close()
    assert (await FencedStore.elect(second, TWO, 0)).epoch == 2


async def test_a_controller_that_was_replaced_changes_nothing() -> None:
    store = opened()
    first, second = store.connect(), store.connect()
    old = await FencedStore.elect(first, ONE, 0)
    await first.delete(paths.CONTROLLER)
    await FencedStore.elect(second, TWO, 0)
    with pytest.raises(NotControllerError, match="became the controller"):
        await old.commit([Put("/a", b"late")])
    assert await second.exists("/a") is None


async def test_steps_become_one_transaction() -> None:
    store = opened()
    session = store.connect()
    fenced = await FencedStore.elect(session, ONE, 0)
    await session.create("/there", b"old")
    await session.create("/goes")
    zxid = store.zxid
    await fenced.commit(
        [Put("/there", b"new"), Put("/fresh"), Put("/fresh", b"2"), Remove("/goes"), Remove("/never"), Create("/made")]
    )
    assert store.zxid == zxid + 1
    assert [node and node.data for node in await session.get_many(["/there", "/fresh", "/goes", "/made"])] == [
        b"new",
        b"2",
        None,
        b"",
    ]


async def test_a_refusal_of_a_step_is_passed_on_and_nothing_is_written() -> None:
    session = opened().connect()
    fenced = await FencedStore.elect(session, ONE, 0)
    await session.create("/a")
    with pytest.raises(BadVersionError):
        await fenced.commit([Put("/b"), SetData("/a", b"x", 7)])
    assert await session.exists("/b") is None


async def test_a_removed_node_can_be_put_again_in_the_same_commit() -> None:
    session = opened().connect()
    fenced = await FencedStore.elect(session, ONE, 0)
    await session.create("/a", b"old")
    await fenced.commit([Remove("/a"), Put("/a", b"new")])
    assert (await session.get("/a")).data == b"new"
