from __future__ import annotations

from braidlog.config import known
from braidlog.config.broker import BrokerSettings
from braidlog.config.log_settings import DEFAULTS, LogSettings
from braidlog.config.topic import log_settings

TOPIC = known.topic_settings()


def test_log_settings_have_a_field_and_the_default_of_every_topic_setting() -> None:
    assert set(LogSettings._fields) == {key.replace(".", "_") for key in TOPIC}
    for key, setting in TOPIC.items():
        assert getattr(DEFAULTS, key.replace(".", "_")) == setting.default, key


def test_a_broker_with_defaults_gives_its_topics_the_topic_defaults() -> None:
    assert log_settings({}, BrokerSettings()) == DEFAULTS
