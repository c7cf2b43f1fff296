"""Requests about delegation tokens over the wire, on a whole server, by clients that log in or do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.handlers.security.delegation_tokens import DescribeDelegationTokenHandler
from braidlog.broker.requests.dispatch import Dispatch
from braidlog.broker.server import Server
from braidlog.client.admin import Admin
from braidlog.client.errors import AuthenticationFailed
from braidlog.core import protocol_errors as errors
from braidlog.core.clock import ManualClock
from braidlog.core.principal import Principal
from braidlog.core.protocol_errors import NONE
from braidlog.core.tasks import Tasks
from braidlog.net.exchange import Exchange
from braidlog.net.round import Round
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.security.delegation_tokens import password_of
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from braidlog.wire.generated.describe_delegation_token import DescribeDelegationTokenRequest
from braidlog.wire.generated.expire_delegation_token import ExpireDelegationTokenRequest
from braidlog.wire.generated.renew_delegation_token import RenewDelegationTokenRequest
from braidlog.wire.message import Message
from support.asked_broker import AskedBroker, on_broker_with
from support.authorized_broker import RestrictedBroker, allow
from support.in_process_server import answer, open_server, until
from support.login_world import LoginChannel, Loop
from support.raw import RawConnection
from support.raw_logins import log_in, log_in_with_token

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.clients.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a" user_bob="b" user_eve="e";'
    ),
    "connection.failed.authentication.delay.ms": "1",
}
SECRET = {"delegation.token.secret.key": "signed with this"}
ALICE, BOB, EVE = (Principal("User", name) for name in ("alice", "bob", "eve"))


def with_server(directory: Path, check: Callable[[Server, int], None], settings: dict[str, str]) -> None:
    async def main() -> None:
        async with open_server(directory, SETTINGS | settings) as server:
            await asyncio.to_thread(check, server, server.listeners[1].port)

    asyncio.run(asyncio.wait_for(main(), 60))


def admin(port: int, who: Principal) -> Admin:
    return Admin(
        bootstrap_servers=f"127.0.0.1:{port}",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username=who.name,
        sasl_password=who.name[0],
    )


def by_token(port: int, token_id: str, hmac: bytes, mechanism: str = "SCRAM-SHA-256") -> Admin:
    login = f'username="{token_id}" password="{password_of(hmac)}" tokenauth="true"'
    return Admin(
        bootstrap_servers=f"127.0.0.1:{port}",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_jaas_config=f"org.apache.kafka.common.security.scram.ScramLoginModule required {login};",
    )


def test_a_tokens_life(tmp_path: Path) -> None:
    def check(server: Server, port: int) -> None:
        with admin(port, ALICE) as alice, admin(port, BOB) as bob, admin(port, EVE) as eve:
            token = alice.create_delegation_token(renewers=[BOB])
            assert (token.owner, token.requester, token.renewers) == (ALICE, ALICE, (BOB,))
            assert token.ends_ms - token.issued_ms == 7 * 86_400_000
            for asked in (None, [ALICE], [EVE, BOB]):
                assert bob.describe_delegation_tokens(asked) == [token]
            assert bob.describe_delegation_tokens([EVE]) == []
            assert bob.describe_delegation_tokens([]) == []
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                with by_token(port, token.token_id, token.hmac, mechanism) as holder:
                    assert holder.describe_cluster().brokers
                    # A token does not beget tokens.
                    with pytest.raises(errors.DelegationTokenRequestNotAllowedError):
                        holder.create_delegation_token()
                    with pytest.raises(errors.DelegationTokenRequestNotAllowedError):
                        holder.describe_delegation_tokens()
            assert bob.renew_delegation_token(token.hmac, period_ms=1000) < token.expires_ms
            with pytest.raises(errors.DelegationTokenOwnerMismatchError):
                eve.renew_delegation_token(token.hmac)
            with pytest.raises(errors.DelegationTokenOwnerMismatchError):
                eve.expire_delegation_token(token.hmac)
            with pytest.raises(errors.DelegationTokenNotFoundError):
                alice.renew_delegation_token(b"nobody's")
            alice.expire_delegation_token(token.hmac)
            assert alice.describe_delegation_tokens() == []
            with pytest.raises(AuthenticationFailed):
                by_token(port, token.token_id, token.hmac).describe_cluster()

    with_server(tmp_path, check, SECRET)


def test_a_token_in_anothers_name(tmp_path: Path) -> None:
    def check(server: Server, port: int) -> None:
        with admin(port, BOB) as bob, admin(port, ALICE) as alice:
            token = bob.create_delegation_token(owner=ALICE)
            assert (token.owner, token.requester) == (ALICE, BOB)
            assert bob.describe_delegation_tokens([BOB]) == [token]
            # Who asked for it does not renew it.
            with pytest.raises(errors.DelegationTokenOwnerMismatchError):
                bob.renew_delegation_token(token.hmac)
            alice.renew_delegation_token(token.hmac)
            with pytest.raises(errors.InvalidPrincipalTypeError):
                bob.create_delegation_token(renewers=[Principal("Group", "owls")])

    with_server(tmp_path, check, SECRET)


def test_sessions_end_with_the_token(tmp_path: Path) -> None:
    def check(server: Server, port: int) -> None:
        with admin(port, ALICE) as alice:
            token = alice.create_delegation_token(max_lifetime_ms=600_000)
        with RawConnection(port) as raw:
            last = log_in_with_token(raw, token.token_id, token.hmac)
            assert last.error_code == NONE
            assert 0 < last.session_lifetime_ms <= 600_000

    with_server(tmp_path, check, SECRET)


def test_tokens_outlive_the_broker_and_are_removed_when_they_have_expired(tmp_path: Path) -> None:
    def make(server: Server, port: int) -> None:
        with admin(port, ALICE) as alice:
            made = [alice.create_delegation_token(max_lifetime_ms=life) for life in (1, 600_000)]
        assert len({token.token_id for token in made}) == 2

    async def main() -> None:
        async with open_server(tmp_path, SETTINGS | SECRET) as server:
            await asyncio.to_thread(make, server, server.listeners[1].port)
            found = server.broker.delegation_tokens
            assert found is not None
            # The first look for expired ones was before there were any; the next one is in an hour.
            (lasting,) = (token for token in found.tokens.values() if token.ends_ms - token.issued_ms > 1)
            assert len(found.tokens) == 2
        async with open_server(tmp_path, SETTINGS | SECRET) as server:
            found = server.broker.delegation_tokens
            assert found is not None
            await until(lambda: found.tokens == {lasting.token_id: lasting})

    asyncio.run(asyncio.wait_for(main(), 60))


def test_whoever_showed_a_certificate_may_ask() -> None:
    """With SSL the certificate's owner is the principal, and nobody is one without."""
    clock = ManualClock()
    channel = LoginChannel(Dispatch(clock, Tasks("test")), Round(Loop(clock)))
    exchange = Exchange(channel, ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, 0, None, 0.0)
    describing = DescribeDelegationTokenHandler(None, Authorizer())
    with pytest.raises(errors.DelegationTokenRequestNotAllowedError):
        describing.handle(DescribeDelegationTokenRequest(owners=None), exchange)
    channel.principal = "CN=alice"
    # Further than the other, to the missing secret.
    with pytest.raises(errors.DelegationTokenAuthDisabledError):
        describing.handle(DescribeDelegationTokenRequest(owners=None), exchange)


REQUESTS: list[tuple[str, int, Message]] = [
    ("CreateDelegationToken", 3, CreateDelegationTokenRequest(owner_principal_type=None, owner_principal_name=None)),
    ("RenewDelegationToken", 2, RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1)),
    ("ExpireDelegationToken", 2, ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1)),
    ("DescribeDelegationToken", 3, DescribeDelegationTokenRequest(owners=None)),
]


def test_who_is_not_known_gets_none(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_server(tmp_path, SETTINGS | SECRET) as server:
            for name, version, request in REQUESTS:
                answered = await answer(server, name, version, request)
                assert answered.error_code == errors.DelegationTokenRequestNotAllowedError.code

    asyncio.run(asyncio.wait_for(main(), 60))


def test_without_a_secret_there_are_none(tmp_path: Path) -> None:
    def check(server: Server, port: int) -> None:
        with log_in(port, "alice", "a") as raw:
            for name, version, request in REQUESTS:
                answered: Any = raw.ask(name, version, request)
                assert answered.error_code == errors.DelegationTokenAuthDisabledError.code
        with pytest.raises(AuthenticationFailed):
            by_token(port, "alice", b"a").describe_cluster()

    with_server(tmp_path, check, {})


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_version(tmp_path: Path, version: int) -> None:
    def check(server: Server, port: int) -> None:
        with log_in(port, "alice", "a") as raw:
            request = CreateDelegationTokenRequest(
                renewers=[CreatableRenewers(principal_type="User", principal_name="bob")], max_lifetime_ms=-1
            )
            made: Any = raw.ask("CreateDelegationToken", version, request)
            assert (made.error_code, made.principal_type, made.principal_name) == (NONE, "User", "alice")
            assert made.token_requester_principal_name == ("alice" if version == 3 else "")
            found: Any = raw.ask("DescribeDelegationToken", version, DescribeDelegationTokenRequest(owners=None))
            (token,) = found.tokens
            assert (token.token_id, bytes(token.hmac)) == (made.token_id, bytes(made.hmac))
            assert token.token_requester_principal_name == made.token_requester_principal_name
            older = min(version, 2)
            renewed: Any = raw.ask(
                "RenewDelegationToken", older, RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=5)
            )
            assert renewed.error_code == NONE
            ended: Any = raw.ask(
                "ExpireDelegationToken",
                older,
                ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1),
            )
            assert ended.error_code == NONE
            assert server.broker.delegation_tokens is not None
            assert server.broker.delegation_tokens.tokens == {}

    # The name that the setting had before Kafka 3.0.
    with_server(tmp_path, check, {"delegation.token.master.key": "signed with this"})


@on_broker_with({"delegation.token.secret.key": "not-a-secret"})
async def test_tokens_are_seen_by_who_has_to_do_with_them_and_who_may_describe_them(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    renewers = [CreatableRenewers(principal_type="User", principal_name="alice")]
    for owner, renewed_by in (("alice", []), ("bob", []), ("carol", renewers)):
        wanted = CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name=owner, renewers=renewed_by, max_lifetime_ms=-1
        )
        asking = restricted.alice if owner == "alice" else restricted.admin
        assert (await asking.ask(wanted, 3)).error_code == NONE, "one's own takes no right"
    assert await restricted.ask("DescribeDelegationToken", 3, owners=None) == "[alice, carol]"
    restricted.rules(allow(AclResourceType.USER, "User:bob", AclOperation.DESCRIBE_TOKENS))
    assert await restricted.ask("DescribeDelegationToken", 3, owners=None) == "[alice, bob, carol]"
    bob = [{"principal_type": "User", "principal_name": "bob"}]
    assert await restricted.ask("DescribeDelegationToken", 3, owners=bob) == "[bob]"
    assert await restricted.ask("DescribeDelegationToken", 3, owners=[]) == "OK"
