from __future__ import annotations

import asyncio

import pytest

from braidlog.client.errors import AuthenticationFailed
from braidlog.net.outbound import sasl
from braidlog.net.outbound.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from braidlog.wire.generated.sasl_authenticate import SaslAuthenticateResponse
from braidlog.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from support.sasl_door import METADATA, OFFERED, PLAIN, REFUSED, Door, ask, enter, nodes_of
from support.scripted_broker import ScriptedBroker

UNSUPPORTED_MECHANISM = 33
ILLEGAL_STATE = 34


async def test_authentication_comes_before_everything_else() -> None:
    door = Door()
    async with ScriptedBroker(door, offered=OFFERED) as broker:
        await enter(broker, **PLAIN)
        assert door.mechanisms == ["PLAIN"]
        assert door.messages == [b"\0alice\0s3cret"]
        assert [key for key, _, _ in broker.requests] == [18, SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA]


async def test_the_brokers_words_are_passed_on_and_the_secret_is_not() -> None:
    def refuse(_: bytes) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(error_code=REFUSED, error_message="Invalid username or password")

    async with ScriptedBroker(Door(refuse), offered=OFFERED) as broker:
        with pytest.raises(AuthenticationFailed) as caught:
            await enter(broker, **PLAIN)
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
            await enter(broker, **{**PLAIN, "sasl_mechanism": "SCRAM-SHA-512"})


async def test_a_listener_without_sasl() -> None:
    door = Door()
    door.handshake_error = ILLEGAL_STATE
    async with ScriptedBroker(door, offered=OFFERED) as broker:
        with pytest.raises(AuthenticationFailed, match=r"wants no SASL.*security\.protocol to PLAINTEXT"):
            await enter(broker, **PLAIN)
    async with ScriptedBroker(door) as broker:
        with pytest.raises(AuthenticationFailed, match="offers no SASL"):
            await enter(broker, **PLAIN)


async def test_a_server_that_never_comes_to_an_end() -> None:
    def challenge(_: bytes) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(auth_bytes=b"r=nonsense,s=QSXC,i=4096")

    async with ScriptedBroker(Door(challenge), offered=OFFERED) as broker:
        with pytest.raises(AuthenticationFailed, match="not ours"):
            await enter(broker, **{**PLAIN, "sasl_mechanism": "SCRAM-SHA-256"})


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl, "_SOONEST_S", 0.0)


@pytest.mark.usefixtures("quick")
async def test_a_session_is_renewed_while_requests_go_on() -> None:
    door = Door(lifetime_ms=20)
    async with ScriptedBroker(door, offered=OFFERED) as broker:
        nodes = nodes_of(broker, **PLAIN)
        connection = await nodes.any()
        answered = 0
        async with asyncio.timeout(50):
            while len(door.messages) < 5:
                answers = await asyncio.gather(*(ask(connection) for _ in range(3)))
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
        nodes = nodes_of(broker, **PLAIN)
        connection = await nodes.any()
        ended = asyncio.Event()
        connection.at_end(ended.set)
        async with asyncio.timeout(50):
            await ended.wait()
        assert isinstance(connection.problem, AuthenticationFailed)
        assert "no longer welcome" in str(connection.problem)
        nodes.close()


@pytest.mark.usefixtures("quick")
async def test_a_closed_connection_is_not_renewed() -> None:
    door = Door(lifetime_ms=30)
    async with ScriptedBroker(door, offered=OFFERED) as broker:
        nodes = nodes_of(broker, **PLAIN)
        connection = await nodes.any()
        ended = asyncio.Event()
        connection.at_end(ended.set)
        nodes.close()
        async with asyncio.timeout(50):
            await ended.wait()
        # A busy machine may have renewed it before.
        authentications = len(door.messages)
        # Twice the session's life: whatever was to renew it would have.
        await asyncio.sleep(0.06)
        assert len(door.messages) == authentications
        assert broker.connections == 1


async def test_what_is_held_back_goes_out_afterwards_in_order() -> None:
    async with ScriptedBroker(Door(), offered=OFFERED) as broker:
        nodes = nodes_of(broker)
        connection = await nodes.any()
        connection.hold()
        held = [asyncio.ensure_future(ask(connection)) for _ in range(3)]
        await asyncio.sleep(0)
        request = SaslHandshakeRequest(mechanism="PLAIN")
        ahead = await connection.post(SASL_HANDSHAKE, 1, request, 50.0, ahead=True)
        assert isinstance(ahead, SaslHandshakeResponse)
        assert not any(each.done() for each in held)
        connection.release()
        assert await asyncio.gather(*held) == ["c", "c", "c"]
        assert [key for key, _, _ in broker.requests] == [18, SASL_HANDSHAKE, METADATA, METADATA, METADATA]
        nodes.close()
