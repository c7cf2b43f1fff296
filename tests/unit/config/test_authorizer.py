"""Settings of the authorizer: what they mean, and what cannot be had."""

from __future__ import annotations

import pytest

from braidlog.config.authorizer import CLASSES, AuthorizerSettings, authorizer_settings, authorizer_warnings
from braidlog.config.broker import BrokerSettings
from braidlog.config.sources import load_settings
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import InvalidConfigError


def read(**texts: str) -> AuthorizerSettings | None:
    return authorizer_settings(BrokerSettings({key.replace("_", "."): text for key, text in texts.items()}))


def test_without_a_class_there_is_none() -> None:
    assert read() is None
    assert read(authorizer_class_name="", super_users="User:a") is None


@pytest.mark.parametrize("name", CLASSES)
def test_either_of_kafkas_means_ours(name: str) -> None:
    assert read(authorizer_class_name=name) == AuthorizerSettings(frozenset(), False)
    assert read(
        authorizer_class_name=name, super_users=" User:a ;User:CN=b,O=c;", allow_everyone_if_no_acl_found="true"
    ) == (frozenset({"User:a", "User:CN=b,O=c"}), True)


@pytest.mark.parametrize("name", ["com.example.Authorizer", "kafka.security.auth.SimpleAclAuthorizer", "AclAuthorizer"])
def test_no_other_class_can_be_had(name: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"every client could do everything; kafka.security.authorizer.Acl"):
        read(authorizer_class_name=name)
    with pytest.raises(UserError, match=name):
        load_settings(None, {}, [f"authorizer.class.name={name}"])


@pytest.mark.parametrize("users", ["alice", "User:a;bob", "User:a,User:b;x"])
def test_a_super_user_has_a_type(users: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"super.users: .* such as User:alice"):
        read(authorizer_class_name=CLASSES[0], super_users=users)


def test_rules_cannot_be_in_another_zookeeper() -> None:
    with pytest.raises(InvalidConfigError, match=r"authorizer.zookeeper.url differs from zookeeper.connect"):
        read(authorizer_zookeeper_url="a:2181", zookeeper_connect="b:2181", authorizer_class_name=CLASSES[0])
    # Also for a broker that is alone, and for one that forgot to name the class.
    with pytest.raises(InvalidConfigError, match=r"authorizer.zookeeper.url differs"):
        read(authorizer_zookeeper_url="a:2181")
    with pytest.raises(InvalidConfigError, match=r"authorizer.zookeeper.ssl.client.enable differs from zookeeper.ssl"):
        read(authorizer_zookeeper_ssl_client_enable="true")
    assert read(authorizer_zookeeper_url="a:2181", zookeeper_connect="a:2181") is None
    assert read(authorizer_zookeeper_url="") is None


def test_super_users_without_an_authorizer_are_worth_a_word() -> None:
    (warning,) = authorizer_warnings(BrokerSettings({"super.users": "User:a"}))
    assert "every client can do everything" in warning
    assert load_settings(None, {}, ["super.users=User:a"]).warnings == [warning]
    assert authorizer_warnings(BrokerSettings({"super.users": "User:a", "authorizer.class.name": CLASSES[0]})) == []
    assert authorizer_warnings(BrokerSettings()) == []
