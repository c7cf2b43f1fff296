from __future__ import annotations

import pytest

from braidlog.broker.coordinators.coordinators import group_overrides, group_settings
from braidlog.config.broker import BrokerSettings
from braidlog.coordinator.group.settings import GroupOverrides, GroupSettings

JAVA = "org.apache.kafka.coordinator.group.assignor."


def test_the_defaults_of_a_broker_are_those_of_groups() -> None:
    assert group_settings(BrokerSettings({"broker.id": "1"})) == GroupSettings()


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        (f"{JAVA}RangeAssignor", ("range",)),
        (f"{JAVA}RangeAssignor,{JAVA}UniformAssignor", ("range", "uniform")),
        ("range,uniform", ("range", "uniform")),
        (f"uniform,{JAVA}UniformAssignor", ("uniform",)),
    ],
)
def test_assignors_are_known_by_what_members_call_them(listed: str, names: tuple[str, ...]) -> None:
    assert group_settings(BrokerSettings({"group.consumer.assignors": listed})).consumer_assignors == names


def test_what_a_group_sets_is_read_and_complained_about(caplog: pytest.LogCaptureFixture) -> None:
    texts = {"consumer.session.timeout.ms": " 50000 ", "consumer.heartbeat.interval.ms": "soon"}
    assert group_overrides("billing", texts) == GroupOverrides(50_000, None)
    assert "settings of group 'billing': the stored value is ignored: Invalid value soon" in caplog.text
