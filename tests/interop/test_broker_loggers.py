"""Log levels of a running broker (KIP-412): what third-party clients and our own can change, and what comes of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType

from braidlog.client import admin as ours
from braidlog.core import protocol_errors as errors
from support import confluent, kafka_python
from support.broker import BRAIDLOG, Broker, start_braidlog
from support.eventually import eventually
from support.raw import RawConnection

NET = "braidlog.net"


@pytest.fixture(autouse=True)
def _our_loggers(target_kind: str) -> None:
    if target_kind != BRAIDLOG:
        pytest.skip("the loggers have other names there")


def broker_id(broker: Broker) -> int:
    return int(confluent.admin(broker.bootstrap).list_topics(timeout=30).controller_id)


def test_kafka_python_changes_levels(broker: Broker) -> None:
    me = str(broker_id(broker))
    loggers = PythonResource(ConfigResourceType.BROKER_LOGGER, me)
    with kafka_python.admin(broker.bootstrap) as admin:

        def level() -> str:
            described = admin.describe_configs([loggers], config_filter="all")["broker_logger"][me]
            return str(described["braidlog.commit"]["value"])

        assert level() == "INFO"
        admin.alter_configs([PythonResource(ConfigResourceType.BROKER_LOGGER, me, {"braidlog.commit": "TRACE"})])
        assert level() == "TRACE"
        wrong = PythonResource(ConfigResourceType.BROKER_LOGGER, me, {"braidlog.commit": "LOUD"})
        assert "InvalidConfig" in str(admin.alter_configs([wrong])["broker_logger"][me])
        admin.reset_configs([PythonResource(ConfigResourceType.BROKER_LOGGER, me, ["braidlog.commit"])])
        assert level() == "INFO"


def test_a_level_has_its_effect_at_once_and_until_a_restart(tmp_path: Path) -> None:
    """At DEBUG the broker tells of each connection that ends."""
    settings = {"broker.id": "7"}
    loggers = ours.ConfigResource.broker_logger(7)
    with start_braidlog(tmp_path, settings) as broker, ours.Admin(bootstrap_servers=broker.bootstrap) as admin:

        def told_of_the_end() -> None:
            with RawConnection(broker.port):
                pass

        told_of_the_end()
        assert admin.alter_configs({loggers: {NET: "DEBUG"}}) == {loggers: None}
        eventually(lambda: f"log level of {NET}: DEBUG, was INFO" in broker.log())
        assert "DEBUG" not in broker.log().partition("log level of")[0]
        told_of_the_end()
        eventually(lambda: bool(re.search(rf"DEBUG {NET}: connection from 127.0.0.1 closed", broker.log())))
        topic = ours.ConfigResource.topic("not-there")
        mixed = admin.alter_configs({topic: {"retention.ms": "1"}, loggers: {"no.such": "INFO"}}).errors
        assert isinstance(mixed[topic], errors.UnknownTopicOrPartitionError)
        assert isinstance(mixed[loggers], errors.InvalidConfigError)
    with start_braidlog(tmp_path, settings) as broker, ours.Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert admin.describe_configs([loggers])[loggers][NET].value == "INFO"
