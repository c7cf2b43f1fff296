"""The options of a table of the format, which Spark shows to everybody who may read the table."""

from __future__ import annotations

import pytest

from braidlog.core.errors import UserError
from pyspark_braidlog.data_source import DefaultSource

CREATED = {"provider": "braidlog", "option.kafka.bootstrap.servers": "nowhere:1", "option.subscribe": "orders"}


@pytest.mark.parametrize(
    "name",
    ["kafka.sasl.password", "kafka.sasl.jaas.config", "kafka.ssl.keystore.key", "kafka.sasl.oauthbearer.client.secret"],
)
def test_a_secret_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"everybody who may read it: leave {name} out"):
        DefaultSource({**CREATED, f"option.{name}": "hunter2"}).schema()


def test_others_travel_in_the_schema() -> None:
    assert "orders" in DefaultSource({**CREATED, "option.kafka.sasl.username": "alice"}).schema().json()
