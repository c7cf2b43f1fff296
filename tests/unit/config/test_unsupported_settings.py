"""Settings that would protect, or join a cluster, and do neither here."""

from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.config import known
from braidlog.config.broker import BrokerSettings
from braidlog.config.sources import load_settings
from braidlog.config.unsupported_settings import (
    UnsupportedSettingsError,
    check_changes,
    find_unsupported,
    unprotected,
    without_effect,
)
from braidlog.core.protocol_errors import InvalidConfigError

KRAFT = {"node.id": "1", "controller.listener.names": "CONTROLLER", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}

REFUSED = [
    {"client.quota.callback.class": "com.example.Quotas"},
    {"principal.builder.class": "com.example.Names"},
    {"password.encoder.secret": "hush"},
    {"quota.producer.default": "1048576"},
    {"quota.consumer.default": "1048576"},
    {"remote.log.storage.system.enable": "true"},
    {"control.plane.listener.name": "CONTROLLER"},
    {"zookeeper.metadata.migration.enable": "true"},
    {"zookeeper.ssl.crl.enable": "true"},
    {"zookeeper.ssl.ocsp.enable": "true"},
    {"controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093", **KRAFT},
    {"controller.quorum.voters": "2@b:9093", **KRAFT},
    {"controller.quorum.voters": "1@a:9093"},
    {"controller.quorum.bootstrap.servers": "localhost:9093,b:9093", **KRAFT},
    {"controller.quorum.bootstrap.servers": "localhost:9094", **KRAFT},
    {"controller.quorum.bootstrap.servers": "b:9093", **KRAFT},
    {"process.roles": "broker", **KRAFT},
    {"process.roles": "controller", **KRAFT},
]
HARMLESS = [
    {"authorizer.class.name": ""},
    {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:admin"},
    {"allow.everyone.if.no.acl.found": "false"},
    {"authorizer.zookeeper.url": "z:2181", "zookeeper.connect": "z:2181"},
    {"create.topic.policy.class.name": ""},
    {"create.topic.policy.class.name": "example.policies:create", "alter.config.policy.class.name": "a:b.c"},
    {"principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"},
    {"ssl.client.auth": "required"},
    {"listener.name.plaintext.ssl.client.auth": "required"},
    {"connections.max.reauth.ms": "3600000"},
    {"quota.producer.default": str(2**63 - 1)},
    {"remote.log.storage.system.enable": "false"},
    {"zookeeper.connect": ""},
    {"zookeeper.connect": "z1:2181,z2:2181/kafka"},
    {"control.plane.listener.name": ""},
    {"zookeeper.metadata.migration.enable": "false"},
    {"controller.quorum.voters": "1@a:9093", **KRAFT},
    {"controller.quorum.bootstrap.servers": "localhost:9093", **KRAFT},
    {"process.roles": "controller,broker", **KRAFT},
    # Parameters of TLS and SASL alone keep nobody out in Kafka either.
    {"ssl.keystore.location": "/k", "ssl.keystore.password": "x", "sasl.enabled.mechanisms": "PLAIN"},
    {"num.io.threads": "4", "quota.window.num": "5", "zookeeper.session.timeout.ms": "1"},
]


def assignments(texts: dict[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in texts.items()]


@pytest.mark.parametrize("texts", REFUSED, ids=lambda texts: "=".join(next(iter(texts.items()))))
def test_a_start_is_refused_until_it_is_allowed(texts: dict[str, str]) -> None:
    key = next(iter(texts))
    with pytest.raises(UnsupportedSettingsError) as refused:
        load_settings(None, {}, assignments(texts))
    (refusal,) = refused.value.refusals
    assert refusal.key == key
    assert refusal.text.startswith(f"--set {key}: {key} has no effect (")
    assert refusal.advice.endswith(f"braidlog.allow.settings.without.effect={key}")
    assert "hush" not in str(refused.value)
    for allowed in (key, "*", f"my.own, {key}"):
        loaded = load_settings(None, {}, [*assignments(texts), f"braidlog.allow.settings.without.effect={allowed}"])
        (warning,) = loaded.warnings
        assert warning.startswith(f"{key} has no effect (")
    with pytest.raises(UnsupportedSettingsError):
        load_settings(None, {}, [*assignments(texts), "braidlog.allow.settings.without.effect=num.partitions"])


@pytest.mark.parametrize("texts", HARMLESS, ids=lambda texts: "=".join(next(iter(texts.items()))))
def test_a_value_that_asks_for_nothing_is_no_trouble(texts: dict[str, str]) -> None:
    assert load_settings(None, {}, assignments(texts)).warnings == []


def test_every_refused_setting_is_tried_here() -> None:
    every = [*known.broker_settings(), *known.dynamic_only_settings().values(), *known.unlisted_settings().values()]
    protecting = {setting.key for setting in every if setting.protects is not None and setting.no_effect is not None}
    assert protecting <= {key for texts in REFUSED for key in texts}
    for setting in every:
        assert setting.harmless is None or setting.protects is not None, setting.key
        assert setting.protects is None or not setting.protects.endswith("."), setting.key


def test_what_an_authorizer_reads_by_itself_is_known() -> None:
    file = ["authorizer.zookeeper.session.timeout.ms=18000", "authorizer.zookeeper.ssl.client.enable=false"]
    loaded = load_settings(None, {"KAFKA_ALLOW_EVERYONE_IF_NO_ACL_FOUND": "TRUE"}, file)
    assert loaded.warnings == []
    assert loaded.settings.get("allow.everyone.if.no.acl.found") is True
    assert without_effect(loaded.settings) == []


def test_all_refusals_come_at_once_with_the_place_of_each(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\npassword.encoder.secret=s\nfoo.bar=1\n")
    with pytest.raises(UnsupportedSettingsError) as refused:
        load_settings(str(file), {"KAFKA_CONTROL_PLANE_LISTENER_NAME": "C"}, ["quota.producer.default=5"])
    lines = str(refused.value).split("\n")
    assert [line.partition(": ")[0] for line in lines] == [
        f"{file}:2", "environment variable KAFKA_CONTROL_PLANE_LISTENER_NAME", "--set quota.producer.default",
    ]  # fmt: skip
    assert refused.value.warnings == [f"{file}:3: unknown setting foo.bar"]
    assert refused.value.settings.get("num.partitions") == 1


def test_the_allowance_of_a_setting_holds_for_each_listener() -> None:
    texts = {"listener.name.a.principal.builder.class": "a.B"}
    allowed = "braidlog.allow.settings.without.effect"
    assert load_settings(None, {}, [*assignments(texts), f"{allowed}=principal.builder.class"]).warnings != []
    variable = "BRAIDLOG_ALLOW_SETTINGS_WITHOUT_EFFECT"
    assert load_settings(None, {variable: "principal.builder.class"}, assignments(texts)).warnings != []


def test_a_setting_with_an_effect_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = known.broker_setting("principal.builder.class")
    assert setting is not None
    monkeypatch.setattr(setting, "no_effect", None)
    assert find_unsupported(BrokerSettings({"principal.builder.class": "a.B"}), {}) == []


def test_changes_at_run_time() -> None:
    change = {"listener.name.plaintext.principal.builder.class": "a.B"}
    with pytest.raises(InvalidConfigError, match=r"listener.name.plaintext.principal.builder.class has no effect \("):
        check_changes(change, BrokerSettings())
    with pytest.raises(InvalidConfigError, match=r"quota.producer.default has no effect \("):
        check_changes({"quota.producer.default": "5"}, BrokerSettings())
    check_changes({"ssl.client.auth": "none", "log.retention.ms": "5"}, BrokerSettings())
    check_changes(change, BrokerSettings({"braidlog.allow.settings.without.effect": "principal.builder.class"}))
    # One that was written before the start is no reason to refuse another.
    check_changes({"log.retention.ms": "5"}, BrokerSettings({"principal.builder.class": "a.B"}))
    stored, _ = BrokerSettings().with_dynamic(default={}, broker=change)
    assert len(unprotected(stored)) == 1


def test_the_others_without_effect_are_listed() -> None:
    settings = BrokerSettings(
        {"num.io.threads": "3", "principal.builder.class": "a.B", "num.partitions": "2", "my.own": "1",
         "listener.name.a.ssl.engine.factory.class": "a.B"},
        dynamic_default={"background.threads": "3"},
    )  # fmt: skip
    names = ["background.threads", "listener.name.a.ssl.engine.factory.class", "num.io.threads"]
    assert without_effect(settings) == names
    assert without_effect(BrokerSettings({"num.partitions": "3"})) == []
