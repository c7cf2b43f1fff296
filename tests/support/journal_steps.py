"""A small node tree built in three transactions, its journal frames, and everything a tree holds as one value."""

from __future__ import annotations

from braidlog.cluster.journal import encode_frame, encode_transaction
from braidlog.cluster.store import Create, Delete, Operation, SetData
from braidlog.cluster.tree import Transaction, Znode, ZnodeTree

STEPS: list[list[Operation]] = [
    [Create("/a", b"1"), Create("/a/ä", b"\0\xff")],
    [SetData("/a", b"22"), Create("/a/e", ephemeral=True)],
    [Delete("/a/ä"), Create("/s-", sequential=True)],
]


def build(steps: list[list[Operation]] = STEPS) -> tuple[ZnodeTree, list[Transaction]]:
    tree = ZnodeTree()
    done = [tree.transact(step, place + 1, 1000 + place, 7)[0] for place, step in enumerate(steps)]
    return tree, done


def dump(node: Znode, path: str = "") -> dict[str, tuple[object, ...]]:
    shown: dict[str, tuple[object, ...]] = {path or "/": (node.data, *node.stat(), node.created_children)}
    for name, child in (node.children or {}).items():
        shown |= dump(child, f"{path}/{name}")
    return shown


def frames(transactions: list[Transaction]) -> list[bytes]:
    return [encode_frame([encode_transaction(each)]) for each in transactions]
