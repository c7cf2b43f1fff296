"""What is written for a change of quotas, and what is refused (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from braidlog.cluster import paths, records
from braidlog.controller.plan import Put
from braidlog.controller.users.client_quotas import EntityChanges, QuotaChange, alter
from braidlog.core.protocol_errors import InvalidRequestError, ProtocolError


def changes(names: Mapping[str, str | None], **quotas: float | None) -> EntityChanges:
    return EntityChanges(tuple(names.items()), tuple(QuotaChange(key, value) for key, value in quotas.items()))


def altered(
    current: Mapping[str, Mapping[str, str]], *requests: EntityChanges, validate_only: bool = False
) -> tuple[dict[str, dict[str, str]], list[ProtocolError | None]]:
    steps, results = alter(current, requests, validate_only)
    written = {
        step.path.removeprefix("/config/"): records.decode_config(step.path, step.data)
        for step in steps
        if isinstance(step, Put)
    }
    notified = [
        records.decode_config_change(step.path, step.data)
        for step in steps
        if not isinstance(step, Put) and step.path == paths.CONFIG_CHANGE
    ]
    assert notified == list(written)
    return written, results


def test_a_credential_stays_beside_a_new_quota() -> None:
    written, results = altered(
        {"users/al%20ice": {"SCRAM-SHA-256": "s", "consumer_byte_rate": "5"}},
        changes({"user": "al ice"}, producer_byte_rate=1024.0, consumer_byte_rate=None),
    )
    assert results == [None]
    assert written == {"users/al%20ice": {"SCRAM-SHA-256": "s", "producer_byte_rate": "1024"}}


def test_a_credential_is_not_removed_as_a_quota() -> None:
    request = EntityChanges((("user", "bob"),), (QuotaChange("SCRAM-SHA-256", None),))
    written, results = altered({"users/bob": {"SCRAM-SHA-256": "s"}}, request)
    assert results == [None]
    assert written == {"users/bob": {"SCRAM-SHA-256": "s"}}


def test_entities_of_all_kinds() -> None:
    written, results = altered(
        {},
        changes({"user": "u", "client-id": None}, request_percentage=12.5),
        changes({"client-id": "c"}, controller_mutation_rate=3),
        changes({"ip": None}, connection_creation_rate=7),
        changes({"user": None}, producer_byte_rate=10.0000000001),
    )
    assert results == [None] * 4
    assert written == {
        "users/u/clients/<default>": {"request_percentage": "12.5"},
        "clients/c": {"controller_mutation_rate": "3"},
        "ips/<default>": {"connection_creation_rate": "7"},
        "users/<default>": {"producer_byte_rate": "10"},
    }


def test_an_entity_that_is_named_twice_is_written_once() -> None:
    written, results = altered(
        {}, changes({"user": "u"}, producer_byte_rate=1), changes({"user": "u"}, consumer_byte_rate=2)
    )
    assert results == [None, None]
    assert written == {"users/u": {"producer_byte_rate": "1", "consumer_byte_rate": "2"}}


def test_only_validated() -> None:
    written, results = altered(
        {}, changes({"user": "u"}, producer_byte_rate=1), changes({"user": ""}), validate_only=True
    )
    assert written == {}
    assert results[0] is None
    assert isinstance(results[1], InvalidRequestError)


@pytest.mark.parametrize(
    "request_",
    [
        changes({}, producer_byte_rate=1),
        changes({"team": "t"}, producer_byte_rate=1),
        changes({"user": ""}, producer_byte_rate=1),
        changes({"user": "u", "ip": "127.0.0.1"}, connection_creation_rate=1),
        changes({"user": "u"}, connection_creation_rate=1),
        changes({"ip": "127.0.0.1"}, producer_byte_rate=1),
        changes({"ip": "127.0.0.1"}, connection_creation_rate=-1),
        changes({"user": "u"}, producer_byte_rate=1.5),
        changes({"user": "u"}, producer_byte_rate=1e30),
        changes({"user": "u"}, producer_byte_rate=float("nan")),
        changes({"user": "u"}, made_up_rate=1),
    ],
)
def test_what_is_refused_changes_nothing(request_: EntityChanges) -> None:
    good = changes({"client-id": "c"}, producer_byte_rate=1)
    written, results = altered({}, request_, good)
    assert isinstance(results[0], InvalidRequestError)
    assert results[1] is None
    assert list(written) == ["clients/c"]
