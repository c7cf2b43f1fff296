"""Delegation tokens as Kafka writes them into ZooKeeper."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.cluster.records import BadRecordError
from braidlog.cluster.token_records import TokenInformation, decode_token, encode_token, token_change
from braidlog.core.principal import Principal

PATH = "/delegation_token/tokens/t"
# The form that Kafka 3.9 writes; tests/cluster/test_delegation_tokens_peer.py holds it against a real one.
OF_KAFKA: dict[str, Any] = {
    "version": 3,
    "owner": "User%3Aal%20ice",
    "tokenRequester": "User%3Abob",
    "renewers": ["User%3Aowl", "User%3ACN%3Dcat"],
    "issueTimestamp": 1700000000000,
    "maxTimestamp": 1700604800000,
    "expiryTimestamp": 1700086400000,
    "tokenId": "t",
}
TOKEN = TokenInformation(
    "t",
    Principal("User", "al ice"),
    Principal("User", "bob"),
    (Principal("User", "owl"), Principal("User", "CN=cat")),
    1700000000000,
    1700086400000,
    1700604800000,
)


def test_a_token_is_kafkas() -> None:
    assert json.loads(encode_token(TOKEN)) == OF_KAFKA
    assert decode_token(PATH, json.dumps(OF_KAFKA).encode()) == TOKEN


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_any_name_comes_back(name: str) -> None:
    token = TokenInformation("t", Principal("User", name), Principal("User", name), (), 1, 2, 3)
    assert decode_token(PATH, encode_token(token)) == token


@pytest.mark.parametrize("version", [1, 2])
def test_before_version_3_the_owner_asked_for_its_tokens(version: int) -> None:
    old = {key: value for key, value in OF_KAFKA.items() if key != "tokenRequester"} | {"version": version}
    assert decode_token(PATH, json.dumps(old).encode()).requester == TOKEN.owner


@pytest.mark.parametrize(
    "change",
    [
        {"version": 4},
        {"version": 0},
        {"owner": "alice"},
        {"owner": None},
        {"renewers": "User%3Aowl"},
        {"renewers": ["owl"]},
        {"expiryTimestamp": "soon"},
        {"tokenId": None},
    ],
)
def test_what_no_kafka_wrote_is_named(change: dict[str, Any]) -> None:
    with pytest.raises(BadRecordError, match=PATH):
        decode_token(PATH, json.dumps(OF_KAFKA | change).encode())


def test_a_notification_is_the_tokens_id() -> None:
    notice = token_change("t")
    assert (notice.path, notice.data, notice.sequential) == (
        "/delegation_token/token_changes/token_change_",
        b"t",
        True,
    )
