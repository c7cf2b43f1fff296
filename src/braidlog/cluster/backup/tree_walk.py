"""All nodes of a coordination tree, parents first and siblings by name, a bounded number of them in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final, NamedTuple

from braidlog.cluster.backup.dump_contents import is_kafkas
from braidlog.cluster.store import PERSISTENT, CoordinationStore, Node, NoNodeError
from braidlog.cluster.tree import Znode, ZnodeTree

# Read at a time; what lies below them is read together as well, where it is no more than this.
_CHUNK: Final = 500


class WalkedNode(NamedTuple):
    path: str
    data: bytes
    czxid: int
    mzxid: int
    version: int
    is_ephemeral: bool


def walk_tree(tree: ZnodeTree) -> Iterator[WalkedNode]:
    """Of a tree in memory."""
    waiting = _below(tree.root, "")
    while waiting:
        path, node = waiting.pop()
        yield WalkedNode(path, node.data, node.czxid, node.mzxid, node.version, node.owner != PERSISTENT)
        waiting += _below(node, path)


def _below(node: Znode, path: str) -> list[tuple[str, Znode]]:
    """Last first, since they are taken from the end."""
    children = sorted((node.children or {}).items(), reverse=True)
    return [(f"{path}/{name}", child) for name, child in children if path or is_kafkas(f"/{name}")]


async def walk_store(store: CoordinationStore) -> AsyncIterator[WalkedNode]:
    """Of a store that others may be changing meanwhile: every node as it was at some moment of the walk."""
    await store.sync()
    roots = [f"/{name}" for name in await store.children("/")]
    async for node in _walk(store, [root for root in roots if is_kafkas(root)]):
        yield node


async def _walk(store: CoordinationStore, paths: Sequence[str]) -> AsyncIterator[WalkedNode]:
    """These nodes, and after each of them what is below it."""
    for first in range(0, len(paths), _CHUNK):
        chunk = paths[first : first + _CHUNK]
        found = [(path, node) for path, node in zip(chunk, await store.get_many(chunk), strict=True) if node]
        children = await asyncio.gather(*(_children(store, path, node) for path, node in found))
        together = [child for each in children for child in each]
        if len(together) <= _CHUNK:
            below = _walk(store, together)
            next_below = await anext(below, None)
            for path, node in found:
                yield _walked(path, node)
                while next_below is not None and next_below.path.startswith(f"{path}/"):
                    yield next_below
                    next_below = await anext(below, None)
        else:
            for (path, node), own in zip(found, children, strict=True):
                yield _walked(path, node)
                async for each in _walk(store, own):
                    yield each


async def _children(store: CoordinationStore, path: str, node: Node) -> list[str]:
    if not node.stat.num_children:
        return []
    try:
        return [f"{path}/{name}" for name in await store.children(path)]
    except NoNodeError:  # deleted since
        return []


def _walked(path: str, node: Node) -> WalkedNode:
    stat = node.stat
    return WalkedNode(path, node.data, stat.czxid, stat.mzxid, stat.version, stat.ephemeral_owner != PERSISTENT)
