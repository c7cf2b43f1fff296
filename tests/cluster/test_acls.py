"""Rules of access in a cluster on ZooKeeper: made at one broker they hold on all, and over restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
)
from braidlog.testing import Cluster
from support.acl_requests import AUTHORIZER, LOGINS, create, delete, describe
from support.cluster import BASE_SETTINGS, agreed_view
from support.eventually import eventually
from support.mixed_cluster import zookeeper_client
from support.ports import lasting_port
from support.raw import RawConnection
from support.raw_logins import log_in

pytestmark = pytest.mark.timeout(300)

KNOWN_WITHIN_S = 60.0
NOT_ALLOWED = ClusterAuthorizationFailedError.code
MAY_DESCRIBE = Acl(AclResourceType.CLUSTER, CLUSTER_NAME, "User:ann", AclOperation.DESCRIBE)
READ = Acl(AclResourceType.TOPIC, "orders", "User:ann", AclOperation.READ)
PREFIXED = READ._replace(resource_name="or", pattern_type=PatternType.PREFIXED)


class Guarded:
    """Two brokers, and the ports on which their clients log in."""

    def __init__(self, cluster: Cluster, connect: str) -> None:
        self.brokers = cluster.brokers
        self.connect = connect
        self.ports = [lasting_port() for _ in self.brokers]
        for broker, port in zip(self.brokers, self.ports, strict=True):
            broker.settings |= {"listeners": f"PLAINTEXT://127.0.0.1:{broker.port},CLIENTS://127.0.0.1:{port}"}

    def code_for_ann(self, broker: int) -> int:
        with log_in(self.ports[broker], "ann", "a") as ann:
            return describe(ann)[0]

    def rules(self, broker: int) -> list[tuple[object, ...]]:
        with RawConnection(self.brokers[broker].port) as raw:
            code, found = describe(raw)
            assert code == NONE
            return found


@pytest.fixture(scope="module")
def guarded(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    connect = new_connect()
    settings = {**BASE_SETTINGS, **LOGINS, **AUTHORIZER, "zookeeper.connect": connect}
    cluster = Cluster(2, settings=settings, directory=tmp_path_factory.mktemp("acls"), zookeeper=zookeeper)
    made = Guarded(cluster, connect)
    with cluster:
        agreed_view(cluster.brokers, lambda view: len(view.brokers) == 2, KNOWN_WITHIN_S)
        yield made


def test_a_rule_of_one_broker_holds_on_the_other(guarded: Guarded) -> None:
    assert [guarded.code_for_ann(0), guarded.code_for_ann(1)] == [NOT_ALLOWED, NOT_ALLOWED]
    with log_in(guarded.ports[0], "root", "r") as root:
        assert create(root, MAY_DESCRIBE, READ, PREFIXED) == [NONE, NONE, NONE]
        # At once here, within moments there.
        assert guarded.code_for_ann(0) == NONE
    eventually(lambda: guarded.code_for_ann(1) == NONE, KNOWN_WITHIN_S)
    eventually(lambda: guarded.rules(1) == guarded.rules(0) == sorted([MAY_DESCRIBE, READ, PREFIXED]), KNOWN_WITHIN_S)
    # What the one made, the other removes at once, whatever it has heard of.
    with log_in(guarded.ports[1], "root", "r") as root:
        assert delete(root, AclFilter()) == [(NONE, sorted([MAY_DESCRIBE, READ, PREFIXED]))]
        assert guarded.code_for_ann(1) == NOT_ALLOWED
    eventually(lambda: guarded.code_for_ann(0) == NOT_ALLOWED, KNOWN_WITHIN_S)


def test_a_broker_that_was_away_has_the_rules_when_it_is_back(guarded: Guarded) -> None:
    guarded.brokers[1].stop()
    with log_in(guarded.ports[0], "root", "r") as root:
        assert create(root, MAY_DESCRIBE) == [NONE]
    guarded.brokers[1].start()
    assert guarded.code_for_ann(1) == NONE
    with log_in(guarded.ports[1], "root", "r") as root:
        assert delete(root, MAY_DESCRIBE) == [(NONE, [MAY_DESCRIBE])]


def test_a_node_that_cannot_be_read_denies_and_nothing_else_suffers(guarded: Guarded) -> None:
    cluster_rules = AclFilter(AclResourceType.CLUSTER)
    with log_in(guarded.ports[0], "root", "r") as root, zookeeper_client(guarded.connect) as client:
        assert create(root, MAY_DESCRIBE, READ) == [NONE, NONE]
        eventually(lambda: guarded.code_for_ann(1) == NONE, KNOWN_WITHIN_S)
        client.set(f"/kafka-acl/Cluster/{CLUSTER_NAME}", b"{")
        client.create("/kafka-acl-changes/acl_changes_", f"CLUSTER:{CLUSTER_NAME}".encode(), sequence=True)
        for broker in (0, 1):
            eventually(lambda at=broker: guarded.code_for_ann(at) == NOT_ALLOWED, KNOWN_WITHIN_S)  # type: ignore[misc]
            assert READ in guarded.rules(broker)
            assert "only super users may use cluster 'kafka-cluster'" in guarded.brokers[broker].log(200)
        # Removing it mends it.
        ((code, gone),) = delete(root, cluster_rules)
        assert (code, len(gone)) == (NONE, 1)
        assert create(root, MAY_DESCRIBE) == [NONE]
        eventually(lambda: guarded.code_for_ann(1) == NONE, KNOWN_WITHIN_S)
        delete(root, AclFilter())


def test_a_broker_that_the_others_would_refuse_says_so(guarded: Guarded) -> None:
    broker = guarded.brokers[1]
    assert "would refuse its requests" not in broker.log(1000)
    broker.stop()
    broker.settings["super.users"] = "User:root"
    said = "this broker is User:ANONYMOUS to the others of its cluster, which would refuse"
    try:
        # It will not be ready: the controller may not tell it of the cluster either.
        broker.begin()
        eventually(lambda: said in broker.log(1000), KNOWN_WITHIN_S)
    finally:
        broker.kill()
        broker.settings["super.users"] = AUTHORIZER["super.users"]
        broker.start()
