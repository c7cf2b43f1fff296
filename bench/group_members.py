"""Members of groups by hand, many in one process: they join, sync, and follow every rebalance until all agree."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Self

from bench.requests import TIMEOUT_S, Reply, RequestFailed, text

OFFSET_COMMIT = 8
FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 10, 11, 12, 13, 14
# The kinds of keys that a coordinator is found by.
GROUP, TRANSACTION = 0, 1
NONE: Final = 0
# What a client answers by asking the same again, a little later.
NOT_YET: Final = {14: "loading", 15: "no coordinator yet", 16: "not the coordinator"}
REBALANCE_IN_PROGRESS: Final = 27
MEMBER_ID_REQUIRED: Final = 79
ILLEGAL_GENERATION: Final = 22
RETRY_S: Final = 0.02
SESSION_MS: Final = 30_000
REBALANCE_MS: Final = 60_000
HEARTBEAT_S: Final = 0.5
KEYS_TRIED: Final = 10_000


def _bytes(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


_NULL_TEXT: Final = struct.pack(">h", -1)


class Joins(NamedTuple):
    """How many members were given an assignment, in how long."""

    members: int
    seconds: float


class Connection:
    """One request at a time, over an asyncio stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation = 0

    @classmethod
    async def open(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, key: int, version: int, body: bytes) -> Reply:
        self._correlation += 1
        head = struct.pack(">hhi", key, version, self._correlation) + text("bench")
        self._writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        reply = Reply(await self._reader.readexactly(size))
        if reply.number("i") != self._correlation:
            raise RequestFailed("a reply carried the wrong correlation id")
        return reply

    async def find_coordinator(self, key: str, kind: int = GROUP) -> int:
        """Asks until there is one; gives its port."""
        while True:
            reply = await self.ask(FIND_COORDINATOR, 1, text(key) + struct.pack(">b", kind))
            reply.number("i")  # throttle time
            code = reply.number("h")
            reply.text()  # error message
            if code == NONE:
                reply.number("i")  # broker id
                reply.text()  # host
                return reply.number("i")
            if code not in NOT_YET:
                raise RequestFailed(f"FindCoordinator answered with error code {code}")
            await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


class Member:
    """A classic member whose leader gives every member one number."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection = connection
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.size = 0
        self.assigned = b""
        self._joins = 0

    async def join(self) -> None:
        """Through as many rounds as it takes to have an assignment."""
        while not await self._sync(await self._join()):
            pass

    async def rejoin(self) -> None:
        """Join with other metadata than before, so that the whole group rebalances."""
        self._joins += 1
        await self.join()

    async def leave(self) -> None:
        """The next join is that of a new member."""
        reply = await self._connection.ask(LEAVE_GROUP, 2, text(self.group) + text(self.member_id))
        reply.number("i")  # throttle time
        code = reply.number("h")
        if code != NONE:
            raise RequestFailed(f"LeaveGroup answered with error code {code}")
        self.member_id = ""

    async def _join(self) -> list[str]:
        """The members, where this one leads them; else nobody."""
        metadata = struct.pack(">hi", 0, 1) + text("bench") + _bytes(struct.pack(">i", self._joins))
        while True:
            body = text(self.group) + struct.pack(">ii", SESSION_MS, REBALANCE_MS) + text(self.member_id) + _NULL_TEXT
            body += text("consumer") + struct.pack(">i", 1) + text("range") + _bytes(metadata)
            reply = await self._connection.ask(JOIN_GROUP, 5, body)
            reply.number("i")  # throttle time
            code = reply.number("h")
            generation = reply.number("i")
            reply.text()  # protocol
            leader = reply.text()
            member_id = reply.text() or ""
            if code in (NONE, MEMBER_ID_REQUIRED):
                self.member_id = member_id
            if code == NONE:
                break
            if code in NOT_YET:
                await asyncio.sleep(RETRY_S)
            elif code != MEMBER_ID_REQUIRED:
                raise RequestFailed(f"JoinGroup answered with error code {code}")
        self.generation = generation
        members: list[str] = []
        for _ in range(reply.number("i")):
            members.append(reply.text() or "")
            reply.text()  # instance
            reply.skip(reply.number("i"))
        return members if leader == self.member_id else []

    async def _sync(self, members: Sequence[str]) -> bool:
        assignments = b"".join(
            text(member) + _bytes(struct.pack(">hii", 0, number, len(members))) for number, member in enumerate(members)
        )
        body = self._identity() + struct.pack(">i", len(members)) + assignments
        reply = await self._connection.ask(SYNC_GROUP, 3, body)
        reply.number("i")  # throttle time
        code = reply.number("h")
        if code in (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION):
            return False
        if code != NONE:
            raise RequestFailed(f"SyncGroup answered with error code {code}")
        self.assigned = reply.take(reply.number("i"))
        _, _, self.size = struct.unpack(">hii", self.assigned)
        return True

    def _identity(self) -> bytes:
        return text(self.group) + struct.pack(">i", self.generation) + text(self.member_id) + _NULL_TEXT

    async def commit(self, topic: str, offset: int) -> None:
        body = self._identity() + struct.pack(">i", 1) + text(topic) + struct.pack(">i", 1)
        reply = await self._connection.ask(OFFSET_COMMIT, 7, body + struct.pack(">iqi", 0, offset, -1) + text("a note"))
        reply.number("i")  # throttle time
        reply.number("i")
        reply.text()
        reply.number("i")
        reply.number("i")
        code = reply.number("h")
        if code != NONE:
            raise RequestFailed(f"OffsetCommit answered with error code {code}")

    async def close(self) -> None:
        await self._connection.close()

    async def is_current(self) -> bool:
        """A heartbeat: false where the group rebalances."""
        reply = await self._connection.ask(HEARTBEAT, 3, self._identity())
        reply.number("i")  # throttle time
        code = reply.number("h")
        if code in (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION):
            return False
        if code != NONE:
            raise RequestFailed(f"Heartbeat answered with error code {code}")
        return True


async def _stay(member: Member, wanted: int, settled: asyncio.Event, here: list[Member]) -> None:
    """Join and follow rebalances until a generation has all of the members."""
    await member.join()
    while not settled.is_set():
        if sum(other.size == wanted and other.generation == member.generation for other in here) == wanted:
            settled.set()
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await settled.wait()
        except TimeoutError:
            if not await member.is_current():
                await member.join()


async def settle(members: list[Member]) -> None:
    """Until all of them, which come at once, are in one generation of their group."""
    settled = asyncio.Event()
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        for member in members:
            tasks.create_task(_stay(member, len(members), settled, members))


async def one_group(port: int, count: int) -> float:
    """Seconds until `count` members that come at once are in one generation, each with a share of its own."""
    connections = [await Connection.open(port) for _ in range(count)]
    await connections[0].find_coordinator("crowd")
    members = [Member(connection, "crowd") for connection in connections]
    began = time.monotonic()
    await settle(members)
    seconds = time.monotonic() - began
    if len({member.assigned for member in members}) != count:
        raise RequestFailed("two members were given the same share")
    for connection in connections:
        await connection.close()
    return seconds


async def many_groups(port: int, count: int) -> tuple[float, list[Connection]]:
    """Seconds until `count` groups of one member each are stable; their connections stay open."""
    connections = [await Connection.open(port) for _ in range(count)]
    await connections[0].find_coordinator("crowd")
    members = [Member(connection, f"alone-{number}") for number, connection in enumerate(connections)]
    began = time.monotonic()
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        for member in members:
            tasks.create_task(member.join())
    return time.monotonic() - began, connections


async def first_join(port: int) -> float:
    """Seconds from the very first FindCoordinator, which makes the topic, to the first member's assignment."""
    connection = await Connection.open(port)
    began = time.monotonic()
    await connection.find_coordinator("first")
    await Member(connection, "first").join()
    seconds = time.monotonic() - began
    await connection.close()
    return seconds


async def rates(port: int, count: int, seconds: float) -> tuple[float, float]:
    """Heartbeats, then commits, a second, of `count` members that each send one after another, all in groups of one."""
    connections = [await Connection.open(port) for _ in range(count)]
    await connections[0].find_coordinator("busy")
    members = [Member(connection, f"busy-{number}") for number, connection in enumerate(connections)]
    await asyncio.gather(*(member.join() for member in members))

    async def heartbeats(member: Member, until: float) -> int:
        done = 0
        while time.monotonic() < until:
            await member.is_current()
            done += 1
        return done

    async def commits(member: Member, until: float) -> int:
        done = 0
        while time.monotonic() < until:
            await member.commit("bench", done)
            done += 1
        return done

    found: list[float] = []
    for work in (heartbeats, commits):
        until = time.monotonic() + seconds
        found.append(sum(await asyncio.gather(*(work(member, until) for member in members))) / seconds)
    for connection in connections:
        await connection.close()
    return found[0], found[1]


async def spread(ports: Sequence[int], kind: int, each: int) -> list[list[str]]:
    """For every broker, by its port, `each` keys whose coordinator it is."""
    found: dict[int, list[str]] = {port: [] for port in ports}
    connection = await Connection.open(ports[0])
    for number in range(KEYS_TRIED):
        key = f"key-{number}"
        keys = found[await connection.find_coordinator(key, kind)]
        if len(keys) < each:
            keys.append(key)
        if all(len(keys) == each for keys in found.values()):
            await connection.close()
            return list(found.values())
    raise RequestFailed(f"of {KEYS_TRIED} keys the brokers coordinate {[len(keys) for keys in found.values()]}")


async def come_and_go(groups: Sequence[tuple[int, str]], seconds: float) -> Joins:
    """Each group, given with its coordinator's port, has one member that joins, syncs and leaves, again and again."""
    members = [Member(await Connection.open(port), group) for port, group in groups]

    async def repeat(member: Member, until: float) -> int:
        done = 0
        while time.monotonic() < until:
            await member.join()
            await member.leave()
            done += 1
        return done

    began = time.monotonic()
    async with asyncio.timeout(seconds + TIMEOUT_S):
        done = sum(await asyncio.gather(*(repeat(member, began + seconds) for member in members)))
    joins = Joins(done, time.monotonic() - began)
    for member in members:
        await member.close()
    return joins


async def rebalances(groups: Sequence[tuple[int, str]], size: int, before: Callable[[], None], seconds: float) -> Joins:
    """Groups of `size` members that all join again, and again; `before` is called once all of them are there."""
    crowds = [[Member(await Connection.open(port), group) for _ in range(size)] for port, group in groups]
    await asyncio.gather(*(settle(members) for members in crowds))

    async def repeat(members: list[Member], until: float) -> int:
        done = 0
        while time.monotonic() < until:
            await asyncio.gather(*(member.rejoin() for member in members))
            if {(member.generation, member.size) for member in members} != {(members[0].generation, size)}:
                raise RequestFailed(f"the members of {members[0].group} are not in one generation")
            done += size
        return done

    before()
    began = time.monotonic()
    async with asyncio.timeout(seconds + TIMEOUT_S):
        done = sum(await asyncio.gather(*(repeat(members, began + seconds) for members in crowds)))
    joins = Joins(done, time.monotonic() - began)
    for members in crowds:
        for member in members:
            await member.leave()
            await member.close()
    return joins
