"""Quotas where Apache Kafka 3.9 and our brokers share an ensemble: each follows what the other has written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from braidlog.core.protocol_errors import NONE
from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.wire.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from braidlog.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from braidlog.wire.generated.describe_client_quotas import DescribeClientQuotasRequest
from braidlog.wire.generated.metadata import MetadataRequest
from support.broker import BRAIDLOG, KAFKA
from support.eventually import eventually
from support.mixed_cluster import MixedCluster, read_tree, zookeeper_client
from support.raw import ask

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka"), pytest.mark.timeout(600)]

KNOWN_WITHIN_S = 60.0
Entity = dict[str, str | None]


class Quotas:
    def __init__(self, cluster: MixedCluster) -> None:
        self.cluster = cluster
        self.ports = {KAFKA: cluster.kafka.port, BRAIDLOG: cluster.ours[0].port}

    def set(self, kind: str, entity: Entity, **quotas: float | None) -> int:
        entry = RequestEntryData(
            entity=[RequestEntityData(entity_type=each, entity_name=name) for each, name in entity.items()],
            ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
        )
        answer: Any = ask(self.ports[kind], "AlterClientQuotas", 1, AlterClientQuotasRequest(entries=[entry]))
        return int(answer.entries[0].error_code)

    def described(self, kind: str) -> dict[frozenset[tuple[str, str | None]], dict[str, float]]:
        answer: Any = ask(self.ports[kind], "DescribeClientQuotas", 1, DescribeClientQuotasRequest())
        assert answer.error_code == NONE
        return {
            frozenset((part.entity_type, part.entity_name) for part in entry.entity): {
                value.key: value.value for value in entry.values
            }
            for entry in answer.entries
        }

    def throttle_ms(self, kind: str) -> int:
        """Of a request under the client id of these tests."""
        answer: Any = ask(self.ports[kind], "Metadata", 12, MetadataRequest(topics=None))
        return int(answer.throttle_time_ms)


@pytest.fixture(scope="module")
def quotas(
    apache_kafka: object,
    zookeeper: ZooKeeper,
    new_connect: Callable[[], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Quotas]:
    cluster = MixedCluster(zookeeper, tmp_path_factory.mktemp("quotas"), new_connect(), {})
    try:
        cluster.kafka.start()
        cluster.ours[0].start()
        cluster.agreed()
        yield Quotas(cluster)
    finally:
        cluster.end()


@pytest.mark.parametrize(("maker", "other"), [(KAFKA, BRAIDLOG), (BRAIDLOG, KAFKA)])
def test_what_one_sets_the_other_follows(quotas: Quotas, maker: str, other: str) -> None:
    entities: list[Entity] = [
        {"user": f"{maker} & co"},
        {"user": f"{maker} & co", "client-id": "app"},
        {"user": None, "client-id": None},
        {"client-id": "über"},
    ]
    for rate, entity in enumerate(entities, 1000):
        assert quotas.set(maker, entity, producer_byte_rate=rate, request_percentage=12.5) == NONE
    assert quotas.set(maker, {"ip": "10.0.0.1"}, connection_creation_rate=5) == NONE
    eventually(lambda: len(quotas.described(maker)) == len(quotas.described(other)) == 5, KNOWN_WITHIN_S)
    assert quotas.described(other) == quotas.described(maker)
    # Changed there, seen here; what is left is removed.
    for entity in entities:
        assert quotas.set(other, entity, producer_byte_rate=None, request_percentage=None) == NONE
    assert quotas.set(other, {"ip": "10.0.0.1"}, connection_creation_rate=None) == NONE
    eventually(lambda: not quotas.described(maker) and not quotas.described(other), KNOWN_WITHIN_S)


@pytest.mark.parametrize("maker", [KAFKA, BRAIDLOG])
def test_both_hold_a_client_to_what_one_was_told(quotas: Quotas, maker: str) -> None:
    assert quotas.set(maker, {"client-id": "raw"}, request_percentage=0.0001) == NONE
    for kind in (KAFKA, BRAIDLOG):
        eventually(lambda kind=kind: quotas.throttle_ms(kind) > 0, KNOWN_WITHIN_S)  # type: ignore[misc]
    assert quotas.set(maker, {"client-id": "raw"}, request_percentage=None) == NONE
    for kind in (KAFKA, BRAIDLOG):
        eventually(lambda kind=kind: quotas.throttle_ms(kind) == 0, KNOWN_WITHIN_S)  # type: ignore[misc]


def test_the_nodes_are_alike(quotas: Quotas) -> None:
    """A user's credentials stay beside its quotas, whoever writes them."""
    with zookeeper_client(quotas.cluster.connect) as client:
        found = {}
        for kind in (KAFKA, BRAIDLOG):
            assert quotas.set(kind, {"user": "u=1", "client-id": None}, consumer_byte_rate=7) == NONE
            new = ScramCredentialUpsertion(name="u=1", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")
            answer: Any = ask(
                quotas.ports[kind], "AlterUserScramCredentials", 0, AlterUserScramCredentialsRequest(upsertions=[new])
            )
            assert answer.results[0].error_code == NONE
            assert quotas.set(kind, {"user": "u=1"}, producer_byte_rate=1024, request_percentage=50) == NONE
            assert quotas.set(kind, {"ip": None}, connection_creation_rate=1000) == NONE
            tree = {
                kind_of: {path: node.data for path, node in read_tree(client, f"/config/{kind_of}").items() if path}
                for kind_of in ("users", "clients", "ips")
            }
            found[kind] = {
                kind_of: {path: data for path, data in nodes.items() if "u%3D1" in path or "default" in path}
                for kind_of, nodes in tree.items()
            }
            for path in ("/config/users/u%3D1", "/config/ips/<default>"):
                client.delete(path, recursive=True)
    assert found[BRAIDLOG] == found[KAFKA]
    assert set(found[BRAIDLOG]["users"]["/u%3D1"]["config"]) == {
        "SCRAM-SHA-256",
        "producer_byte_rate",
        "request_percentage",
    }
