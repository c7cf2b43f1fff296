"""Which tokens a listener takes, by its settings."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from braidlog.broker.authentication.listener_security import check_listener, sasl_mechanisms
from braidlog.broker.authentication.scram_users import ScramUsers
from braidlog.broker.authentication.verification_keys import VerificationKeys
from braidlog.config.broker import BrokerSettings
from braidlog.config.listeners import overrides_without_effect
from braidlog.core.clock import SystemClock
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import InvalidConfigError
from braidlog.core.tasks import Tasks
from braidlog.security.oauthbearer import encode_unsecured
from braidlog.security.sasl_server import SaslServer
from support.token_issuer import Issuer, key_set

PREFIX = "listener.name.clients."
OWN = f"{PREFIX}oauthbearer."
PACKAGE = "org.apache.kafka.common.security.oauthbearer."
JAAS = f"{PACKAGE}OAuthBearerLoginModule required"
OFFERED = {"sasl.enabled.mechanisms": "OAUTHBEARER"}
UNSECURED = {**OFFERED, f"{OWN}sasl.jaas.config": f'{JAAS} unsecuredValidatorAllowableClockSkewMs="3000";'}


@pytest.fixture
def url(tmp_path: Path) -> str:
    file = tmp_path / "keys.json"
    file.write_text(key_set(Issuer().published()))
    return file.as_uri()


def login(texts: dict[str, str], token: str) -> SaslServer:
    """What becomes of a first message with the token."""

    async def main() -> SaslServer:
        tasks = Tasks("test")
        keys = VerificationKeys(SystemClock(), tasks)
        mechanisms = sasl_mechanisms(BrokerSettings(texts), "CLIENTS", ScramUsers(b""), keys=lambda: keys)
        async with asyncio.timeout(60):
            await keys.asked()
        server = mechanisms.new_server["OAUTHBEARER"]()
        server.evaluate(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
        await tasks.close()
        return server

    return asyncio.run(main())


def claims(**more: object) -> dict[str, object]:
    now = int(time.time())
    return {"sub": "alice", "iat": now, "exp": now + 600, **more}


def test_signed_tokens(url: str) -> None:
    texts = {**OFFERED, "sasl.oauthbearer.jwks.endpoint.url": url}
    server = login(texts, Issuer().token(claims()))
    assert server.is_complete
    assert server.user == "alice"
    assert not login(texts, Issuer(number=1).token(claims())).is_complete
    assert not login(texts, encode_unsecured(claims())).is_complete


def test_a_listeners_own_rules_come_first(url: str) -> None:
    texts = {
        **OFFERED,
        "sasl.oauthbearer.jwks.endpoint.url": "file:///nowhere",
        f"{OWN}sasl.oauthbearer.jwks.endpoint.url": url,
        f"{OWN}sasl.oauthbearer.expected.audience": "a,b",
        f"{PREFIX}sasl.oauthbearer.expected.issuer": "https://idp",
        "sasl.oauthbearer.sub.claim.name": "email",
        f"{OWN}sasl.server.callback.handler.class": f"{PACKAGE}OAuthBearerValidatorCallbackHandler",
    }
    good = claims(aud=["b"], iss="https://idp", email="alice@example.com")
    assert login(texts, Issuer().token(good)).user == "alice@example.com"
    for wrong in ({"aud": "c"}, {"iss": "https://other"}, {"email": ""}):
        assert not login(texts, Issuer().token({**good, **wrong})).is_complete
    named = {**texts, "listeners": "CLIENTS://:9092"}
    assert overrides_without_effect(BrokerSettings(named)) == {}


def test_unsigned_tokens_only_where_somebody_asks_for_them(url: str) -> None:
    token = encode_unsecured(claims())
    handler = f"{PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    login_alone = f'{JAAS} unsecuredLoginStringClaim_sub="broker";'
    for texts in (
        UNSECURED,
        {**OFFERED, f"{OWN}sasl.jaas.config": login_alone},
        {**OFFERED, f"{OWN}sasl.server.callback.handler.class": handler},
    ):
        assert login(texts, token).user == "alice"
        (warning,) = check_listener(BrokerSettings(texts), "CLIENTS", "SASL_PLAINTEXT")
        assert "takes unsigned tokens: whoever reaches it logs in under any name" in warning
        # Keys that are named count.
        if f"{OWN}sasl.server.callback.handler.class" not in texts:
            assert not login({**texts, "sasl.oauthbearer.jwks.endpoint.url": url}, token).is_complete
    (warning,) = check_listener(
        BrokerSettings({**OFFERED, "sasl.oauthbearer.jwks.endpoint.url": url}), "CLIENTS", "SASL_PLAINTEXT"
    )
    assert "tokens travel in clear text" in warning


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (OFFERED, "cannot verify tokens: set sasl.oauthbearer.jwks.endpoint.url"),
        ({**OFFERED, f"{OWN}sasl.jaas.config": f"{JAAS};"}, "cannot verify tokens"),
        (
            {**OFFERED, f"{OWN}sasl.server.callback.handler.class": f"{PACKAGE}OAuthBearerValidatorCallbackHandler"},
            "cannot verify tokens",
        ),
        ({**OFFERED, "sasl.oauthbearer.jwks.endpoint.url": "/etc/keys.json"}, "begins with none of https://"),
        ({**OFFERED, "sasl.oauthbearer.jwks.endpoint.url": "file:///nowhere"}, "file:///nowhere cannot be read"),
        ({**UNSECURED, "sasl.oauthbearer.expected.audience": "a"}, "for which sasl.oauthbearer.expected.audience has"),
        ({**UNSECURED, "sasl.oauthbearer.expected.issuer": "a"}, "for which sasl.oauthbearer.expected.issuer has"),
        ({**OFFERED, f"{OWN}sasl.jaas.config": "PlainLoginModule required;"}, "OAUTHBEARER wants OAuthBearerLoginModu"),
        ({**OFFERED, f"{OWN}sasl.jaas.config": f'{JAAS} unsecuredValidatorX="1";'}, "no option unsecuredValidatorX"),
    ],
)
def test_a_mistake_is_explained(texts: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_listener(BrokerSettings(texts), "CLIENTS", "SASL_PLAINTEXT")


def test_a_class_of_ones_own_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match=r"expected one of org\.apache\.kafka"):
        BrokerSettings({f"{OWN}sasl.server.callback.handler.class": "com.example.Check"})
