"""A connection is let in, told why not, and authenticates again without disturbing anybody."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import pytest

from braidlog.client.errors import AuthenticationFailed, NoConnection
from braidlog.client.network.nodes import Nodes
from braidlog.client.settings import ADMIN, Settings
from braidlog.core.errors import UserError
from braidlog.security.credentials import BearerToken
from braidlog.wire.generated.sasl_authenticate import SaslAuthenticateResponse
from support.sasl_door import OFFERED, PLAIN, REFUSED, Door, enter
from support.scripted_broker import HANG_UP, SILENCE, ScriptedBroker


async def test_a_broker_that_wants_sasl_hangs_up_on_who_has_none() -> None:
    async with ScriptedBroker(lambda _, __: HANG_UP, offered=OFFERED) as broker:
        with pytest.raises(NoConnection, match=r"on the first request.*security\.protocol=SASL_PLAINTEXT"):
            await enter(broker)


async def test_a_broker_that_says_nothing() -> None:
    async with ScriptedBroker(lambda _, __: SILENCE, offered=OFFERED) as broker:
        with pytest.raises(NoConnection, match="did not answer SaslHandshake"):
            await enter(broker, **{**PLAIN, "request_timeout_ms": 50})


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
        await enter(broker, **_bearer(provider))
    assert door.messages == [b"n,,\x01auth=Bearer t0ken\x01\x01"]


async def test_the_error_of_a_token_is_told() -> None:
    def verify(message: bytes) -> SaslAuthenticateResponse:
        if message == b"\x01":
            return SaslAuthenticateResponse(error_code=REFUSED, error_message="failed")
        return SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}')

    async with ScriptedBroker(Door(verify), offered=OFFERED) as broker:
        with pytest.raises(AuthenticationFailed, match=r"OAUTHBEARER: invalid_token; check the token"):
            await enter(broker, **_bearer(lambda: "t0ken"))


async def test_a_provider_that_fails() -> None:
    def fail() -> str:
        raise LookupError("s3cret path")

    async with ScriptedBroker(Door(), offered=OFFERED) as broker:
        with pytest.raises(AuthenticationFailed, match=r"token provider failed .LookupError") as caught:
            await enter(broker, **_bearer(fail))
    assert "s3cret" not in str(caught.value)


async def test_a_provider_that_reaches_nobody_is_asked_again_later() -> None:
    def fail() -> str:
        raise ConnectionRefusedError("s3cret path")

    async with ScriptedBroker(Door(), offered=OFFERED) as broker:
        with pytest.raises(NoConnection, match=r"token provider failed .ConnectionRefusedError") as caught:
            await enter(broker, **_bearer(fail))
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
