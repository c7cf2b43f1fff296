from __future__ import annotations

import struct

import pytest
from kazoo import exceptions as kazoo_errors
from kazoo.protocol import serialization
from kazoo.protocol.states import ZnodeStat

from braidlog.cluster.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NoChildrenForEphemeralsError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SetData,
    Stat,
    StoreError,
)
from braidlog.cluster.zookeeper.kazoo_requests import ALL, OPEN, READ, Acl, KazooRequests, acls_of
from braidlog.cluster.zookeeper.session_connection import (
    ConnectionLostError,
    Exists,
    GetChildren,
    GetData,
    GetMany,
    Request,
    Sync,
    Transact,
)

BELOW = KazooRequests("/kafka", secure_acls=False)
RAW = ZnodeStat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
STAT = Stat(
    czxid=1, mzxid=2, pzxid=11, ctime_ms=3, mtime_ms=4, version=5, cversion=6, ephemeral_owner=8, num_children=10
)


def test_paths_go_below_the_chroot_and_back() -> None:
    assert (BELOW.full_path("/"), BELOW.full_path("/a/b")) == ("/kafka", "/kafka/a/b")
    assert (BELOW.path_below("/kafka"), BELOW.path_below("/kafka/a/b")) == ("/", "/a/b")
    plain = KazooRequests("", secure_acls=False)
    assert (plain.full_path("/"), plain.path_below("/"), plain.path_below("/a")) == ("/", "/", "/a")


def test_reads_and_their_answers() -> None:
    assert BELOW.encode(GetData("/a", True)) == serialization.GetData("/kafka/a", True)
    assert BELOW.decode(GetData("/a"), (b"x", RAW)) == Node(b"x", STAT)
    assert BELOW.decode(GetData("/a"), (None, RAW)) == Node(b"", STAT)
    assert BELOW.encode(Exists("/")) == serialization.Exists("/kafka", False)
    assert BELOW.decode(Exists("/"), None) is None
    assert BELOW.decode(Exists("/"), RAW) == STAT
    assert BELOW.encode(GetChildren("/a")) == serialization.GetChildren("/kafka/a", False)
    assert BELOW.encode(Sync()) == serialization.Sync("/")


def test_many_nodes_in_one_request() -> None:
    request = GetMany(["/a", "/ü", "/none"])
    encoded = BELOW.encode(request)
    head, end = struct.pack("!iBi", 4, 0, -1), struct.pack("!iBi", -1, 1, -1)
    texts = [path.encode() for path in ("/kafka/a", "/kafka/ü", "/kafka/none")]
    assert encoded.serialize() == b"".join(head + struct.pack("!i", len(t)) + t + b"\0" for t in texts) + end
    stat = struct.pack("!qqqqiiiqiiq", *RAW)
    answer = (
        b"before"
        + struct.pack("!iBi", 4, 0, 0) + struct.pack("!i", 2) + b"hi" + stat
        + struct.pack("!iBi", 4, 0, 0) + struct.pack("!i", -1) + stat
        + struct.pack("!iBi", -1, 0, -101) + struct.pack("!i", -101)
        + end
    )  # fmt: skip
    assert BELOW.decode(request, encoded.deserialize(answer, 6)) == [Node(b"hi", STAT), Node(b"", STAT), None]
    refused = struct.pack("!iBi", -1, 0, -102) + struct.pack("!i", -102)
    with pytest.raises(StoreError, match="ACL") as told:
        BELOW.decode(request, encoded.deserialize(refused * 3 + end, 0))
    assert told.value.path == "/a"


def test_operations_and_their_outcomes() -> None:
    operations: list[Operation] = [
        Create("/s-", b"", ephemeral=True, sequential=True),
        SetData("/a", b"x", 3),
        Delete("/b", 4),
        Check("/c", 5),
    ]
    request = Transact(operations)
    create, change, delete, check = BELOW.encode(request).operations
    assert (create.path, create.data, create.flags) == ("/kafka/s-", None, 3)
    assert change == serialization.SetData("/kafka/a", b"x", 3)
    assert delete == serialization.Delete("/kafka/b", 4)
    assert check == serialization.CheckVersion("/kafka/c", 5)
    assert BELOW.decode(request, ["/kafka/s-0000000007", RAW, True, True]) == ["/s-0000000007", STAT, None, None]


@pytest.mark.parametrize(
    ("operation", "problem", "expected", "path"),
    [
        (Create("/a/b"), kazoo_errors.NoNodeError(), NoNodeError, "/a"),
        (Create("/a"), kazoo_errors.NodeExistsError(), NodeExistsError, "/a"),
        (Create("/a/b"), kazoo_errors.NoChildrenForEphemeralsError(), NoChildrenForEphemeralsError, "/a"),
        (SetData("/a", b"", 3), kazoo_errors.BadVersionError(), BadVersionError, "/a"),
        (Delete("/a"), kazoo_errors.NotEmptyError(), NotEmptyError, "/a"),
        (Delete("/a"), kazoo_errors.NoNodeError(), NoNodeError, "/a"),
        (Delete("/a"), kazoo_errors.MarshallingError(), StoreError, "/a"),
    ],
)
def test_the_operation_that_was_refused_is_told(
    operation: Operation, problem: Exception, expected: type[StoreError], path: str
) -> None:
    request = Transact([Check("/first", 1), operation, Check("/last", 1)])
    results = [kazoo_errors.RolledBackError(), problem, kazoo_errors.RuntimeInconsistency()]
    with pytest.raises(expected) as refused:
        BELOW.decode(request, results)
    assert (refused.value.operation, refused.value.path) == (1, path)
    assert type(refused.value) is expected


@pytest.mark.parametrize(
    ("request_", "problem", "expected"),
    [
        (GetData("/a"), kazoo_errors.NoNodeError(), NoNodeError),
        (Sync(), kazoo_errors.ConnectionLoss(), ConnectionLostError),
        (Sync(), kazoo_errors.ConnectionClosedError(), ConnectionLostError),
        (Sync(), kazoo_errors.SessionExpiredError(), SessionExpiredError),
        (GetMany(["/a"]), kazoo_errors.AuthFailedError(), SessionExpiredError),
    ],
)
def test_what_comes_instead_of_an_answer(request_: Request, problem: Exception, expected: type[Exception]) -> None:
    assert type(BELOW.problem(request_, problem)) is expected


CREATOR = Acl(ALL, "auth", "")


@pytest.mark.parametrize(
    "path",
    [
        "/config/users",
        "/config/users/alice",
        "/config/brokers/1",
        "/delegation_token/tokens",
        "/delegation_token/tokens/t",
    ],
)
def test_secrets_are_for_their_creator_alone(path: str) -> None:
    assert acls_of(path, secure=True) == (CREATOR,)


@pytest.mark.parametrize(
    "path",
    [
        "/brokers", "/controller", "/config/topics/t", "/delegation_token", "/consumers/group", "/kafka-acl/Topic/t",
        "/kafka-acl-extended/prefixed/User/u", "/kafka-acl-changes/acl_changes_0000000001",
    ],
)  # fmt: skip
def test_all_else_may_be_read(path: str) -> None:
    assert acls_of(path, secure=True) == (CREATOR, Acl(READ, "world", "anyone"))


def test_old_consumers_may_write_their_own_nodes() -> None:
    assert acls_of("/consumers", secure=True) == OPEN


def test_without_the_setting_everything_is_open() -> None:
    assert acls_of("/config/users", secure=False) == OPEN == (Acl(ALL, "world", "anyone"),)
