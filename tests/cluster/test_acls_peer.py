"""Rules of access where Apache Kafka 3.9 and our brokers share an ensemble: each honours the other's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from braidlog.core.protocol_errors import NONE, ClusterAuthorizationFailedError
from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
)
from support.acl_requests import AUTHORIZER, LOGINS, create, creations, delete, describe
from support.broker import BRAIDLOG, KAFKA
from support.eventually import eventually
from support.mixed_cluster import MixedCluster, read_node, read_tree, zookeeper_client
from support.ports import lasting_port
from support.raw import RawConnection
from support.raw_logins import log_in

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka"), pytest.mark.timeout(600)]

KNOWN_WITHIN_S = 60.0
NOT_ALLOWED = ClusterAuthorizationFailedError.code
READ = Acl(AclResourceType.TOPIC, "orders", "User:ann", AclOperation.READ)
MAY_DESCRIBE = Acl(AclResourceType.CLUSTER, CLUSTER_NAME, "User:ann", AclOperation.DESCRIBE)
PREFIXED = READ._replace(resource_name="or", pattern_type=PatternType.PREFIXED, host="127.0.0.1")
DENIED = Acl(AclResourceType.GROUP, "gr\u00fc:\"pe'", "User:CN=a,O=b", AclOperation.ALL, Permission.DENY)
# One of each kind that there is.
ALL_KINDS = [
    READ,
    PREFIXED,
    DENIED,
    MAY_DESCRIBE,
    Acl(AclResourceType.TRANSACTIONAL_ID, "a%2Fb c", "User:*", AclOperation.WRITE),
    Acl(AclResourceType.DELEGATION_TOKEN, "t", "User:ann", AclOperation.DESCRIBE),
    Acl(AclResourceType.USER, "User:eve", "User:ann", AclOperation.CREATE_TOKENS, pattern_type=PatternType.PREFIXED),
    *(READ._replace(operation=each) for each in AclOperation if each > AclOperation.ANY),
]


class Guarded:
    """The cluster, and the port of each kind on which clients log in."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.cluster = cluster
        self.ports = {KAFKA: lasting_port(), BRAIDLOG: lasting_port()}
        self.open_ports = {KAFKA: cluster.kafka.port, BRAIDLOG: cluster.ours[0].port}
        members = (cluster.kafka, self.ports[KAFKA]), (cluster.ours[0], self.ports[BRAIDLOG])
        for member, port in members:
            member.settings |= (
                LOGINS | AUTHORIZER | {"listeners": f"PLAINTEXT://127.0.0.1:{member.port},CLIENTS://127.0.0.1:{port}"}
            )

    def code_for_ann(self, kind: str) -> int:
        with log_in(self.ports[kind], "ann", "a") as ann:
            return describe(ann)[0]

    def rules(self, kind: str) -> list[tuple[Any, ...]]:
        with log_in(self.ports[kind], "root", "r") as root:
            code, found = describe(root)
            assert code == NONE
            return found


@pytest.fixture(scope="module")
def guarded(
    apache_kafka: object,
    zookeeper: ZooKeeper,
    new_connect: Callable[[], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Guarded]:
    cluster = MixedCluster(zookeeper, tmp_path_factory.mktemp("acls"), new_connect(), {})
    made = Guarded(cluster)
    try:
        cluster.kafka.start()
        cluster.ours[0].start()
        cluster.agreed()
        yield made
    finally:
        cluster.end()


@pytest.mark.parametrize(("maker", "other"), [(KAFKA, BRAIDLOG), (BRAIDLOG, KAFKA)])
def test_a_rule_of_one_is_honoured_by_the_other(guarded: Guarded, maker: str, other: str) -> None:
    assert guarded.code_for_ann(maker) == guarded.code_for_ann(other) == NOT_ALLOWED
    with log_in(guarded.ports[maker], "root", "r") as root:
        assert create(root, *ALL_KINDS) == [NONE] * len(ALL_KINDS)
    eventually(lambda: guarded.rules(other) == sorted(set(ALL_KINDS)), KNOWN_WITHIN_S)
    eventually(lambda: guarded.code_for_ann(other) == NONE, KNOWN_WITHIN_S)
    # Denied there, denied here.
    deny = MAY_DESCRIBE._replace(permission=Permission.DENY, operation=AclOperation.ALL, host="127.0.0.1")
    with log_in(guarded.ports[other], "root", "r") as root:
        assert create(root, deny) == [NONE]
    eventually(lambda: guarded.code_for_ann(maker) == NOT_ALLOWED, KNOWN_WITHIN_S)
    # Removed there, unknown here.
    with log_in(guarded.ports[other], "root", "r") as root:
        assert delete(root, AclFilter()) == [(NONE, sorted({*ALL_KINDS, deny}))]
    eventually(lambda: guarded.rules(maker) == [], KNOWN_WITHIN_S)


def test_both_write_the_same(guarded: Guarded) -> None:
    trees: dict[str, dict[str, Any]] = {}
    notices: dict[str, list[Any]] = {}
    with zookeeper_client(guarded.cluster.connect) as client:

        def changes() -> list[str]:
            return sorted(
                f"{directory}/{name}"
                for directory in ("/kafka-acl-changes", "/kafka-acl-extended-changes")
                for name in client.get_children(directory)
            )

        for kind in (KAFKA, BRAIDLOG):
            before = changes()
            with log_in(guarded.ports[kind], "root", "r") as root:
                # One at a time: Kafka writes those of a request in an order of its own.
                for acl in ALL_KINDS:
                    assert create(root, acl) == [NONE]
            trees[kind] = {
                f"{root_path}{path}": (_sorted_rules(node.data), node.is_ephemeral, node.acl)
                for root_path in ("/kafka-acl", "/kafka-acl-extended")
                for path, node in read_tree(client, root_path).items()
            }
            new = [path for path in changes() if path not in before]
            notices[kind] = [(path.rstrip("0123456789"), read_node(client, path).data) for path in new]
            with log_in(guarded.ports[kind], "root", "r") as root:
                delete(root, AclFilter())
            other = BRAIDLOG if kind == KAFKA else KAFKA
            eventually(lambda at=other: guarded.rules(at) == [], KNOWN_WITHIN_S)  # type: ignore[misc]
    # Empty nodes are null in the one and empty in the other, which is the same to both.
    assert trees[BRAIDLOG] == trees[KAFKA]
    # Kafka also tells of rules that were there already: READ is among the operations.
    assert list(dict.fromkeys(map(str, notices[BRAIDLOG]))) == list(dict.fromkeys(map(str, notices[KAFKA])))


def _sorted_rules(data: Any) -> Any:
    if not data:
        return None
    return {**data, "acls": sorted(data["acls"], key=str)} if isinstance(data, dict) else data


def test_both_answer_the_same(guarded: Guarded) -> None:
    answers = {kind: answered(guarded.ports[kind], guarded.open_ports[kind]) for kind in (KAFKA, BRAIDLOG)}
    assert answers[BRAIDLOG] == answers[KAFKA]


def answered(port: int, open_port: int) -> dict[str, Any]:
    """What a broker says, by what was asked; all rules are gone afterwards."""
    found: dict[str, Any] = {}
    odd = {
        "empty name": READ._replace(resource_name=""),
        "slash": READ._replace(resource_name="a/b"),
        "space": READ._replace(resource_name="a b!"),
        "long": READ._replace(resource_name="x" * 300),
        "another cluster": MAY_DESCRIBE._replace(resource_name="x"),
        "every cluster": MAY_DESCRIBE._replace(resource_name="*"),
        "prefix of the cluster": MAY_DESCRIBE._replace(pattern_type=PatternType.PREFIXED),
        "prefix *": READ._replace(resource_name="*", pattern_type=PatternType.PREFIXED),
        "no host": READ._replace(host=""),
        "host name": READ._replace(host="not a host"),
        "another type of principal": READ._replace(principal="Group:x"),
        "no name": READ._replace(principal="User:"),
        "operation of another type": DENIED._replace(operation=AclOperation.IDEMPOTENT_WRITE),
    }
    with log_in(port, "root", "r") as root, log_in(port, "ann", "a") as ann:
        for what, acl in odd.items():
            reply: Any = root.ask("CreateAcls", 3, creations(acl))
            found[what] = reply.results[0].error_code
        # Types of resources, patterns, operations and permissions that a later version may have.
        for field in ("resource_type", "resource_pattern_type", "operation", "permission_type"):
            request = creations(READ)
            setattr(request.creations[0], field, 99)
            later: Any = root.ask("CreateAcls", 3, request)
            found[f"later {field}"] = later.results[0].error_code
        found["some good, some bad"] = create(root, READ, READ._replace(resource_name=""), PREFIXED, DENIED)
        found["the same twice"] = create(root, READ, READ)
        found["none"] = create(root)
        topic = AclFilter(AclResourceType.TOPIC, "orders")
        for pattern_type in PatternType:
            if pattern_type != PatternType.UNKNOWN:
                found[f"described by {pattern_type.name}"] = describe(root, topic._replace(pattern_type=pattern_type))
        for name in ("*", "", "x"):
            for pattern_type in (PatternType.LITERAL, PatternType.MATCH):
                which = AclFilter(resource_name=name, pattern_type=pattern_type)
                found[f"described {name!r} by {pattern_type.name}"] = describe(root, which)
        found["described all"] = describe(root, AclFilter(operation=AclOperation.ALL))
        found["described of everybody"] = describe(root, AclFilter(principal="User:*"))
        found["everything"] = describe(root)
        found["by a stranger"] = describe(ann)
        found["made by a stranger"] = create(ann, READ, PREFIXED)
        found["removed by a stranger"] = delete(ann, READ)
        found["removed nothing"] = delete(root, AclFilter(resource_name="nothing"), AclFilter(resource_name="a/b"))
        found["removed by the first that fits"] = delete(root, topic._replace(host="*"), topic)
        found["removed by match"] = delete(root, topic._replace(pattern_type=PatternType.MATCH))
        found["removed the rest"] = delete(root, AclFilter())
        found["removed again"] = delete(root, AclFilter())
    with RawConnection(open_port) as raw:
        found["without a login"] = describe(raw)
    return found
