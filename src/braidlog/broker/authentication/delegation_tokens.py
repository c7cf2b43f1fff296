"""The delegation tokens of the cluster, as the store has them: every broker follows /delegation_token and may write.

Each write depends on the version of the token that it was decided on, and comes with a notification by which every
broker reads the token again, Apache Kafka's included. A token that has expired lets nobody in, from that moment on;
the controller removes it a while later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from braidlog.broker.change_notifications import ChangeNotificationListener
from braidlog.cluster import paths
from braidlog.cluster.records import BadRecordError
from braidlog.cluster.store import (
    BadVersionError,
    CoordinationStore,
    Create,
    Delete,
    InvalidPathError,
    NoNodeError,
    Operation,
    SessionExpiredError,
    SetData,
    StoreConnectionError,
    StoreFailedError,
    check_path,
    ensure_path,
)
from braidlog.cluster.token_records import TokenInformation, decode_token, encode_token, token_change
from braidlog.controller.direct_writes import purge_notices
from braidlog.controller.users import delegation_tokens as rules
from braidlog.controller.users.delegation_tokens import TokenLifetimes
from braidlog.core.clock import Clock
from braidlog.core.ids import id_text
from braidlog.core.principal import Principal
from braidlog.core.protocol_errors import DelegationTokenNotFoundError, RequestTimedOutError
from braidlog.core.tasks import Tasks
from braidlog.security.delegation_tokens import TokenLogin, TokenSecret
from braidlog.security.scram import Mechanism
from braidlog.security.scram_credentials import StoredCredential, UnknownUsers

log = logging.getLogger("braidlog.security")

_ATTEMPTS: Final = 5


class DelegationTokenManager(ChangeNotificationListener):
    """Asked by logins and by the requests about tokens."""

    notifications_path = paths.TOKEN_CHANGES
    subject = "delegation tokens"

    def __init__(
        self,
        store: CoordinationStore,
        secret: TokenSecret,
        lifetimes: TokenLifetimes,
        clock: Clock,
        new_id: Callable[[], bytes],
        unknown: UnknownUsers,
        tasks: Tasks,
    ) -> None:
        super().__init__(store, tasks)
        self._secret = secret
        self._lifetimes = lifetimes
        self._clock = clock
        self._new_id = new_id
        self._unknown = unknown
        self._tokens: dict[str, TokenInformation] = {}
        # Token ids by what each is worth.
        self._by_hmac: dict[bytes, str] = {}
        # Made at the first login with a token, by mechanism.
        self._credentials: dict[str, dict[str, StoredCredential]] = {}

    @property
    def tokens(self) -> Mapping[str, TokenInformation]:
        """By id; those that have expired are in it until they are removed."""
        return self._tokens

    def hmac(self, token_id: str) -> bytes:
        return self._secret.hmac(token_id)

    def find(self, mechanism: Mechanism, token_id: str) -> tuple[TokenLogin | None, StoredCredential]:
        """For whom the token speaks, and what checks a login with it; that of nobody where there is no such token."""
        token = self._tokens.get(token_id)
        if token is None or rules.is_expired(token, self._clock.wall_ms()):
            return None, self._unknown.credential(mechanism, token_id, None)
        made = self._credentials.setdefault(token_id, {})
        if mechanism.name not in made:
            made[mechanism.name] = self._secret.credential(mechanism, token_id)
        return TokenLogin(token.owner.name, token.expires_ms), made[mechanism.name]

    # Changes

    async def create(
        self, owner: Principal, requester: Principal, renewers: Sequence[Principal], max_lifetime_ms: int
    ) -> TokenInformation:
        token = rules.create(
            id_text(self._new_id()),
            owner,
            requester,
            renewers,
            max_lifetime_ms,
            self._clock.wall_ms(),
            self._lifetimes,
        )
        await self._write(token.token_id, Create(paths.delegation_token(token.token_id), encode_token(token)))
        log.info("created delegation token %s of %r for %r", token.token_id, str(owner), str(requester))
        return token

    async def renew(self, hmac: bytes, principal: Principal, period_ms: int) -> int:
        """Until when the token lives now."""
        now_ms = self._clock.wall_ms()
        renewed = await self._change(
            hmac, lambda token: rules.renew(token, principal, period_ms, now_ms, self._lifetimes)
        )
        assert renewed is not None
        return renewed.expires_ms

    async def expire(self, hmac: bytes, principal: Principal, period_ms: int) -> int:
        """Until when the token lives; now, where it ended at once."""
        now_ms = self._clock.wall_ms()
        left = await self._change(hmac, lambda token: rules.expire(token, principal, period_ms, now_ms))
        return now_ms if left is None else left.expires_ms

    async def remove_expired(self) -> None:
        for token_id in list(self._tokens):
            if rules.is_expired(self._tokens[token_id], self._clock.wall_ms()):
                try:
                    await self._change_token(
                        token_id, lambda token: None if rules.is_expired(token, self._clock.wall_ms()) else token
                    )
                except DelegationTokenNotFoundError:
                    await self.catch_up()

    async def remove_expired_regularly(self, is_controller: Callable[[], bool], interval_s: float) -> None:
        """Every broker runs this; the controller does the work."""
        while True:
            if is_controller():
                try:
                    await self.remove_expired()
                except (StoreConnectionError, SessionExpiredError, StoreFailedError, RequestTimedOutError) as problem:
                    log.warning("expired delegation tokens stay for now: %s", problem)
            await asyncio.sleep(interval_s)

    async def _change(
        self, hmac: bytes, decide: Callable[[TokenInformation], TokenInformation | None]
    ) -> TokenInformation | None:
        if hmac not in self._by_hmac:
            # Another broker may have made it a moment ago.
            await self._store.sync()
            await self.catch_up()
        if hmac not in self._by_hmac:
            raise DelegationTokenNotFoundError("there is no such delegation token")
        return await self._change_token(self._by_hmac[hmac], decide)

    async def _change_token(
        self, token_id: str, decide: Callable[[TokenInformation], TokenInformation | None]
    ) -> TokenInformation | None:
        """Write what is decided of the token as the store has it; none deletes it."""
        path = paths.delegation_token(token_id)
        for _ in range(_ATTEMPTS):
            try:
                node = await self._store.get(path)
                token = decode_token(path, node.data)
            except (NoNodeError, BadRecordError):
                raise DelegationTokenNotFoundError("there is no such delegation token") from None
            wanted = decide(token)
            if wanted == token:
                return token
            change: Operation
            if wanted is None:
                change = Delete(path, node.stat.version)
            else:
                change = SetData(path, encode_token(wanted), node.stat.version)
            try:
                await self._write(token_id, change)
            except (BadVersionError, NoNodeError):
                continue
            if wanted is None:
                log.info("removed delegation token %s of %r", token_id, str(token.owner))
            return wanted
        raise RequestTimedOutError("the same token was changed again and again by others; try again")

    async def _write(self, token_id: str, change: Operation) -> None:
        store = self._store
        store.lease.check()
        await store.multi([change, token_change(token_id)])
        # Whoever asks this broker next sees what was changed.
        await self.catch_up()
        await purge_notices(store, paths.TOKEN_CHANGES, self._clock)

    # What the store has

    async def _load(self) -> None:
        found = await self._stored(await self._store.children(paths.DELEGATION_TOKENS))
        self._credentials = {each: made for each, made in self._credentials.items() if found.get(each) is not None}
        self._tokens = {}
        self._by_hmac = {}
        self._take(found)

    async def _read_changed(self, notifications: Mapping[str, bytes]) -> None:
        named = (data.decode(errors="replace") for data in notifications.values())
        # A dict as an ordered set.
        self._take(await self._stored(list(dict.fromkeys(named))))

    async def _stored(self, token_ids: Sequence[str]) -> dict[str, TokenInformation | None]:
        """None for a token that is gone, or that cannot be read."""
        found: dict[str, TokenInformation | None] = {}
        wanted = [token_id for token_id in token_ids if _is_name(token_id)]
        nodes = await self._store.get_many([paths.delegation_token(token_id) for token_id in wanted])
        for token_id, node in zip(wanted, nodes, strict=True):
            try:
                found[token_id] = None if node is None else decode_token(paths.delegation_token(token_id), node.data)
            except BadRecordError as problem:
                log.error("delegation token %s cannot be used: %s", token_id, problem)
                found[token_id] = None
        return found

    def _take(self, found: Mapping[str, TokenInformation | None]) -> None:
        for token_id, token in found.items():
            hmac = self._secret.hmac(token_id)
            if token is not None:
                self._tokens[token_id] = token
                self._by_hmac[hmac] = token_id
            else:
                self._tokens.pop(token_id, None)
                self._by_hmac.pop(hmac, None)
                self._credentials.pop(token_id, None)


def _is_name(token_id: str) -> bool:
    """Whether a node may be called so; whoever writes to the store may write anything."""
    try:
        check_path(paths.delegation_token(token_id))
    except InvalidPathError:
        return False
    return "/" not in token_id


async def prepare_tokens(store: CoordinationStore) -> None:
    """The nodes that tokens lie under; Kafka's brokers make them in this order, too."""
    await ensure_path(store, paths.TOKEN_CHANGES)
    await ensure_path(store, paths.DELEGATION_TOKENS)
