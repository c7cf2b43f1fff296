"""What every coordination store promises, as a suite: a backend's test class inherits it and says how to connect."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from braidlog.cluster.store import (
    BadVersionError,
    Check,
    CoordinationStore,
    Create,
    Delete,
    EventKind,
    InvalidPathError,
    LeaseExpiredError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    SetData,
    Stat,
    WatchEvent,
    ensure_path,
)

Connect = Callable[[], Awaitable[CoordinationStore]]
Body = Callable[["StoreContract", Connect], Awaitable[None]]


def on_store(body: Body) -> Callable[[StoreContract], None]:
    """Run an async test against a fresh, empty store."""

    def test(self: StoreContract) -> None:
        async def run() -> None:
            async with self.cluster() as connect:
                await asyncio.wait_for(body(self, connect), 30)

        self.run(run())

    test.__name__ = body.__name__
    test.__doc__ = body.__doc__
    return test


class StoreContract:
    def cluster(self) -> AbstractAsyncContextManager[Connect]:
        """An empty store that may be connected to several times."""
        raise NotImplementedError

    async def expire(self, session: CoordinationStore) -> None:
        """Make the store end this session."""
        raise NotImplementedError

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run(work)

    @on_store
    async def test_created_node_is_read_back(self, connect: Connect) -> None:
        store = await connect()
        assert await store.create("/a", b"one") == "/a"
        node = await store.get("/a")
        assert node.data == b"one"
        assert node.stat.version == 0
        assert node.stat.czxid == node.stat.mzxid == node.stat.pzxid
        assert node.stat.ephemeral_owner == 0

    @on_store
    async def test_set_raises_version_and_mzxid_only(self, connect: Connect) -> None:
        store = await connect()
        await store.create("/a", b"one")
        before = (await store.get("/a")).stat
        stat = await store.set("/a", b"two", before.version)
        after = await store.get("/a")
        assert after.data == b"two"
        assert after.stat == stat
        assert stat.version == 1
        assert stat.mzxid > before.mzxid
        assert stat.czxid == before.czxid
        assert stat.pzxid == before.pzxid

    @on_store
    async def test_a_stale_version_is_refused(self, connect: Connect) -> None:
        store = await connect()
        await store.create("/a")
        await store.set("/a", b"x")
        with pytest.raises(BadVersionError):
            await store.set("/a", b"y", 0)
        with pytest.raises(BadVersionError):
            await store.delete("/a", 0)
        await store.delete("/a", 1)
        assert await store.exists("/a") is None

    @on_store
    async def test_missing_nodes_and_parents(self, connect: Connect) -> None:
        store = await connect()
        for call in (store.get("/no"), store.children("/no"), store.set("/no", b""), store.delete("/no")):
            with pytest.raises(NoNodeError):
                await call
        with pytest.raises(NoNodeError):
            await store.create("/no/child")
        assert await store.get_many(["/", "/no"]) == [await store.get("/"), None]

    @on_store
    async def test_what_exists_is_not_created_again(self, connect: Connect) -> None:
        store = await connect()
        await store.create("/a", b"one")
        with pytest.raises(NodeExistsError):
            await store.create("/a", b"two")
        assert (await store.get("/a")).data == b"one"

    @on_store
    async def test_children_are_listed_and_counted(self, connect: Connect) -> None:
        store = await connect()
        await store.create("/p")
        for name in ("b", "a", "c"):
            await store.create(f"/p/{name}")
        await store.delete("/p/b")
        assert await store.children("/p") == ["a", "c"]
        stat = await store.exists("/p")
        assert stat is not None
        assert stat.num_children == 2
        assert stat.cversion == 4
        assert stat.version == 0
        assert stat.pzxid > stat.mzxid

    @on_store
    async def test_a_node_with_children_stays(self, connect: Connect) -> None:
        store = await connect()
        await store.create("/p")
        await store.create("/p/a")
        with pytest.raises(NotEmptyError):
            await store.delete("/p")

    @on_store
    async def test_invalid_paths(self, connect: Connect) -> None:
        store = await connect()
        for path in ("a", "/a/", "/a//b", "/../a", "/a/./b", "/a\0b", ""):
            with pytest.raises(InvalidPathError):
                await store.create(path)

    @on_store
    async def test_sequential_names_grow_and_are_never_reused(self, connect: Connect) -> None:
        store = await connect()
        await store.create("/s")
        first = await store.create("/s/n-", sequential=True)
        assert first == "/s/n-0000000000"
        await store.delete(first)
        await store.create("/s/other")
        assert await store.create("/s/n-", sequential=True) == "/s/n-0000000002"

    @on_store
    async def test_ephemerals_go_with_their_session(self, connect: Connect) -> None:
        mine, other = await connect(), await connect()
        await mine.create("/e", ephemeral=True)
        await other.create("/f", ephemeral=True)
        await other.sync()
        stat = await other.exists("/e")
        assert stat is not None
        assert stat.ephemeral_owner == mine.session_id
        with pytest.raises(NoChildrenForEphemeralsError):
            await other.create("/e/child")
        await mine.close()
        await other.sync()
        assert await other.exists("/e") is None
        assert await other.exists("/f") is not None
        with pytest.raises(SessionExpiredError):
            await mine.get("/f")

    @on_store
    async def test_an_expired_session_is_told_and_over(self, connect: Connect) -> None:
        mine, other = await connect(), await connect()
        reported: list[str] = []
        gone = asyncio.Event()
        mine.on_expiry(lambda: reported.append("expired"))
        await mine.create("/e", ephemeral=True)
        await other.sync()
        await other.exists("/e", lambda event: gone.set())
        await self.expire(mine)
        await gone.wait()
        assert reported == ["expired"]
        assert mine.expired
        assert not mine.lease.valid()
        mine.on_expiry(lambda: reported.append("late"))
        assert reported == ["expired", "late"]
        assert await other.exists("/e") is None
        with pytest.raises(SessionExpiredError):
            await mine.create("/again")

    @on_store
    async def test_the_lease_lasts_while_the_session_is_used_and_ends_with_it(self, connect: Connect) -> None:
        store = await connect()
        assert store.lease.valid()
        await store.create("/a")
        assert store.lease.valid()
        await store.close()
        assert not store.lease.valid()
        with pytest.raises(LeaseExpiredError):
            store.lease.check()

    @on_store
    async def test_what_others_did_before_a_sync_is_read_after_it(self, connect: Connect) -> None:
        reading, writing = await connect(), await connect()
        await writing.create("/a")
        for turn in range(20):
            await writing.set("/a", str(turn).encode())
            await reading.sync()
            assert (await reading.get("/a")).data == str(turn).encode()

    @on_store
    async def test_multi_is_all_or_nothing(self, connect: Connect) -> None:
        store = await connect()
        await store.create("/a", b"0")
        await store.create("/d")
        await store.create("/e", ephemeral=True)
        image = await store.get_many(["/", "/a", "/d", "/e"])
        with pytest.raises(BadVersionError) as refused:
            await store.multi(
                [
                    SetData("/a", b"1"),
                    Create("/b"),
                    Create("/b/c"),
                    Delete("/d"),
                    Delete("/e"),
                    Create("/s-", sequential=True, ephemeral=True),
                    Check("/a", 0),
                ]
            )
        assert refused.value.operation == 6
        assert await store.get_many(["/", "/a", "/d", "/e"]) == image
        assert await store.exists("/b") is None
        assert await store.create("/s-", sequential=True) == "/s-0000000003"

    @on_store
    async def test_operations_of_a_multi_see_those_before_and_share_a_zxid(self, connect: Connect) -> None:
        store = await connect()
        outcomes = await store.multi(
            [Create("/a"), Create("/a/b", b"1"), SetData("/a/b", b"2", 0), Check("/a/b", 1), Create("/x"), Delete("/x")]
        )
        assert outcomes[0] == "/a"
        assert isinstance(outcomes[2], Stat)
        assert outcomes[5] is None
        a, b = await store.get_many(["/a", "/a/b"])
        assert a is not None
        assert b is not None
        assert b.data == b"2"
        assert a.stat.czxid == b.stat.czxid == b.stat.mzxid

    @on_store
    async def test_zxids_grow_with_every_change(self, connect: Connect) -> None:
        one, two = await connect(), await connect()
        seen = []
        for turn in range(6):
            path = f"/n{turn}"
            await (one if turn % 2 else two).create(path)
            await one.sync()
            stat = await one.exists(path)
            assert stat is not None
            seen.append(stat.czxid)
        assert seen == sorted(set(seen))

    @on_store
    async def test_data_watches_fire_once(self, connect: Connect) -> None:
        store = await connect()
        events: list[WatchEvent] = []
        await store.create("/a")
        await store.get("/a", events.append)
        await store.set("/a", b"1")
        await store.set("/a", b"2")
        await store.get("/a", events.append)
        await store.delete("/a")
        await _drain(store)
        assert events == [WatchEvent(EventKind.DATA_CHANGED, "/a"), WatchEvent(EventKind.DELETED, "/a")]

    @on_store
    async def test_exists_watch_waits_for_a_missing_node_and_get_does_not(self, connect: Connect) -> None:
        store = await connect()
        events: list[WatchEvent] = []
        with pytest.raises(NoNodeError):
            await store.get("/a", events.append)
        await store.create("/a")
        await store.delete("/a")
        await _drain(store)
        assert events == []
        await store.exists("/a", events.append)
        await store.create("/a")
        await _drain(store)
        assert events == [WatchEvent(EventKind.CREATED, "/a")]

    @on_store
    async def test_child_watches(self, connect: Connect) -> None:
        store = await connect()
        events: list[WatchEvent] = []
        await store.create("/p")
        await store.children("/p", events.append)
        await store.set("/p", b"no news for the children")
        await store.create("/p/a")
        await _drain(store)
        assert events == [WatchEvent(EventKind.CHILDREN_CHANGED, "/p")]
        await store.children("/p", events.append)
        await store.set("/p/a", b"no news either")
        await store.multi([Delete("/p/a"), Delete("/p")])
        await _drain(store)
        assert events[1:] == [WatchEvent(EventKind.CHILDREN_CHANGED, "/p")]

    @on_store
    async def test_watch_event_comes_before_the_change_can_be_read(self, connect: Connect) -> None:
        watching, writing = await connect(), await connect()
        await writing.create("/a", b"0")
        await watching.sync()
        reported: list[WatchEvent] = []
        await watching.get("/a", reported.append)

        async def read_after(ticks: int) -> None:
            for _ in range(ticks):
                await asyncio.sleep(0)
            node = await watching.get("/a")
            assert node.data == b"0" or reported

        # Readers that come at every moment of the change: none of them may be quicker than the event.
        reads = [asyncio.ensure_future(read_after(ticks)) for ticks in range(40)]
        await writing.set("/a", b"1")
        await asyncio.gather(*reads)
        await watching.sync()
        assert reported == [WatchEvent(EventKind.DATA_CHANGED, "/a")]
        assert (await watching.get("/a")).data == b"1"

    @on_store
    async def test_concurrent_writers_of_one_version_have_one_winner(self, connect: Connect) -> None:
        sessions = [await connect() for _ in range(4)]
        await sessions[0].create("/a")
        outcomes = await asyncio.gather(
            *(session.set("/a", str(place).encode(), 0) for place, session in enumerate(sessions)),
            return_exceptions=True,
        )
        assert sum(isinstance(outcome, Stat) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, BadVersionError) for outcome in outcomes) == 3

    @on_store
    async def test_closed_sessions_hear_nothing(self, connect: Connect) -> None:
        mine, other = await connect(), await connect()
        events: list[WatchEvent] = []
        await mine.exists("/a", events.append)
        await mine.close()
        await other.create("/a")
        await _drain(other)
        assert events == []

    @on_store
    async def test_ensure_path(self, connect: Connect) -> None:
        store = await connect()
        await ensure_path(store, "/a/b/c")
        await ensure_path(store, "/a/b/d")
        assert await store.children("/a/b") == ["c", "d"]


async def _drain(store: CoordinationStore) -> None:
    """Let every event of the changes made so far arrive."""
    with contextlib.suppress(NoNodeError):
        await store.get("/drained")
    for _ in range(3):
        await asyncio.sleep(0)
