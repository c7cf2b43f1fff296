"""Which watches of which sessions wait for what, and which of them a transaction fires."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from braidlog.cluster.store import Watch, WatchEvent
from braidlog.cluster.tree import Change, events_of


class Watcher(Protocol):
    """A session: hears of its watches only while it is open."""

    @property
    def open(self) -> bool: ...


class WatchTable:
    """One-shot watches by path. The same watch set twice on a path by a session is one watch, as in ZooKeeper."""

    def __init__(self) -> None:
        self._data: dict[str, dict[tuple[Watcher, Watch], None]] = {}
        self._children: dict[str, dict[tuple[Watcher, Watch], None]] = {}

    def watch_data(self, path: str, session: Watcher, watch: Watch) -> None:
        self._data.setdefault(path, {})[session, watch] = None

    def watch_children(self, path: str, session: Watcher, watch: Watch) -> None:
        self._children.setdefault(path, {})[session, watch] = None

    def fire(self, changes: Sequence[Change]) -> list[tuple[Watch, WatchEvent]]:
        """Take out what these changes fire, in the order of the changes; each is called while its session is open."""
        if not self._data and not self._children:
            return []
        fired: list[tuple[Watch, WatchEvent]] = []
        notified: set[tuple[Watcher, Watch, WatchEvent]] = set()
        for event, of_children in events_of(changes):
            table = self._children if of_children else self._data
            for session, watch in table.pop(event.path, ()):
                # A watch on both the data and the children of a node hears of its deletion once.
                if (session, watch, event) not in notified:
                    notified.add((session, watch, event))
                    fired.append((_while_open(session, watch), event))
        return fired

    def forget(self, session: Watcher) -> None:
        for table in (self._data, self._children):
            for path in list(table):
                remaining = {key: None for key in table[path] if key[0] is not session}
                if remaining:
                    table[path] = remaining
                else:
                    del table[path]


def _while_open(session: Watcher, watch: Watch) -> Watch:
    def call(event: WatchEvent) -> None:
        if session.open:
            watch(event)

    return call
