"""Names and settings of topics for tests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from braidlog.config.topic_names import validate_name
from braidlog.testing.client_factory import config_texts, unique_topic


@given(st.text(max_size=300))
def test_any_prefix_makes_a_legal_name(prefix: str) -> None:
    validate_name(unique_topic(prefix))


def test_names_differ_and_show_what_they_are_for() -> None:
    names = [unique_topic("test_orders[3]") for _ in range(100)]
    assert len(set(names)) == 100
    assert all(name.startswith("test_orders-3-") for name in names)


def test_configs_are_written_as_kafka_does() -> None:
    given_configs = {"retention_ms": 1000, "cleanup.policy": "compact", "preallocate": True, "min.insync.replicas": 1}
    assert config_texts(given_configs) == {
        "retention.ms": "1000",
        "cleanup.policy": "compact",
        "preallocate": "true",
        "min.insync.replicas": "1",
    }
