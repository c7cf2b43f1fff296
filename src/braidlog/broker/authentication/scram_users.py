"""The SCRAM users of the cluster, as the store has them: every broker follows /config/users."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from braidlog.cluster.image import ClusterImage, ImageDelta, user_of
from braidlog.security import scram
from braidlog.security.scram import Mechanism
from braidlog.security.scram_credentials import (
    BadCredentialError,
    StoredCredential,
    UnknownUsers,
    decode_credential,
)

log = logging.getLogger("braidlog.security")


class ScramUsers:
    """Listens to the image; asked by logins and by DescribeUserScramCredentials."""

    def __init__(self, secret: bytes) -> None:
        self._unknown = UnknownUsers(secret)
        self._users: dict[str, dict[str, StoredCredential]] = {}

    @property
    def users(self) -> Mapping[str, Mapping[str, StoredCredential]]:
        """By name and then by mechanism; one without credentials is not in it."""
        return self._users

    def load(self, configs: Iterable[tuple[str, Mapping[str, str]]]) -> None:
        """What is known when this begins to listen."""
        for entity, overrides in configs:
            self._take(entity, overrides)

    async def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        for entity, overrides in delta.configs_changed.items():
            self._take(entity, overrides)
        for entity in delta.configs_deleted:
            self._take(entity, {})

    def find(self, mechanism: Mechanism, user: str) -> tuple[bool, StoredCredential]:
        """Whether there is such a user, and its credential; that of nobody where there is none."""
        found = self._users.get(user, {}).get(mechanism.name)
        # Made for known users as well, so that it takes as long.
        nobodys = self._unknown.credential(mechanism, user, self._any(mechanism))
        return (True, found) if found is not None else (False, nobodys)

    def _any(self, mechanism: Mechanism) -> StoredCredential | None:
        return next((each[mechanism.name] for each in self._users.values() if mechanism.name in each), None)

    def _take(self, entity: str, overrides: Mapping[str, str]) -> None:
        user = user_of(entity)
        if user is None:
            return
        credentials: dict[str, StoredCredential] = {}
        for name in scram.MECHANISMS:
            if name in overrides:
                try:
                    credentials[name] = decode_credential(overrides[name])
                except BadCredentialError as problem:
                    log.error("user %r cannot log in with %s: %s; alter its credential", user, name, problem)
        if credentials:
            self._users[user] = credentials
        else:
            self._users.pop(user, None)
