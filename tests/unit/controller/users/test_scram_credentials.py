"""What is written for a change of SCRAM users, and what is refused (KIP-554)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from braidlog.cluster import paths, records
from braidlog.cluster.image import user_entity
from braidlog.controller.plan import Put
from braidlog.controller.users.scram_credentials import ScramChange, UserChanges, alter
from braidlog.core.protocol_errors import (
    DuplicateResourceError,
    ProtocolError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from braidlog.security import scram
from braidlog.security.scram_credentials import decode_credential
from support.controller_harness import one_broker

NEW = ScramChange(1, 4096, b"salt", b"salted")


def altered(
    current: Mapping[str, Mapping[str, str]], *requests: UserChanges
) -> tuple[dict[str, dict[str, str]], dict[str, ProtocolError | None]]:
    steps, results = alter(current, requests)
    written = {step.path: records.decode_config(step.path, step.data) for step in steps if isinstance(step, Put)}
    return written, results


def test_quotas_stay_beside_a_new_credential() -> None:
    path = paths.config("users/al%20ice")
    written, results = altered({"users/al%20ice": {"consumer_byte_rate": "5"}}, UserChanges("al ice", (NEW,)))
    assert results == {"al ice": None}
    assert list(written) == [path]
    assert written[path]["consumer_byte_rate"] == "5"
    stored = decode_credential(written[path]["SCRAM-SHA-256"])
    assert stored.stored_key == scram.stored_key(scram.SHA_256, scram.client_key(scram.SHA_256, b"salted"))
    assert (stored.salt, stored.iterations) == (b"salt", 4096)


def test_one_mechanism_is_deleted_and_the_other_stays() -> None:
    current = {"users/bob": {"SCRAM-SHA-256": "a", "SCRAM-SHA-512": "b"}}
    written, results = altered(current, UserChanges("bob", (ScramChange(2),)))
    assert written == {paths.config("users/bob"): {"SCRAM-SHA-256": "a"}}
    assert results == {"bob": None}


@pytest.mark.parametrize(
    ("user", "changes", "error"),
    [
        ("", (NEW,), UnacceptableCredentialError),
        ("u", (ScramChange(0, 4096),), UnsupportedSaslMechanismError),
        ("u", (ScramChange(3),), UnsupportedSaslMechanismError),
        ("u", (ScramChange(1, 4095),), UnacceptableCredentialError),
        ("u", (ScramChange(1, 16385),), UnacceptableCredentialError),
        ("u", (ScramChange(1),), ResourceNotFoundError),
        ("u", (NEW, NEW), DuplicateResourceError),
        ("u", (NEW, ScramChange(1)), DuplicateResourceError),
        # One bad change spoils the user's others.
        ("u", (NEW, ScramChange(2)), ResourceNotFoundError),
    ],
)
def test_what_is_refused(user: str, changes: tuple[ScramChange, ...], error: type[ProtocolError]) -> None:
    written, results = altered({}, UserChanges("good", (NEW,)), UserChanges(user, changes))
    assert list(written) == [paths.config("users/good")]
    assert results["good"] is None
    assert isinstance(results[user], error)


def test_a_change_does_not_show_what_it_sets() -> None:
    assert "salted" not in repr(UserChanges("u", (NEW,)))


def test_they_are_written_with_a_notice() -> None:
    async def run() -> None:
        async with one_broker() as broker:
            for change in (NEW, ScramChange(2, 5000, b"salt", b"salted"), ScramChange(1)):
                assert await broker.writes.alter_scram_credentials([UserChanges("bob", (change,))]) == {"bob": None}
            path = paths.config(user_entity("bob"))
            stored = records.decode_config(path, (await broker.session.get(path)).data)
            assert list(stored) == ["SCRAM-SHA-512"]
            assert len(await broker.session.children(paths.CONFIG_CHANGES)) == 3

    asyncio.run(run())
