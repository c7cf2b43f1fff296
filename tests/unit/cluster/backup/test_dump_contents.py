from __future__ import annotations

import pytest

from braidlog.cluster import paths
from braidlog.cluster.backup.dump_contents import (
    Contents,
    is_ephemeral_place,
    is_kafkas,
    is_notification,
    without_secrets,
)
from braidlog.cluster.records import decode_config, encode_config


def test_nodes_of_other_applications_are_none_of_a_clusters() -> None:
    assert is_kafkas("/brokers/topics/a")
    assert not is_kafkas("/zookeeper/quota")
    assert not is_kafkas("/brokersx")
    for path in (*paths.PERSISTENT_PATHS, paths.LITERAL_ACLS, paths.PREFIXED_ACL_CHANGES, paths.DELEGATION_TOKENS):
        assert is_kafkas(path), path


@pytest.mark.parametrize("change", [paths.CONFIG_CHANGE, paths.ISR_CHANGE, paths.LOG_DIR_EVENT, paths.TOKEN_CHANGE])
def test_notifications_are_told_from_what_they_are_about(change: str) -> None:
    assert is_notification(f"{change}0000000007")
    assert not is_notification(paths.CONFIG_CHANGES)
    assert not is_notification("/config/topics/config_change_0000000007")


def test_places_of_ephemeral_nodes() -> None:
    assert is_ephemeral_place("/controller")
    assert is_ephemeral_place("/brokers/ids/1")
    assert not is_ephemeral_place("/brokers/ids")


def test_credentials_tokens_and_passwords_are_secret() -> None:
    user = encode_config({"SCRAM-SHA-512": "salt=…", "producer_byte_rate": "1000"})
    kept, secrets = without_secrets("/config/users/alice", user)
    assert kept is not None
    assert (decode_config("/", kept), secrets) == ({"producer_byte_rate": "1000"}, 1)
    assert without_secrets("/config/users/alice/clients/SCRAM-x", user) == (user, 0)
    assert without_secrets("/delegation_token/tokens/abc", b"{}") == (None, 1)
    broker = encode_config(
        {
            "ssl.keystore.password": "a",
            "listener.name.x.ssl.key.password": "b",
            "log.cleaner.threads": "2",
            "ssl.keystore.pasword": "c",
        }
    )
    kept, secrets = without_secrets("/config/brokers/1", broker)
    assert kept is not None
    assert (decode_config("/", kept), secrets) == ({"log.cleaner.threads": "2"}, 3)


def test_what_cannot_be_read_may_be_a_secret() -> None:
    assert without_secrets("/config/users/alice", b"SCRAM") == (b"", 1)
    assert without_secrets("/config/topics/a", b"whatever") == (b"whatever", 0)


def test_contents_are_counted_by_kind() -> None:
    contents = Contents()
    for path in (
        "/brokers/topics/a",
        "/brokers/topics/a/partitions",
        "/brokers/topics/a/partitions/0/state",
        "/config/topics/a",
        "/config/changes",
        "/config/users/alice",
        "/kafka-acl/Topic/a",
        "/kafka-acl-extended/prefixed/Topic/a",
        "/delegation_token/tokens/x",
    ):
        contents.count(path)
    assert contents == Contents(nodes=9, topics=1, partitions=1, configs=1, users=1, acls=2, tokens=1)
