from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from braidlog.cluster.sessions import EmbeddedSession
from braidlog.cluster.store import NoNodeError, Operation, Outcome, SessionExpiredError, WatchEvent
from braidlog.cluster.tree import ZnodeTree
from braidlog.cluster.watches import WatchTable


class Host:
    """A store whose changes are durable at once; notes how often a read waited for that."""

    def __init__(self) -> None:
        self.tree = ZnodeTree()
        self.watches = WatchTable()
        self.waits = 0
        self.ended: list[EmbeddedSession] = []

    async def submit(self, operations: Sequence[Operation], session: int) -> list[Outcome]:
        transaction, outcomes = self.tree.transact(operations, self.tree.zxid + 1, 0, session)
        for watch, event in self.watches.fire(transaction.changes):
            watch(event)
        return outcomes

    async def settled(self) -> None:
        self.waits += 1

    async def end_session(self, session: EmbeddedSession) -> None:
        self.ended.append(session)


async def test_every_read_waits_until_what_it_shows_is_durable() -> None:
    host = Host()
    session = EmbeddedSession(host, 7, time.monotonic)
    await session.create("/a", b"x")
    assert (await session.get("/a")).data == b"x"
    assert [node and node.data for node in await session.get_many(["/a", "/b"])] == [b"x", None]
    assert await session.exists("/b") is None
    assert await session.children("/") == ["a"]
    with pytest.raises(NoNodeError):
        await session.get("/b")
    with pytest.raises(NoNodeError):
        await session.children("/b")
    assert host.waits == 6


async def test_a_missing_node_is_watched_by_exists_alone() -> None:
    host = Host()
    session = EmbeddedSession(host, 7, time.monotonic)
    heard: list[WatchEvent] = []
    with pytest.raises(NoNodeError):
        await session.get("/a", heard.append)
    await session.create("/a")
    await session.delete("/a")
    assert heard == []
    await session.exists("/a", heard.append)
    await session.create("/a")
    assert len(heard) == 1


async def test_ephemerals_belong_to_the_session() -> None:
    session = EmbeddedSession(Host(), 7, time.monotonic)
    await session.create("/e", ephemeral=True)
    assert (await session.get("/e")).stat.ephemeral_owner == session.session_id == 7


async def test_a_closed_session_answers_no_more_and_has_not_expired() -> None:
    host = Host()
    session = EmbeddedSession(host, 7, time.monotonic)
    expired: list[bool] = []
    session.on_expiry(lambda: expired.append(True))
    await session.close()
    assert host.ended == [session]
    assert not session.open
    assert not session.expired
    for call in (session.get("/"), session.get_many(["/"]), session.children("/"), session.create("/a")):
        with pytest.raises(SessionExpiredError, match="open a new one"):
            await call
    assert expired == []


async def test_a_lost_session_says_so() -> None:
    session = EmbeddedSession(Host(), 7, time.monotonic)
    expired: list[str] = []
    session.on_expiry(lambda: expired.append("one"))
    session.on_expiry(lambda: expired.append("two"))
    session.lose()
    assert expired == ["one", "two"]
    assert session.expired
    with pytest.raises(SessionExpiredError):
        await session.exists("/")
