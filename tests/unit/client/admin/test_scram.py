"""SCRAM users as they are put into requests."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from braidlog.client.admin import scram
from braidlog.client.admin.scram import ScramDeletion, ScramMechanism, ScramUpsertion
from braidlog.core.errors import UserError
from braidlog.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from support.admin_fakes import asking


def test_no_password_travels() -> None:
    def answer(request: Any) -> AlterUserScramCredentialsResponse:
        users = sorted({each.name for each in (*request.upsertions, *request.deletions)})
        return AlterUserScramCredentialsResponse(results=[AlterUserScramCredentialsResult(user=user) for user in users])

    admin, node = asking({scram.ALTER_USER_SCRAM_CREDENTIALS: answer})
    changed = admin.alter_scram_users(
        [
            ScramUpsertion("ann", "pencil", ScramMechanism.SCRAM_SHA_256, 4096, b"salt"),
            ScramUpsertion("ann", "pencil"),
            ScramDeletion("bob", ScramMechanism.SCRAM_SHA_256),
        ]
    )
    assert changed == {"ann": None, "bob": None}
    (request,) = node.asked
    weak, strong = request.upsertions
    assert weak.salted_password == hashlib.pbkdf2_hmac("sha256", b"pencil", b"salt", 4096)
    assert len(strong.salt) >= 16
    assert strong.salted_password == hashlib.pbkdf2_hmac("sha512", b"pencil", strong.salt, 4096)
    assert [(each.name, each.mechanism) for each in request.deletions] == [("bob", 1)]


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (ScramUpsertion("ann", ""), "a password has"),
        (ScramUpsertion("", "p"), "a user's name has"),
        (ScramUpsertion("ann", "p", iterations=4095), "between 4096 and 16384"),
        (ScramUpsertion("ann", "p", iterations=16385), "between 4096 and 16384"),
        (ScramDeletion("ann", ScramMechanism.UNKNOWN), "SCRAM_SHA_256 or SCRAM_SHA_512"),
    ],
)
def test_credentials_that_brokers_would_refuse(change: ScramUpsertion | ScramDeletion, reported: str) -> None:
    admin, node = asking({scram.ALTER_USER_SCRAM_CREDENTIALS: AlterUserScramCredentialsResponse()})
    with pytest.raises(UserError, match=reported):
        admin.alter_scram_users([change])
    assert node.asked == []
