"""Clients that a worker keeps for its next task."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pyspark_braidlog.kept_clients import Kept
from pyspark_braidlog.sink.clients import admin_settings

A, B = {"bootstrap.servers": "a:1"}, {"bootstrap.servers": "b:1"}


class Client:
    def __init__(self, settings: Mapping[str, str]) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Surroundings:
    def __init__(self) -> None:
        self.now, self.process = 0.0, 1
        self.kept = Kept(Client, now=lambda: self.now, process=lambda: self.process)

    def used(self, settings: Mapping[str, str] = A) -> Client:
        with self.kept.use(settings) as client:
            return client


def test_one_is_used_again_for_the_same_settings_only() -> None:
    around = Surroundings()
    first = around.used()
    assert around.used(B) is not first
    assert around.used() is first


def test_one_that_failed_is_closed_and_not_used_again() -> None:
    around = Surroundings()
    with pytest.raises(ValueError, match="no"), around.kept.use(A) as client:
        raise ValueError("no")
    assert client.closed
    assert around.used() is not client


def test_one_that_rested_for_long_is_closed() -> None:
    around = Surroundings()
    first = around.used()
    around.now = 1000.0
    assert around.used() is not first
    assert first.closed


def test_one_of_another_query_is_closed_too_when_it_rested_for_long() -> None:
    around = Surroundings()
    first = around.used()
    around.now = 1000.0
    around.used(B)
    assert first.closed


def test_after_a_fork_none_is_there() -> None:
    around = Surroundings()
    first = around.used()
    around.process = 2
    assert around.used() is not first
    assert not first.closed


def test_an_admin_gets_what_it_knows_of_a_producers_settings() -> None:
    given = {**A, "linger.ms": "5", "sasl.mechanism": "PLAIN", "transaction.timeout.ms": "1"}
    assert admin_settings(given) == {**A, "sasl.mechanism": "PLAIN"}
