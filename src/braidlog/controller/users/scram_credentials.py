"""Decides about SCRAM credentials: a user's node holds them beside its quotas, which stay as they are (KIP-554)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from braidlog.cluster import paths, records
from braidlog.cluster.image import user_entity
from braidlog.cluster.store import Create
from braidlog.controller.plan import Put, Step
from braidlog.core.protocol_errors import (
    DuplicateResourceError,
    ProtocolError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from braidlog.security.scram import SHA_256, SHA_512, Mechanism
from braidlog.security.scram_credentials import MAX_ITERATIONS, MIN_ITERATIONS, credential_of, encode_credential

# By the numbers that the requests have.
MECHANISMS: Final[dict[int, Mechanism]] = {1: SHA_256, 2: SHA_512}


@dataclass(frozen=True, slots=True)
class ScramChange:
    """A new credential, or, without iterations, a deletion."""

    mechanism: int
    iterations: int | None = None
    salt: bytes = field(default=b"", repr=False)
    salted_password: bytes = field(default=b"", repr=False)


class UserChanges(NamedTuple):
    user: str
    changes: tuple[ScramChange, ...]


def alter(
    current: Mapping[str, Mapping[str, str]], requests: Sequence[UserChanges]
) -> tuple[list[Step], dict[str, ProtocolError | None]]:
    """What to write, and what to answer for each user: all of its changes are made, or none.

    `current` has the overrides of each user's entity.
    """
    steps: list[Step] = []
    results: dict[str, ProtocolError | None] = {}
    for user, changes in requests:
        try:
            if not user:
                raise UnacceptableCredentialError("Username must not be empty")
            entity = user_entity(user)
            overrides = _altered(current.get(entity, {}), changes)
        except ProtocolError as error:
            results[user] = error
            continue
        results[user] = None
        steps.append(Put(paths.config(entity), records.encode_config(overrides)))
        steps.append(Create(paths.CONFIG_CHANGE, records.encode_config_change(entity), sequential=True))
    return steps, results


def _altered(current: Mapping[str, str], changes: Sequence[ScramChange]) -> dict[str, str]:
    overrides = dict(current)
    times = Counter(change.mechanism for change in changes)
    for change in changes:
        mechanism = MECHANISMS.get(change.mechanism)
        if mechanism is None:
            raise UnsupportedSaslMechanismError("Unknown SCRAM mechanism")
        if times[change.mechanism] > 1:
            raise DuplicateResourceError("A user credential cannot be altered twice in the same request")
        if change.iterations is None:
            if mechanism.name not in overrides:
                raise ResourceNotFoundError("Attempt to delete a user credential that does not exist")
            del overrides[mechanism.name]
            continue
        if change.iterations < MIN_ITERATIONS:
            raise UnacceptableCredentialError("Too few iterations")
        if change.iterations > MAX_ITERATIONS:
            raise UnacceptableCredentialError("Too many iterations")
        credential = credential_of(mechanism, change.salt, change.salted_password, change.iterations)
        overrides[mechanism.name] = encode_credential(credential)
    return overrides
