"""Follows what lies in the store through notifications: read as a whole at start, then what a notification names.

    /config/changes/config_change_0000000007             {"version":2,"entity_path":"topics/orders"}
    /delegation_token/token_changes/token_change_0000000007     <token id>
    /kafka-acl-changes/acl_changes_0000000007                   TOPIC:orders

A notification says only what to read again. They are numbered and purged after a while: after a session was lost
everything is read anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Final

from braidlog.cluster.store import (
    CoordinationStore,
    SessionExpiredError,
    StoreConnectionError,
    StoreFailedError,
    WatchEvent,
)
from braidlog.core.tasks import Tasks

log = logging.getLogger("braidlog.settings")

_NONE_YET: Final = -1
_RETRY_S: Final = 1.0


class ChangeNotificationListener:
    """A subclass reads: everything, or what some notifications name."""

    # Where the notifications lie, and of what they tell.
    notifications_path: ClassVar[str]
    subject: ClassVar[str]

    def __init__(self, store: CoordinationStore, tasks: Tasks) -> None:
        self._store = store
        self._tasks = tasks
        # The highest number whose change was read.
        self._last_change = _NONE_YET
        self._watching = False
        self._one_at_a_time = asyncio.Lock()

    async def _load(self) -> None:
        """Read everything."""
        raise NotImplementedError

    async def _read_changed(self, notifications: Mapping[str, bytes]) -> None:
        """Read again what these name; they are in the order in which they came, by path."""
        raise NotImplementedError

    async def start(self) -> None:
        """Read everything. The watch comes first: no change falls between."""
        async with self._one_at_a_time:
            self._watching = False
            # What is known already may have come from a server of the ensemble that is ahead of this session's.
            await self._store.sync()
            self._last_change = await self._newest(_NONE_YET)
            await self._load()

    def session_lost(self) -> None:
        """The watch is gone with it; the next session reads everything."""

    async def session_opened(self, session: CoordinationStore) -> None:
        self._store = session
        await self._try_or_retry(self.start)

    async def catch_up(self) -> None:
        """Once this returns every change is known that was in the store when it was called."""
        async with self._one_at_a_time:
            names = await self._names()
            found = [f"{self.notifications_path}/{name}" for name in names if _number(name) > self._last_change]
            if not found:
                return
            nodes = await self._store.get_many(found)
            # A node that is gone was purged: the one who did so is newer than it.
            await self._read_changed(
                {path: node.data for path, node in zip(found, nodes, strict=True) if node is not None}
            )
            self._last_change = max(_number(name) for name in names)

    async def _newest(self, default: int) -> int:
        return max((_number(name) for name in await self._names()), default=default)

    async def _names(self) -> list[str]:
        if self._watching:
            return await self._store.children(self.notifications_path)
        # Before the call, as the watch may fire before it returns.
        self._watching = True
        try:
            return await self._store.children(self.notifications_path, self._changed)
        except Exception:
            self._watching = False
            raise

    def _changed(self, event: WatchEvent) -> None:
        self._watching = False
        self._tasks.spawn(f"changes of {self.subject}", self._try_or_retry(self.catch_up))

    async def _try_or_retry(self, read: Callable[[], Awaitable[None]]) -> None:
        """Where the store does not answer, go on; it is read in the background once that is possible."""
        if not await self._tried(read):
            self._tasks.spawn(f"reading {self.subject}", self._try_again(read))

    async def _try_again(self, read: Callable[[], Awaitable[None]]) -> None:
        done = False
        while not done:
            await asyncio.sleep(_RETRY_S)
            done = await self._tried(read)

    async def _tried(self, read: Callable[[], Awaitable[None]]) -> bool:
        """Whether there is nothing more to do: with the next session everything is read anyway."""
        try:
            await read()
        except StoreConnectionError as problem:
            log.warning("%s cannot be read now, it is tried again: %s", self.subject, problem)
            return False
        except (SessionExpiredError, StoreFailedError) as problem:
            log.warning("%s cannot be read in this session: %s", self.subject, problem)
        return True


def _number(name: str) -> int:
    digits = name.rpartition("_")[2]
    return int(digits) if digits.isdigit() else _NONE_YET
