"""KIP-679: idempotence is the default, gives way to other settings, and insists when it was asked for."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.client.errors import SettingError
from braidlog.client.producer.guarantees import Guarantees, guarantees_of
from braidlog.client.settings import PRODUCER, Settings


def of(**settings: Any) -> Guarantees:
    return guarantees_of(Settings.of(PRODUCER, None, {"bootstrap_servers": "localhost:1", **settings}))


def test_the_strongest_by_default() -> None:
    assert of() == Guarantees(acks=-1, idempotent=True, max_in_flight=5, retries=2_147_483_647, transactional_id=None)


@pytest.mark.parametrize(
    "settings",
    [{"acks": 1}, {"acks": "0"}, {"max_in_flight_requests_per_connection": 6}, {"retries": 0}],
)
def test_what_rules_idempotence_out_switches_it_off_unless_it_was_asked_for(settings: dict[str, Any]) -> None:
    assert not of(**settings).idempotent
    with pytest.raises(SettingError, match=r"enable\.idempotence cannot be combined"):
        of(enable_idempotence=True, **settings)
    with pytest.raises(SettingError, match=r"transactional\.id cannot be combined"):
        of(transactional_id="t", **settings)


def test_it_can_be_switched_off() -> None:
    assert not of(enable_idempotence=False).idempotent
    with pytest.raises(SettingError, match=r"transactional\.id needs"):
        of(enable_idempotence=False, transactional_id="t")


def test_a_delivery_takes_at_least_a_request() -> None:
    with pytest.raises(SettingError, match=r"delivery\.timeout\.ms=1000 is less than"):
        of(delivery_timeout_ms=1_000)
    assert of(delivery_timeout_ms=1_000, request_timeout_ms=900).idempotent
