"""Brokers with an authorizer that are asked over their sockets: Apache Kafka 3.9 on ZooKeeper or by itself, and ours.

Rules are made and unmade by the super user `admin`, as whom the brokers speak to each other, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tools.peers.kafka import free_port, start_kafka, start_kafka_with_zookeeper, start_zookeeper

from braidlog.security.acls import Acl, AclOperation, AclResourceType, PatternType, Permission
from braidlog.wire.apis import api_by_name
from braidlog.wire.generated.api_versions import ApiVersionsRequest
from braidlog.wire.generated.create_acls import AclCreation, CreateAclsRequest
from braidlog.wire.generated.create_delegation_token import CreateDelegationTokenRequest
from braidlog.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from braidlog.wire.generated.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from braidlog.wire.generated.describe_acls import DescribeAclsRequest
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from braidlog.wire.generated.offset_commit import OffsetCommitRequest
from braidlog.wire.generated.produce import ProduceRequest
from support.authorization_matrix import ADMIN, ALICE, ANONYMOUS, Probe, World, from_plain, gist
from support.authorization_probes import COMMITTED, GROUP, OWNER, TOPIC, TXN, produce
from support.broker import start_braidlog
from support.eventually import eventually
from support.raw import RawConnection
from support.raw_logins import log_in

PASSWORD: Final = "not-a-secret"
ZOOKEEPER: Final = "zookeeper"
KRAFT: Final = "kraft"
_JVM: Final = ("-Xmx384M", "-Xms128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_ANY: Final = 1


class Peer:
    """A broker, connections to it of everybody, and what is in it."""

    def __init__(self, open_port: int, login_port: int) -> None:
        self.users = {
            ALICE: log_in(login_port, ALICE, PASSWORD),
            ADMIN: log_in(login_port, ADMIN, PASSWORD),
            ANONYMOUS: RawConnection(open_port),
        }
        self.world = World()

    @property
    def admin(self) -> RawConnection:
        return self.users[ADMIN]

    def serves(self, probe: Probe) -> bool:
        versions: Any = self.admin.ask("ApiVersions", 0, ApiVersionsRequest())
        return api_by_name(probe.api).key in {each.api_key for each in versions.api_keys}

    def ask(self, user: str, probe: Probe) -> str:
        return gist(self.users[user].ask(probe.api, probe.version, probe.message(self.world)))

    def rules(self, acls: Iterable[Acl]) -> None:
        """Instead of those before."""
        wanted = tuple(acls)
        everything = DeleteAclsFilter(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        )
        deleted: Any = self.admin.ask("DeleteAcls", 2, DeleteAclsRequest(filters=[everything]))
        assert [each.error_code for each in deleted.filter_results] == [0], deleted
        if wanted:
            created: Any = self.admin.ask("CreateAcls", 2, CreateAclsRequest(creations=[_creation(a) for a in wanted]))
            assert {each.error_code for each in created.results} == {0}, created
        # The controller of KRaft has them a moment before the broker.
        eventually(lambda: self._rules() == set(wanted))

    def _rules(self) -> set[Acl]:
        request = DescribeAclsRequest(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        )
        found: Any = self.admin.ask("DescribeAcls", 2, request)
        return {
            Acl(
                AclResourceType(resource.resource_type),
                resource.resource_name,
                acl.principal,
                AclOperation(acl.operation),
                Permission(acl.permission_type),
                acl.host,
                PatternType(resource.pattern_type),
            )
            for resource in found.resources
            for acl in resource.acls
        }

    def prepare(self) -> None:
        """What the probes are about."""
        admin = self.admin
        eventually(self._has_topic)
        eventually(lambda: self._coordinates(GROUP, 0) and self._coordinates(TXN, 1))
        produced = from_plain(ProduceRequest, produce())
        eventually(lambda: gist(admin.ask("Produce", 9, produced)) == f"[{TOPIC} [0]]")
        offsets = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "topics": COMMITTED}
        commit = from_plain(OffsetCommitRequest, offsets)
        eventually(lambda: gist(admin.ask("OffsetCommit", 8, commit)) == f"[{TOPIC} [0]]")
        initialise = InitProducerIdRequest(transactional_id=TXN, transaction_timeout_ms=60_000)
        eventually(lambda: _code(admin.ask("InitProducerId", 4, initialise)) == 0)
        wanted = CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name=OWNER, max_lifetime_ms=-1
        )
        token: Any = admin.ask("CreateDelegationToken", 3, wanted)
        assert token.error_code == 0, token
        self.world.token_id, self.world.hmac = token.token_id, bytes(token.hmac)

    def _has_topic(self) -> bool:
        """A broker that has just started may not have been announced."""
        topics = [CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)]
        created: Any = self.admin.ask("CreateTopics", 7, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
        self.world.topic_id = bytes(created.topics[0].topic_id)
        return _code(created.topics[0]) == 0

    def _coordinates(self, key: str, kind: int) -> bool:
        return _code(self.admin.ask("FindCoordinator", 3, FindCoordinatorRequest(key=key, key_type=kind))) == 0

    def close(self) -> None:
        for connection in self.users.values():
            connection.close()


def _code(answer: Any) -> int:
    return int(answer.error_code)


def _creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _settings(mode: str, ports: Mapping[str, int], authorizer: str) -> dict[str, str]:
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in (ADMIN, ALICE))
    own = f'username="{ADMIN}" password="{PASSWORD}"'
    listeners = {name: f"{name}://127.0.0.1:{port}" for name, port in ports.items()}
    clients = ("OPEN", "LOGIN")
    protocols = "OPEN:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"
    settings = {
        "listeners": ",".join(listeners[name] for name in (clients if mode == ZOOKEEPER else listeners)),
        "advertised.listeners": ",".join(listeners[name] for name in clients),
        "listener.security.protocol.map": protocols,
        "inter.broker.listener.name": "LOGIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f"{_PLAIN} {own} {users};",
        "authorizer.class.name": authorizer,
        "super.users": f"User:{ADMIN}",
        "delegation.token.secret.key": "not-a-secret",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "auto.leader.rebalance.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
    }
    if mode == KRAFT:
        settings |= {
            "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": f"{_PLAIN} {own} {users};",
            "group.coordinator.rebalance.protocols": "classic,consumer",
            "group.coordinator.new.enable": "true",
        }
    return settings


@contextmanager
def start_kafka_peer(mode: str, place: Path) -> Iterator[Peer]:
    ports = {name: free_port() for name in ("OPEN", "LOGIN", "CONTROLLER")}
    data = place / "kafka"
    data.mkdir()
    if mode == KRAFT:
        settings = _settings(mode, ports, "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
        with start_kafka(data, ports["OPEN"], settings, _JVM):
            yield from _prepared(ports)
    else:
        settings = _settings(mode, ports, "kafka.security.authorizer.AclAuthorizer")
        with (
            start_zookeeper(place) as zookeeper,
            start_kafka_with_zookeeper(data, zookeeper, ports["OPEN"], settings, _JVM),
        ):
            yield from _prepared(ports)


@contextmanager
def start_own_peer(mode: str, place: Path) -> Iterator[Peer]:
    """On ZooKeeper where Kafka is: then it has the requests between brokers as well, here on any listener."""
    ports = {name: free_port() for name in ("OPEN", "LOGIN")}
    settings = _settings(ZOOKEEPER, ports, "kafka.security.authorizer.AclAuthorizer")
    if mode == KRAFT:
        with start_braidlog(place / "data", settings, port=ports["OPEN"]):
            yield from _prepared(ports)
        return
    (place / "zookeeper").mkdir()
    with start_zookeeper(place / "zookeeper") as zookeeper:
        settings |= {
            "zookeeper.connect": f"127.0.0.1:{zookeeper}",
            "broker.id": "1",
            "braidlog.inter.broker.requests.on.any.listener": "true",
        }
        with start_braidlog(place / "data", settings, port=ports["OPEN"]):
            yield from _prepared(ports)


def _prepared(ports: Mapping[str, int]) -> Iterator[Peer]:
    peer = Peer(ports["OPEN"], ports["LOGIN"])
    try:
        peer.prepare()
        yield peer
    finally:
        peer.close()
