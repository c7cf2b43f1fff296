"""From settings to exchanges: which mechanism, whose credentials, and where they come from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from braidlog.core.errors import UserError
from braidlog.security import jaas, oauthbearer, plain, scram
from braidlog.security.credentials import BearerToken, Password
from braidlog.security.oauthbearer import PREFIX, OAuthBearerSaslClient, claims_of, unsecured_token
from braidlog.security.plain import PlainSaslClient
from braidlog.security.sasl_client import SaslClient
from braidlog.security.scram import ScramSaslClient

# Returns a token: a BearerToken, its text, or text and expiry in seconds since 1970; or something to await for one.
TokenProvider: TypeAlias = Callable[[], Any]
Credentials: TypeAlias = Password | BearerToken

MECHANISMS: Final = (plain.MECHANISM, *scram.MECHANISMS, oauthbearer.MECHANISM)
_MODULE_OF: Final = {
    plain.MECHANISM: jaas.PLAIN,
    **dict.fromkeys(scram.MECHANISMS, jaas.SCRAM),
    oauthbearer.MECHANISM: jaas.OAUTHBEARER,
}


class Login(NamedTuple):
    """How to authenticate, again and again: `credentials` are asked for each time, and that may block."""

    mechanism: str
    credentials: Callable[[], Credentials | Awaitable[Any]]

    @property
    def is_blocking(self) -> bool:
        """Whether asking for the credentials may take a while."""
        return self.mechanism == oauthbearer.MECHANISM

    def sasl_client(self, who: Any) -> SaslClient:
        if self.mechanism == oauthbearer.MECHANISM:
            return OAuthBearerSaslClient(as_token(who))
        assert isinstance(who, Password)
        if self.mechanism == plain.MECHANISM:
            return PlainSaslClient(who)
        return ScramSaslClient(scram.MECHANISMS[self.mechanism], who)

    def __repr__(self) -> str:
        return f"Login({self.mechanism})"


def login_of(
    mechanism: str,
    *,
    jaas_config: str | None = None,
    username: str | None = None,
    password: str | None = None,
    token_provider: TokenProvider | None = None,
    token_endpoint: Callable[[Mapping[str, str]], BearerToken] | None = None,
    now_ms: Callable[[], int],
) -> Login:
    """The login that a client's settings describe; raises UserError that names the setting to change."""
    if mechanism not in MECHANISMS:
        why = (
            "GSSAPI (Kerberos), Kafka's default, is not supported"
            if mechanism == "GSSAPI"
            else f"{mechanism!r} is unknown"
        )
        raise UserError(f"sasl.mechanism: {why}; set it to one of {', '.join(MECHANISMS)}")
    options: Mapping[str, str] = {}
    if jaas_config:
        module = jaas.parse_jaas(jaas_config)
        if module.name != _MODULE_OF[mechanism]:
            raise UserError(
                f"sasl.jaas.config has a {module.name}, but sasl.mechanism {mechanism} wants {_MODULE_OF[mechanism]}"
            )
        options = module.options
    if mechanism == oauthbearer.MECHANISM:
        return Login(mechanism, _token_source(options, token_provider, token_endpoint, now_ms))
    who = _password(mechanism, options, username, password)
    return Login(mechanism, lambda: who)


def _password(mechanism: str, options: Mapping[str, str], username: str | None, password: str | None) -> Password:
    name = options.get("username") if username is None else username
    secret = options.get("password") if password is None else password
    if name is None or secret is None:
        missing = "user name" if name is None else "password"
        setting = "sasl.username" if name is None else "sasl.password"
        raise UserError(f"sasl.mechanism {mechanism} needs a {missing}: set {setting}, or sasl.jaas.config")
    is_token = mechanism in scram.MECHANISMS and options.get("tokenauth", "").lower() == "true"
    return Password(name, secret, {"tokenauth": "true"} if is_token else {})


def _token_source(
    options: Mapping[str, str],
    provider: TokenProvider | None,
    endpoint: Callable[[Mapping[str, str]], BearerToken] | None,
    now_ms: Callable[[], int],
) -> Callable[[], Credentials | Awaitable[Any]]:
    if provider is not None:
        if not callable(provider):
            raise UserError("sasl.oauth.token.provider has to be a function that returns a token")
        return provider
    if endpoint is not None:
        return lambda: endpoint(options)
    if any(name.startswith(PREFIX) for name in options):
        unsecured_token(options, now_ms())  # what is wrong with the options shows now
        return lambda: unsecured_token(options, now_ms())
    raise UserError(
        "sasl.mechanism OAUTHBEARER needs a source of tokens: sasl_oauth_token_provider (a function), "
        "sasl.oauthbearer.token.endpoint.url, or unsecuredLoginStringClaim_sub in sasl.jaas.config for development"
    )


def as_token(returned: Any) -> BearerToken:
    """What a provider may return, as a token; the life of a JSON web token is read from its claims."""
    if isinstance(returned, BearerToken):
        return returned
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[0], str):
        value, expires_s = returned
        if isinstance(expires_s, int | float):
            return BearerToken(value, round(expires_s * 1000))
    if isinstance(returned, str):
        expires_s = claims_of(returned).get("exp")
        return BearerToken(returned, round(expires_s * 1000) if isinstance(expires_s, int | float) else None)
    raise UserError(
        f"the token provider returned {type(returned).__name__}; it has to return a BearerToken, the token as text, "
        "or a pair of the token and its expiry in seconds since 1970"
    )
