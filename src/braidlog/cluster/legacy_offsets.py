"""Offsets in the coordination store, where version 0 of OffsetCommit and OffsetFetch keeps them.

```
/consumers/<group>/offsets/<topic>/<partition>    the offset, in decimal
```

There is neither metadata nor a group that could be asked for permission: the last commit wins.
"""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.cluster import paths
from braidlog.cluster.store import (
    CoordinationStore,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
)
from braidlog.core.protocol_errors import InvalidGroupIdError
from braidlog.core.types import TopicPartition


class LegacyOffsets:
    def __init__(self, store: CoordinationStore) -> None:
        self._store = store

    async def commit(self, group_id: str, offsets: Sequence[tuple[TopicPartition, int]]) -> None:
        """All of them or none."""
        _check_group(group_id)
        while True:
            try:
                await self._store.multi(await self._plan(group_id, offsets))
            except (NodeExistsError, NoNodeError):
                # Nodes were made or removed since they were listed.
                continue
            return

    async def _plan(self, group_id: str, offsets: Sequence[tuple[TopicPartition, int]]) -> list[Operation]:
        leaves = {paths.consumer_offset(group_id, place.topic, place.partition): offset for place, offset in offsets}
        # A dict as an ordered set: parents come before their children.
        above: dict[str, None] = {}
        for leaf in leaves:
            position = leaf.find("/", 1)
            while position != -1:
                above[leaf[:position]] = None
                position = leaf.find("/", position + 1)
        wanted = [*above, *leaves]
        missing = {path for path, node in zip(wanted, await self._store.get_many(wanted), strict=True) if node is None}
        plan: list[Operation] = [Create(path) for path in above if path in missing]
        for path, offset in leaves.items():
            data = str(offset).encode("ascii")
            plan.append(Create(path, data) if path in missing else SetData(path, data))
        return plan

    async def fetch(self, group_id: str, places: Sequence[TopicPartition]) -> list[int | None]:
        """None where nothing was committed, or what lies there is no number."""
        _check_group(group_id)
        nodes = await self._store.get_many(
            [paths.consumer_offset(group_id, place.topic, place.partition) for place in places]
        )
        return [None if node is None else _number(node.data) for node in nodes]


def _check_group(group_id: str) -> None:
    """The id becomes one component of a path."""
    if group_id in ("", ".", "..") or "/" in group_id or not group_id.isprintable():
        raise InvalidGroupIdError("version 0 stores offsets by path: the group id must be a plain name without slashes")


def _number(data: bytes) -> int | None:
    try:
        return int(data)
    except ValueError:
        return None
