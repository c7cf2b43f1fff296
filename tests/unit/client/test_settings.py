import logging
import re

import pytest

from braidlog.client.definitions.other_clients import INSTEAD
from braidlog.client.errors import SettingError
from braidlog.client.settings import ADMIN, CONSUMER, PRODUCER, Settings, definitions


def test_names_in_snake_case_and_dotted_mean_the_same() -> None:
    keywords = Settings.of(PRODUCER, None, {"bootstrap_servers": "a:1,b:2", "linger_ms": 5, "acks": 1})
    mapping = Settings.of(PRODUCER, {"bootstrap.servers": "a:1,b:2", "linger.ms": "5", "acks": "1"})
    for settings in (keywords, mapping):
        assert settings.items("bootstrap.servers") == ("a:1", "b:2")
        assert settings.number("linger.ms") == 5
        assert settings.seconds("linger.ms") == 0.005
        assert settings.text("acks") == "1"


def test_keywords_win_over_the_mapping() -> None:
    assert Settings.of(PRODUCER, {"linger.ms": 1}, {"linger_ms": 2}).number("linger.ms") == 2


def test_a_time_without_its_unit_is_in_seconds() -> None:
    settings = Settings.of(PRODUCER, None, {"linger": 0.25, "max_block": 3, "delivery_timeout": "1.5"})
    assert settings.number("linger.ms") == 250
    assert settings.number("max.block.ms") == 3000
    assert settings.number("delivery.timeout.ms") == 1500


@pytest.mark.parametrize("value", ["soon", float("nan"), float("inf"), [1]])
def test_a_time_that_is_none_is_refused_with_both_ways_to_say_it(value: object) -> None:
    with pytest.raises(SettingError, match=r"linger=.*give seconds.*linger_ms"):
        Settings.of(PRODUCER, None, {"linger": value})


def test_what_was_not_given_has_its_default() -> None:
    settings = Settings.of(CONSUMER)
    assert settings.number("max.poll.records") == 500
    assert settings.optional_text("group.id") is None
    assert settings.flag("enable.auto.commit")
    assert not settings.is_given("max.poll.records")
    assert settings.items("partition.assignment.strategy") == ("range", "cooperative-sticky")


def test_none_means_the_default() -> None:
    assert Settings.of(CONSUMER, None, {"max_poll_records": None}).number("max.poll.records") == 500


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"linger_ms": -1}, "linger.ms.*0 or more"),
        ({"linger_ms": "much"}, "linger.ms.*whole number"),
        ({"linger_ms": True}, "linger.ms=True has the wrong type; give a whole number"),
        ({"acks": 2}, "acks.*one of all, -1, 0, 1"),
        ({"enable_idempotence": 1}, "enable.idempotence=1 has the wrong type; give True or False"),
        ({"compression_type": "rar"}, "compression.type.*one of none, gzip"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_right(given: dict[str, object], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Settings.of(PRODUCER, None, given)


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        (CONSUMER, "enable_auto_comit", "enable_auto_comit is not a setting of the consumer.*enable_auto_commit"),
        (PRODUCER, "lingr", "did you mean linger\\?"),
        (PRODUCER, "compression", "did you mean compression_type\\?"),
        (PRODUCER, "value_deserializer", "did you mean value_serializer\\?"),
        (PRODUCER, "group_id", "not a setting of the producer but of the consumer; leave it out"),
        (ADMIN, "nonsense", "not a setting of the admin client; docs/CLIENT_SETTINGS.md"),
        (PRODUCER, "config", "the mapping as the first argument"),
    ],
)
def test_an_unknown_keyword_is_refused_with_a_suggestion(kind: str, name: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Settings.of(kind, None, {name: 1})


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        (CONSUMER, "enable.auto.comit", "did you mean enable.auto.commit\\?"),
        (PRODUCER, "lingr.ms", "did you mean linger.ms\\?"),
        (PRODUCER, "compression", "did you mean compression.type\\?"),
        (CONSUMER, "max_pol_records", "did you mean max.poll.records\\?"),
        (PRODUCER, "nonsense", "docs/CLIENT_SETTINGS.md"),
    ],
)
def test_a_misspelt_name_in_a_mapping_is_refused_too(kind: str, name: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Settings.of(kind, {name: 1})


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        (CONSUMER, "sasl_plain_username", "use sasl_username"),
        (PRODUCER, "ssl_cafile", "use ssl_truststore_location; a PEM file"),
        (CONSUMER, "consumer_timeout_ms", r"poll\(timeout\)"),
        (PRODUCER, "api_version", "leave it out"),
        (CONSUMER, "loop", "leave it out"),
    ],
)
def test_what_another_library_calls_it_is_told_with_our_name(kind: str, name: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Settings.of(kind, None, {name: "hush"})


def test_names_of_librdkafka_are_answered_in_dots() -> None:
    with pytest.raises(SettingError, match=r"use ssl\.truststore\.location"):
        Settings.of(CONSUMER, {"ssl.ca.location": "/ca.pem"})
    with pytest.raises(SettingError, match=r"set enable\.auto\.commit to false"):
        Settings.of(CONSUMER, {"enable.auto.offset.store": False})


def test_what_is_said_instead_names_settings_that_there_are() -> None:
    known = {name for kind in (ADMIN, PRODUCER, CONSUMER) for name in definitions(kind)}
    for theirs, text in INSTEAD.items():
        assert theirs not in known
        named = set(re.findall(r"\{([^}]*)\}", text))
        assert named <= known, theirs


def test_a_mapping_may_serve_other_programs_too(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Settings.of(PRODUCER, {"schema.registry.url": "http://x", "group.id": "g"})
    assert caplog.messages == ["unused producer settings: group.id, schema.registry.url"]


def test_a_refusal_does_not_show_what_may_be_a_secret() -> None:
    for given in ({"sasl_pasword": "hush"}, {"sasl_plain_password": "hush"}):
        with pytest.raises(SettingError) as caught:
            Settings.of(PRODUCER, None, given)
        assert "hush" not in str(caught.value)


def test_settings_that_are_no_mapping_are_refused_with_what_to_write() -> None:
    with pytest.raises(SettingError, match=r"consumer\.subscribe\(\['orders'\]\)"):
        Settings.of(CONSUMER, "orders")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="bootstrap_servers='HOST:PORT'"):
        Settings.of(PRODUCER, "localhost:9092")  # type: ignore[arg-type]


def test_names_of_old_clients_are_translated_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        settings = Settings.of(
            PRODUCER,
            {
                "request.required.acks": -1,
                "queue.buffering.max.ms": 7,
                "producer.type": "async",
                "batch.num.messages": 1,
            },
        )
    assert settings.text("acks") == "-1"
    assert settings.number("linger.ms") == 7
    assert len(caplog.messages) == 4
    assert "use acks" in caplog.messages[0]


def test_secrets_are_not_shown() -> None:
    settings = Settings.of(ADMIN, None, {"sasl_password": "hush", "sasl_username": "me"})
    assert "hush" not in repr(settings)
    assert settings.text("sasl.password") == "hush"
    with pytest.raises(SettingError) as caught:
        Settings.of(ADMIN, None, {"sasl_password": ["hush"]})
    assert "hush" not in str(caught.value)


def test_objects_stay_objects() -> None:
    settings = Settings.of(PRODUCER, None, {"key_serializer": str.encode, "interceptor_classes": [len]})
    assert settings.object("key.serializer") is str.encode
    assert settings.items("interceptor.classes") == (len,)


@pytest.mark.parametrize("kind", [ADMIN, PRODUCER, CONSUMER])
def test_every_default_passes_its_own_rule(kind: str) -> None:
    for row in definitions(kind).values():
        if row.default is not None and row.rule is not None:
            assert row.rule.problem(row.default) is None, row.key
        assert row.doc.endswith("."), row.key


def test_what_has_no_effect_is_said_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Settings.of(
            ADMIN, {"sasl.kerberos.service.name": "kafka", "client.dns.lookup": "use_all_dns_ips", "not.ours": 1}
        )
    assert sorted(caplog.messages) == [
        "setting sasl.kerberos.service.name has no effect: Kerberos (GSSAPI) is not supported",
        "unused admin settings: not.ours",
    ]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (PRODUCER, "bootstrap.servers", 9092),
        (PRODUCER, "bootstrap.servers", [9092]),
        (PRODUCER, "compression.gzip.level", 0),
        (PRODUCER, "transactional.id", ""),
        (CONSUMER, "group.instance.id", ""),
        (ADMIN, "sasl.login.refresh.window.factor", 0.4),
    ],
)
def test_values_that_kafka_refuses_are_refused(kind: str, name: str, value: object) -> None:
    with pytest.raises(SettingError, match=name.replace(".", r"\.")):
        Settings.of(kind, {name: value})


def test_kinds_have_their_own_defaults() -> None:
    assert Settings.of(PRODUCER).number("receive.buffer.bytes") == 32_768
    assert Settings.of(CONSUMER).number("receive.buffer.bytes") == 65_536
    assert Settings.of(ADMIN).number("connections.max.idle.ms") == 300_000
    assert Settings.of(ADMIN, {"retry.backoff.ms": 50}).limited("retry.backoff.ms", 20).number("retry.backoff.ms") == 20
