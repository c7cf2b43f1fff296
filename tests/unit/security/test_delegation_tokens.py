"""What a delegation token is worth, and who gets in with it."""

from __future__ import annotations

import pytest

from braidlog.core.protocol_errors import SaslAuthenticationFailedError
from braidlog.security.credentials import Password
from braidlog.security.delegation_tokens import TokenLogin, TokenSecret, password_of
from braidlog.security.scram import MECHANISMS, SHA_256, Mechanism, ScramSaslClient
from braidlog.security.scram_credentials import StoredCredential, UnknownUsers
from braidlog.security.scram_server import ScramSaslServer

SECRET = TokenSecret("not-a-secret")
TOKEN_ID = "zkVDSPpLQUqg7fYjmKFLJw"
# From Apache Kafka 3.9.1: DelegationTokenManager.createHmac(TOKEN_ID, "not-a-secret"), in base64.
HMAC = "qOKNoziB5IfZiJ5Xzn6BilzriuJKqyiGZUvCLCEGWR4N6FfhNa5mr59ReCNHKIK9yTok+yR4Dhj3WMvxVMaI8g=="


def test_the_hmac_is_kafkas() -> None:
    assert password_of(SECRET.hmac(TOKEN_ID)) == HMAC
    assert "not-a-secret" not in repr(SECRET)


def server(mechanism: Mechanism, *, has_tokens: bool = True) -> ScramSaslServer:
    """Knows one token, and a user who is called as the token is."""
    unknown = UnknownUsers(b"hush")
    credential = SECRET.credential(mechanism, TOKEN_ID)

    def user_of(name: str) -> tuple[bool, StoredCredential]:
        return name == TOKEN_ID, credential

    def token_of(token_id: str) -> tuple[TokenLogin | None, StoredCredential]:
        if token_id == TOKEN_ID:
            return TokenLogin("alice", 5000), credential
        return None, unknown.credential(mechanism, token_id, None)

    return ScramSaslServer(mechanism, user_of, token_of=token_of if has_tokens else None)


def log_in(server: ScramSaslServer, mechanism: Mechanism, who: Password) -> ScramSaslServer:
    client = ScramSaslClient(mechanism, who)
    proof = client.answer(server.evaluate(client.first()))
    assert proof is not None
    client.answer(server.evaluate(proof))
    assert client.is_complete
    return server


@pytest.mark.parametrize("mechanism", MECHANISMS.values())
@pytest.mark.parametrize("yes", ["true", "TRUE"])
def test_a_login_with_a_token_is_its_owners(mechanism: Mechanism, yes: str) -> None:
    done = log_in(server(mechanism), mechanism, Password(TOKEN_ID, HMAC, {"tokenauth": yes}))
    assert (done.user, done.expires_ms, done.is_by_token) == ("alice", 5000, True)


@pytest.mark.parametrize("extensions", [{}, {"tokenauth": "false"}])
def test_without_the_extension_it_is_a_users(extensions: dict[str, str]) -> None:
    done = log_in(server(SHA_256), SHA_256, Password(TOKEN_ID, HMAC, extensions))
    assert (done.user, done.expires_ms, done.is_by_token) == (TOKEN_ID, None, False)


@pytest.mark.parametrize(("token_id", "password"), [(TOKEN_ID, "wrong"), ("another", HMAC)])
def test_a_wrong_token_and_one_that_is_unknown_are_refused_alike(token_id: str, password: str) -> None:
    asked = server(SHA_256)
    with pytest.raises(SaslAuthenticationFailedError, match="due to invalid credentials with SASL mechanism"):
        log_in(asked, SHA_256, Password(token_id, password, {"tokenauth": "true"}))
    assert not asked.is_by_token


def test_a_users_password_is_no_token_where_there_are_none() -> None:
    asked = server(SHA_256, has_tokens=False)
    with pytest.raises(SaslAuthenticationFailedError):
        log_in(asked, SHA_256, Password(TOKEN_ID, HMAC, {"tokenauth": "true"}))
