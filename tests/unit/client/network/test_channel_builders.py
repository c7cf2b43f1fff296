"""A connection is let in, told why not, and authenticates again without disturbing anybody."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from braidlog.client.errors import AuthenticationFailed, NoConnection
from braidlog.client.network.nodes import Nodes
from braidlog.client.settings import ADMIN, Settings
from braidlog.core.errors import UserError
from braidlog.net.outbound import sasl
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.net.outbound.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from braidlog.security.credentials import BearerToken
from braidlog.wire.generated.metadata import MetadataRequest, MetadataResponse
from braidlog.wire.generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from braidlog.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from braidlog.wire.message import Message
from support.scripted_broker import HANG_UP, SILENCE, Answer, ScriptedBroker

METADATA = 3
OFFERED = (METADATA, SASL_HANDSHAKE, 18, SASL_AUTHENTICATE)
UNSUPPORTED_MECHANISM = 33
ILLEGAL_STATE = 34
REFUSED = 58
PLAIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "s3cret",
}


class Door:
    """The SASL side of a broker: takes what `verify` takes, for sessions of `lifetime_ms`."""

    def __init__(self, verify: Callable[[bytes], SaslAuthenticateResponse] | None = None, lifetime_ms: int = 0) -> None:
        self.mechanisms: list[str] = []
        self.messages: list[bytes] = []
        self.handshake_error = 0
        self.lifetime_ms = lifetime_ms
        self.refuse_from = 1_000_000
        self._verify = verify

    def __call__(self, _: int, request: Message) -> Answer:
        if isinstance(request, SaslHandshakeRequest):
            self.mechanisms.append(request.mechanism)
            return SaslHandshakeResponse(error_code=self.handshake_error, mechanisms=["PLAIN", "SCRAM-SHA-256"])
        if isinstance(request, SaslAuthenticateRequest):
            self.messages.append(bytes(request.auth_bytes))
            if len(self.messages) >= self.refuse_from:
                return SaslAuthenticateResponse(error_code=REFUSED, error_message="no longer welcome")
            if self._verify is not None:
                return self._verify(self.messages[-1])
            return SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms)
        assert isinstance(request, MetadataRequest)
        return MetadataResponse(cluster_id="c")


def _nodes(broker: ScriptedBroker, **settings: Any) -> Nodes:
    given = {"bootstrap_servers": broker.address, "request_timeout_ms": 5000, **settings}
    return Nodes(Settings.of(ADMIN, None, given))


async def _ask(connection: PipelinedConnection) -> str | None:
    answer = await connection.call(METADATA, MetadataRequest(), MetadataResponse, timeout_s=5.0)
    return answer.cluster_id


async def _enter(broker: ScriptedBroker, **settings: Any) -> None:
    nodes = _nodes(broker, **settings)
    try:
        assert await _ask(await nodes.any()) == "c"
    finally:
        nodes.close()


async def test_authentication_comes_before_everything_else() -> None:
    door = Door()
    async with ScriptedBroker(door, offered=OFFERED) as broker:
        await _enter(broker, **PLAIN)
        assert door.mechanisms == ["PLAIN"]
        assert door.messages == [b"\0alice\0s3cret"]
        assert [key for key, _, _ in broker.requests] == [18, SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA]


async def test_the_brokers_words_are_passed_on_and_the_secret_is_not() -> None:
    def refuse(_: bytes) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(error_code=REFUSED, error_message="Invalid username or password")

    async with ScriptedBroker(Door(refuse), offered=OFFERED) as broker:
        with pytest.raises(AuthenticationFailed) as caught:
            await _enter(broker, **PLAIN)
    reported = str(caught.value)
    assert "SASL authentication failed" in reported
    assert "PLAIN: Invalid username or password; check user name and password" in reported
    assert "s3cret" not in reported
    assert broker.connections == 1, "a refusal is not tried again"


async def test_a_mechanism_that_is_not_offered() -> None:
    door = Door()
    door.handshake_error = UNSUPPORTED_MECHANISM
    async with ScriptedBroker(door, offered=OFFERED) as broker:
        with pytest.raises(AuthenticationFailed, match=r"does not offer SCRAM-SHA-512, only PLAIN, SCRAM-SHA-256"):
            await _enter(broker, **{**PLAIN, "sasl_mechanism": "SCRAM-SHA-512"})


async def test_a_listener_without_sasl() -> None:
    door = Door()
    door.handshake_error = ILLEGAL_STATE
    async with ScriptedBroker(door, offered=OFFERED) as broker:
        with pytest.raises(AuthenticationFailed, match=r"wants no SASL.*security\.protocol to PLAINTEXT"):
            await _enter(broker, **PLAIN)
    async with ScriptedBroker(door) as broker:
        with pytest.raises(AuthenticationFailed, match="offers no SASL"):
            await _enter(broker, **PLAIN)


async def test_a_server_that_never_comes_to_an_end() -> None:
    def challenge(_: bytes) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(auth_bytes=b"r=nonsense,s=QSXC,i=4096")

    async with ScriptedBroker(Door(challenge), offered=OFFERED) as broker:
        with pytest.raises(AuthenticationFailed, match="not ours"):
            await _enter(broker, **{**PLAIN, "sasl_mechanism": "SCRAM-SHA-256"})


async def test_a_broker_that_wants_sasl_hangs_up_on_who_has_none() -> None:
    async with ScriptedBroker(lambda _, __: HANG_UP, offered=OFFERED) as broker:
        with pytest.raises(NoConnection, match=r"on the first request.*security\.protocol=SASL_PLAINTEXT"):
            await _enter(broker)


async def test_a_broker_that_says_nothing() -> None:
    async with ScriptedBroker(lambda _, __: SILENCE, offered=OFFERED) as broker:
        with pytest.raises(NoConnection, match="did not answer SaslHandshake"):
            await _enter(broker, **{**PLAIN, "request_timeout_ms": 50})


# Tokens


def _bearer(provider: Any) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


async def _awaited_token() -> str:
    return "t0ken"


@pytest.mark.parametrize("provider", [lambda: "t0ken", lambda: BearerToken("t0ken"), _awaited_token])
async def test_tokens_of_functions_and_coroutines(provider: Any) -> None:
    door = Door()
    async with ScriptedBroker(door, offered=OFFERED) as broker:
        await _enter(broker, **_bearer(provider))
    assert door.messages == [b"n,,\x01auth=Bearer t0ken\x01\x01"]


async def test_the_error_of_a_token_is_told() -> None:
    def verify(message: bytes) -> SaslAuthenticateResponse:
        if message == b"\x01":
            return SaslAuthenticateResponse(error_code=REFUSED, error_message="failed")
        return SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}')

    async with ScriptedBroker(Door(verify), offered=OFFERED) as broker:
        with pytest.raises(AuthenticationFailed, match=r"OAUTHBEARER: invalid_token; check the token"):
            await _enter(broker, **_bearer(lambda: "t0ken"))


async def test_a_provider_that_fails() -> None:
    def fail() -> str:
        raise LookupError("s3cret path")

    async with ScriptedBroker(Door(), offered=OFFERED) as broker:
        with pytest.raises(AuthenticationFailed, match=r"token provider failed .LookupError") as caught:
            await _enter(broker, **_bearer(fail))
    assert "s3cret" not in str(caught.value)


async def test_a_provider_that_reaches_nobody_is_asked_again_later() -> None:
    def fail() -> str:
        raise ConnectionRefusedError("s3cret path")

    async with ScriptedBroker(Door(), offered=OFFERED) as broker:
        with pytest.raises(NoConnection, match=r"token provider failed .ConnectionRefusedError") as caught:
            await _enter(broker, **_bearer(fail))
    assert "s3cret" not in str(caught.value)


def test_settings_that_cannot_be_followed_are_told_at_once() -> None:
    for settings, reported in (
        ({**PLAIN, "sasl_mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({**PLAIN, "sasl_password": None}, "sasl.password"),
        ({"security_protocol": "SSL", "ssl_truststore_location": "/nowhere"}, "ssl.truststore.location"),
    ):
        with pytest.raises(UserError, match=reported):
            Nodes(Settings.of(ADMIN, None, {"bootstrap_servers": "localhost:1", **settings}))


# Sessions


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl, "_SOONEST_S", 0.0)


@pytest.mark.usefixtures("quick")
async def test_a_session_is_renewed_while_requests_go_on() -> None:
    door = Door(lifetime_ms=20)
    async with ScriptedBroker(door, offered=OFFERED) as broker:
        nodes = _nodes(broker, **PLAIN)
        connection = await nodes.any()
        answered = 0
        async with asyncio.timeout(10):
            while len(door.messages) < 5:
                answers = await asyncio.gather(*(_ask(connection) for _ in range(3)))
                assert answers == ["c", "c", "c"]
                answered += 3
        assert answered > 0
        assert broker.connections == 1
        _check_order([key for key, _, _ in broker.requests])
        nodes.close()


def _check_order(keys: list[int]) -> None:
    """Nothing comes between the two requests of an authentication: a broker would not take it."""
    for at, key in enumerate(keys):
        if key == SASL_HANDSHAKE:
            assert keys[at + 1 : at + 2] in ([SASL_AUTHENTICATE], [])


@pytest.mark.usefixtures("quick")
async def test_a_session_that_is_not_renewed_ends_the_connection() -> None:
    door = Door(lifetime_ms=20)
    door.refuse_from = 2
    async with ScriptedBroker(door, offered=OFFERED) as broker:
        nodes = _nodes(broker, **PLAIN)
        connection = await nodes.any()
        ended = asyncio.Event()
        connection.at_end(ended.set)
        async with asyncio.timeout(10):
            await ended.wait()
        assert isinstance(connection.problem, AuthenticationFailed)
        assert "no longer welcome" in str(connection.problem)
        nodes.close()


@pytest.mark.usefixtures("quick")
async def test_a_closed_connection_is_not_renewed() -> None:
    door = Door(lifetime_ms=30)
    async with ScriptedBroker(door, offered=OFFERED) as broker:
        nodes = _nodes(broker, **PLAIN)
        await nodes.any()
        nodes.close()
        # Twice the session's life: whatever was to renew it would have.
        await asyncio.sleep(0.06)
        assert len(door.messages) == 1


async def test_what_is_held_back_goes_out_afterwards_in_order() -> None:
    async with ScriptedBroker(Door(), offered=OFFERED) as broker:
        nodes = _nodes(broker)
        connection = await nodes.any()
        connection.hold()
        held = [asyncio.ensure_future(_ask(connection)) for _ in range(3)]
        await asyncio.sleep(0)
        request = SaslHandshakeRequest(mechanism="PLAIN")
        ahead = await connection.post(SASL_HANDSHAKE, 1, request, 5.0, ahead=True)
        assert isinstance(ahead, SaslHandshakeResponse)
        assert not any(each.done() for each in held)
        connection.release()
        assert await asyncio.gather(*held) == ["c", "c", "c"]
        assert [key for key, _, _ in broker.requests] == [18, SASL_HANDSHAKE, METADATA, METADATA, METADATA]
        nodes.close()


def test_a_token_can_be_fetched_while_the_program_ends() -> None:
    """What is flushed at exit may need a connection first, and executors take nothing any more by then."""
    program = """
        import atexit
        from braidlog.client.network.channel_builders import SecureChannelBuilder
        from braidlog.client.network.engine import Engine
        from braidlog.client.settings import PRODUCER, Settings

        class Login:
            is_blocking = True
            def credentials(self):
                return "token"
            def sasl_client(self, credentials):
                return f"exchange with {credentials}"

        settings = Settings.of(PRODUCER, None, {"bootstrap_servers": "broker:9092"})
        access = SecureChannelBuilder(settings, with_tls=False, login=Login())
        engine = Engine("tester")

        @atexit.register
        def last():
            print(engine.run(access._new_exchange(), 30))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("exchange with token\n", "")
