"""Delegation tokens follow the store, and are written to it: several brokers on an embedded one in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from braidlog.broker.authentication.delegation_tokens import DelegationTokenManager, prepare_tokens
from braidlog.cluster import paths
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.store import CoordinationStore, StoreUnavailableError
from braidlog.cluster.token_records import decode_token, encode_token, token_change
from braidlog.controller.users import delegation_tokens as rules
from braidlog.controller.users.delegation_tokens import TokenLifetimes
from braidlog.core.clock import ManualClock
from braidlog.core.ids import random_id
from braidlog.core.principal import Principal
from braidlog.core.protocol_errors import DelegationTokenNotFoundError, DelegationTokenOwnerMismatchError
from braidlog.core.tasks import Tasks
from braidlog.security.delegation_tokens import TokenLogin, TokenSecret
from braidlog.security.scram import SHA_256, SHA_512
from braidlog.security.scram_credentials import UnknownUsers
from support.in_process_server import until
from support.memory_journal import MemoryJournalFiles

ALICE, EVE = Principal("User", "alice"), Principal("User", "eve")
LIFETIMES = TokenLifetimes(longest_ms=1_000_000, renewal_ms=10_000)


class World:
    def __init__(self, store: EmbeddedStore, clock: ManualClock, tasks: Tasks) -> None:
        self._store = store
        self.clock = clock
        self.tasks = tasks
        self.session: CoordinationStore = store.connect()

    async def broker(self) -> DelegationTokenManager:
        session = self._store.connect()
        await prepare_tokens(session)
        made = DelegationTokenManager(
            session, TokenSecret("hush"), LIFETIMES, self.clock, random_id, UnknownUsers(b"x"), self.tasks
        )
        await made.start()
        return made


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    clock = ManualClock()
    store = EmbeddedStore.open(MemoryJournalFiles(), clock)
    tasks = Tasks("test")
    yield World(store, clock, tasks)
    await tasks.close()
    await store.close()


async def test_a_tokens_life_on_two_brokers() -> None:
    async with world() as w:
        one, two = await w.broker(), await w.broker()
        token = await one.create(ALICE, ALICE, [], -1)
        assert one.tokens == {token.token_id: token}
        hmac = one.hmac(token.token_id)
        # The other one need not have heard of it yet.
        assert await two.renew(hmac, ALICE, 50_000) == w.clock.wall_ms() + 50_000
        await one.catch_up()
        assert one.tokens == two.tokens
        assert one.tokens[token.token_id].expires_ms == w.clock.wall_ms() + 50_000
        with pytest.raises(DelegationTokenOwnerMismatchError):
            await one.expire(hmac, EVE, -1)
        assert await one.expire(hmac, ALICE, 20) == w.clock.wall_ms() + 20
        assert await one.expire(hmac, ALICE, -1) == w.clock.wall_ms()
        assert one.tokens == {}
        # Also for one that still knows it.
        with pytest.raises(DelegationTokenNotFoundError):
            await two.renew(hmac, ALICE, -1)
        with pytest.raises(DelegationTokenNotFoundError):
            await one.renew(b"nobody's", ALICE, -1)


async def test_another_broker_hears_of_it_by_its_watch() -> None:
    async with world() as w:
        one, two = await w.broker(), await w.broker()
        token = await one.create(ALICE, ALICE, [], -1)
        await until(lambda: token.token_id in two.tokens)
        await one.expire(one.hmac(token.token_id), ALICE, -1)
        await until(lambda: not two.tokens)


async def test_what_lies_in_the_store_is_kafkas() -> None:
    async with world() as w:
        broker = await w.broker()
        token = await broker.create(ALICE, EVE, [EVE], 500)
        path = f"/delegation_token/tokens/{token.token_id}"
        assert decode_token(path, (await w.session.get(path)).data) == token
        (notice,) = await w.session.children("/delegation_token/token_changes")
        assert notice == "token_change_0000000000"
        assert (await w.session.get(f"/delegation_token/token_changes/{notice}")).data == token.token_id.encode()


async def test_tokens_of_others_are_taken_over() -> None:
    """Written as another broker does it, before the start and after."""
    async with world() as w:
        await prepare_tokens(w.session)
        before, after = (rules.create(name, ALICE, ALICE, [], -1, 0, LIFETIMES) for name in ("before", "after"))
        await w.session.create(paths.delegation_token("before"), encode_token(before))
        broker = await w.broker()
        await w.session.create(paths.delegation_token("after"), encode_token(after))
        await w.session.multi([token_change("after")])
        await broker.catch_up()
        assert broker.tokens == {"before": before, "after": after}


async def test_what_cannot_be_read_keeps_nothing_else_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    async with world() as w:
        broker = await w.broker()
        good = rules.create("good", ALICE, ALICE, [], -1, 0, LIFETIMES)
        await w.session.create(paths.delegation_token("bad"), b"{")
        await w.session.create(paths.delegation_token("good"), encode_token(good))
        for data in (b"bad", b"", b"../../config", b"a/b", b"\xff", b"gone", b"good"):
            await w.session.create(paths.TOKEN_CHANGE, data, sequential=True)
        await broker.catch_up()
        assert broker.tokens == {"good": good}
        assert "delegation token bad cannot be used" in caplog.text


async def test_a_login_until_the_token_expires() -> None:
    async with world() as w:
        broker = await w.broker()
        token = await broker.create(ALICE, ALICE, [], -1)
        login, credential = broker.find(SHA_256, token.token_id)
        assert login == TokenLogin("alice", token.expires_ms)
        # Made once, also over a renewal and a new session.
        await broker.renew(broker.hmac(token.token_id), ALICE, 20_000)
        await broker.start()
        assert broker.find(SHA_256, token.token_id) == (
            TokenLogin("alice", w.clock.wall_ms() + 20_000),
            credential,
        )
        assert broker.find(SHA_512, token.token_id)[1] != credential
        w.clock.advance(20.001)
        login, nobodys = broker.find(SHA_256, token.token_id)
        assert login is None
        assert nobodys != credential
        assert (len(nobodys.salt), nobodys.iterations) == (len(credential.salt), credential.iterations)
        assert broker.find(SHA_256, "unknown") == broker.find(SHA_256, "unknown")


async def test_expired_tokens_are_removed_and_others_stay() -> None:
    async with world() as w:
        one, two = await w.broker(), await w.broker()
        short, middle, long = [await one.create(ALICE, ALICE, [], life) for life in (100, 500, -1)]
        w.clock.advance(0.2)
        await one.remove_expired()
        assert set(one.tokens) == {middle.token_id, long.token_id}
        await two.catch_up()
        assert two.tokens == one.tokens
        assert await w.session.exists(paths.delegation_token(short.token_id)) is None
        # Two that do so at once.
        w.clock.advance(1)
        await asyncio.gather(one.remove_expired(), two.remove_expired())
        assert set(one.tokens) == set(two.tokens) == {long.token_id}


async def test_only_the_controller_removes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as w:
        broker = await w.broker()
        removed = asyncio.Event()
        asked: list[bool] = []
        problems: list[Exception] = [StoreUnavailableError("away for a moment")]

        def is_controller() -> bool:
            asked.append(len(asked) > 1)
            return asked[-1]

        async def remove() -> None:
            if problems:
                raise problems.pop()
            removed.set()

        monkeypatch.setattr(broker, "remove_expired", remove)
        w.tasks.spawn("removing", broker.remove_expired_regularly(is_controller, 0))
        await removed.wait()
        assert asked[:4] == [False, False, True, True]
