"""SCRAM users: who has credentials, and new ones, salted here so that no password travels (KIP-554)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_call import BrokerConnection
from braidlog.client.admin.lookup_strategies import AnyBrokerStrategy, ControllerStrategy
from braidlog.client.admin.results import Results
from braidlog.client.arguments import Many, listed, names_of
from braidlog.client.broker_errors import broker_error, check
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.security import scram
from braidlog.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from braidlog.wire.generated.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
ALTER_USER_SCRAM_CREDENTIALS: Final = 51

# What Kafka's own tools take, and the bounds that brokers set.
_ITERATIONS: Final = 4096
_MOST_ITERATIONS: Final = 16384
_SALT_BYTES: Final = 24


class ScramMechanism(IntEnum):
    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @classmethod
    def _missing_(cls, value: object) -> ScramMechanism:
        return cls.UNKNOWN


class ScramCredential(NamedTuple):
    """That a user has one; brokers do not give out what it is."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A user's new password for one mechanism, in place of one that may be there."""

    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512
    iterations: int = _ITERATIONS
    # Drawn at random unless given.
    salt: bytes = field(default=b"", repr=False)


class ScramDeletion(NamedTuple):
    user: str
    mechanism: ScramMechanism


_MECHANISMS: Final = {
    ScramMechanism.SCRAM_SHA_256: scram.SHA_256,
    ScramMechanism.SCRAM_SHA_512: scram.SHA_512,
}


def describe_scram_users(
    driver: AdminApiDriver, users: Many[str] | None = None
) -> Results[str, tuple[ScramCredential, ...]]:
    names = None if users is None else list(dict.fromkeys(names_of(users, "users")))
    if names == []:
        return Results({})
    request = DescribeUserScramCredentialsRequest(
        users=None if names is None else [UserName(name=name) for name in names]
    )

    async def describe(node: BrokerConnection) -> dict[str, tuple[ScramCredential, ...] | ProtocolError]:
        answer = await node.call(DESCRIBE_USER_SCRAM_CREDENTIALS, request, DescribeUserScramCredentialsResponse)
        check(answer.error_code, "SCRAM users", answer.error_message)
        found: dict[str, tuple[ScramCredential, ...] | ProtocolError] = {}
        for each in answer.results:
            if each.error_code != NONE:
                found[each.user] = broker_error(each.error_code, f"user {each.user}", each.error_message)
            else:
                found[each.user] = tuple(
                    sorted(
                        ScramCredential(ScramMechanism(info.mechanism), info.iterations)
                        for info in each.credential_infos
                    )
                )
        return found

    found = driver.ask_one(AnyBrokerStrategy(), describe)
    return Results({name: found[name] for name in (sorted(found) if names is None else names)})


def alter_scram_users(driver: AdminApiDriver, changes: Many[ScramUpsertion | ScramDeletion]) -> Results[str, None]:
    by_user: dict[str, list[ScramUpsertion | ScramDeletion]] = {}
    for change in listed(changes, "changes"):
        _check_change(change)
        by_user.setdefault(change.user, []).append(change)
    upsertions = {
        user: [_upsertion(each) for each in some if isinstance(each, ScramUpsertion)] for user, some in by_user.items()
    }

    async def alter(node: BrokerConnection, users: list[str]) -> dict[str, ProtocolError | None]:
        request = AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(name=each.user, mechanism=each.mechanism)
                for user in users
                for each in by_user[user]
                if isinstance(each, ScramDeletion)
            ],
            upsertions=[each for user in users for each in upsertions[user]],
        )
        answer = await node.call(ALTER_USER_SCRAM_CREDENTIALS, request, AlterUserScramCredentialsResponse)
        return {
            each.user: None
            if each.error_code == NONE
            else broker_error(each.error_code, f"user {each.user}", each.error_message)
            for each in answer.results
        }

    return driver.ask(by_user, ControllerStrategy(), alter)


def _check_change(change: ScramUpsertion | ScramDeletion) -> None:
    """Refuse what brokers would refuse, before a password is salted for it."""
    if change.mechanism not in _MECHANISMS:
        raise UserError(f"user {change.user}: the mechanism is SCRAM_SHA_256 or SCRAM_SHA_512")
    if not change.user:
        raise UserError("a user's name has at least one character")
    if isinstance(change, ScramUpsertion) and not change.password:
        raise UserError(f"user {change.user}: a password has at least one character")
    if isinstance(change, ScramUpsertion) and not _ITERATIONS <= change.iterations <= _MOST_ITERATIONS:
        raise UserError(f"user {change.user}: give between {_ITERATIONS} and {_MOST_ITERATIONS} iterations")


def _upsertion(change: ScramUpsertion) -> ScramCredentialUpsertion:
    salt = change.salt or os.urandom(_SALT_BYTES)
    mechanism = _MECHANISMS[change.mechanism]
    return ScramCredentialUpsertion(
        name=change.user,
        mechanism=change.mechanism,
        iterations=change.iterations,
        salt=salt,
        salted_password=scram.salted_password(mechanism, change.password, salt, change.iterations),
    )
