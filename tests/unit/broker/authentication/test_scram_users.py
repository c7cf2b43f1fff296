"""SCRAM users as the store has them."""

from __future__ import annotations

import asyncio
import logging

import pytest

from braidlog.broker.authentication.scram_users import ScramUsers
from braidlog.cluster.image import ClusterImage, ImageDelta, user_entity
from braidlog.security.scram import SHA_256, SHA_512
from braidlog.security.scram_credentials import credential_of, encode_credential

STORED = credential_of(SHA_256, b"salt" * 5, b"salted", 8192)
TEXT = encode_credential(STORED)


def changed(users: ScramUsers, **delta: object) -> None:
    asyncio.run(users.image_changed(ClusterImage(), ImageDelta(**delta)))  # type: ignore[arg-type]


def test_users_come_change_and_go() -> None:
    users = ScramUsers(b"hush")
    users.load([(user_entity("al ice,="), {"SCRAM-SHA-256": TEXT, "consumer_byte_rate": "5"})])
    assert users.find(SHA_256, "al ice,=") == (True, STORED)
    changed(users, configs_changed={user_entity("bob"): {"SCRAM-SHA-512": TEXT}, "users/bob/clients/c": {"x": "1"}})
    assert set(users.users) == {"al ice,=", "bob"}
    assert not users.find(SHA_256, "bob")[0]
    changed(users, configs_changed={user_entity("bob"): {"consumer_byte_rate": "5"}})
    changed(users, configs_deleted=(user_entity("al ice,="),))
    assert users.users == {}


def test_others_overrides_are_no_users() -> None:
    users = ScramUsers(b"hush")
    users.load([("users/<default>", {"SCRAM-SHA-256": TEXT}), ("topics/t", {"SCRAM-SHA-256": TEXT})])
    assert users.users == {}


def test_an_unknown_user_looks_like_a_known_one() -> None:
    users = ScramUsers(b"hush")
    users.load([(user_entity("alice"), {"SCRAM-SHA-256": TEXT})])
    exists, credential = users.find(SHA_256, "mallory")
    assert not exists
    assert (len(credential.salt), credential.iterations) == (20, 8192)
    assert users.find(SHA_256, "mallory") == (False, credential)
    assert users.find(SHA_512, "alice")[1].iterations == 4096


def test_a_credential_that_cannot_be_read_is_said_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    users = ScramUsers(b"hush")
    users.load([(user_entity("alice"), {"SCRAM-SHA-256": "salt=c2VjcmV0"})])
    assert users.users == {}
    assert "user 'alice' cannot log in with SCRAM-SHA-256" in caplog.text
    assert "c2VjcmV0" not in caplog.text
