from __future__ import annotations

import pytest

from braidlog.cluster.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    EventKind,
    InvalidPathError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
    WatchEvent,
)
from braidlog.cluster.tree import CREATE, DELETE, SET, Change, ZnodeTree, events_of
from support.journal_steps import build, dump

SESSION = 7


def test_changes_say_what_took_effect() -> None:
    tree = ZnodeTree()
    transaction, outcomes = tree.transact(
        [Create("/n-", b"x", ephemeral=True, sequential=True), Check("/", 0)], 1, 1000, SESSION
    )
    assert transaction.changes == (Change(CREATE, "/n-0000000000", b"x", SESSION),)
    assert outcomes == ["/n-0000000000", None]
    assert tree.ephemerals == {SESSION: {"/n-0000000000": None}}


def test_a_transaction_without_changes_takes_no_zxid() -> None:
    tree, _ = build()
    tree.transact([Check("/a", 1)], 9, 0, SESSION)
    assert tree.zxid == 3


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (Create("/a"), NodeExistsError),
        (Create("/"), NodeExistsError),
        (Create("/missing/b"), NoNodeError),
        (Create("/a/e/b"), NoChildrenForEphemeralsError),
        (SetData("/a", b"", 0), BadVersionError),
        (Check("/a", 0), BadVersionError),
        (Delete("/a"), NotEmptyError),
        (Delete("/"), InvalidPathError),
        (Delete("/missing"), NoNodeError),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else type(each).__name__ + each.path,
)
def test_a_refused_operation_undoes_those_before_it(refused: Operation, error: type[Exception]) -> None:
    tree, _ = build()
    before, ephemerals = dump(tree.root), {owner: dict(held) for owner, held in tree.ephemerals.items()}
    operations = [
        Create("/new"),
        Create("/new/child", b"1"),
        Create("/q-", ephemeral=True, sequential=True),
        SetData("/s-0000000001", b"changed"),
        Delete("/s-0000000001"),
        refused,
    ]
    with pytest.raises(error) as raised:
        tree.transact(operations, 4, 2000, SESSION)
    assert getattr(raised.value, "operation", None) == 5
    assert dump(tree.root) == before
    assert tree.ephemerals == ephemerals
    assert tree.zxid == 3


def test_a_deleted_ephemeral_comes_back_when_its_transaction_is_refused() -> None:
    tree, _ = build()
    with pytest.raises(NoNodeError):
        tree.transact([Delete("/a/e"), Delete("/missing")], 4, 2000, SESSION)
    assert tree.ephemerals == {SESSION: {"/a/e": None}}
    assert tree.node("/a/e").owner == SESSION


def test_find_returns_none_and_node_raises() -> None:
    tree, _ = build()
    assert tree.find("/a/e/deeper") is None
    with pytest.raises(NoNodeError):
        tree.node("/b")
    assert tree.find("/") is tree.root


def test_what_watchers_hear_of_each_change() -> None:
    assert events_of([Change(SET, "/a")]) == [(WatchEvent(EventKind.DATA_CHANGED, "/a"), False)]
    assert events_of([Change(CREATE, "/a/b")]) == [
        (WatchEvent(EventKind.CREATED, "/a/b"), False),
        (WatchEvent(EventKind.CHILDREN_CHANGED, "/a"), True),
    ]
    assert events_of([Change(DELETE, "/a")]) == [
        (WatchEvent(EventKind.DELETED, "/a"), False),
        (WatchEvent(EventKind.DELETED, "/a"), True),
        (WatchEvent(EventKind.CHILDREN_CHANGED, "/"), True),
    ]
