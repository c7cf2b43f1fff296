"""The settings that the clients behind a source or a sink get."""

from __future__ import annotations

from pyspark_braidlog.client_settings import admin_settings


def test_an_admin_gets_what_it_knows_of_a_producers_settings() -> None:
    shared = {"bootstrap.servers": "a:1", "sasl.mechanism": "PLAIN"}
    assert admin_settings({**shared, "linger.ms": "5", "transaction.timeout.ms": "1"}) == shared
